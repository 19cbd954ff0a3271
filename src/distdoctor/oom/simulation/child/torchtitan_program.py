"""One kind of rank of a job, simulated with TorchTitan's own model, parallelisms, loss and optimizer."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace

from distdoctor.oom.facts.simulated import RoleSimulation
from distdoctor.oom.job import Job
from distdoctor.oom.simulation.child.simulate import simulate_role
from distdoctor.oom.simulation.child.titan.configuration import BACKEND
from distdoctor.oom.simulation.child.titan.interface import titan_for
from distdoctor.oom.simulation.child.titan.pipeline import layers_of_rank, split_of
from distdoctor.oom.simulation.child.titan.program import TitanProgram
from distdoctor.oom.simulation.child.titan.stand_ins import NOTES, stand_ins
from distdoctor.oom.simulation.roles import Role
from distdoctor.oom.simulation.torchtitan import TitanModel, why_not_titan
from distdoctor.oom.training import pipeline_parallel
from distdoctor.oom.training.base import CannotRunError, Observer, World

_LEFT_OUT = "no CUDA graphs: with them gradients stay through the forward pass"
# Clipping stacks one norm for each parameter: lists that grow with the number of layers, by 36 bytes each.
_TOLERANCE_BYTES = 4096


def simulate_torchtitan(
    model: TitanModel, job: Job, role: Role, *, fold: bool = True, capacities_bytes: Sequence[int] = ()
) -> RoleSimulation:
    """What this kind of rank needs. Raises CannotRunError where torchtitan is absent or other than expected, or does
    not do this job, and whatever torch and torchtitan raise."""
    if (reason := why_not_titan(job) or pipeline_parallel.why_not(job)) is not None:
        raise CannotRunError(reason)
    # Nothing is compiled for tensors that hold nothing.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    titan = titan_for(model)
    logging.disable(logging.INFO)
    notes = [f"torchtitan {titan.version}, sharded by {BACKEND}", *NOTES, _LEFT_OUT]
    if job.mesh.pp > 1:
        theirs = layers_of_rank(split_of(titan, job), job, role.stage)
        if theirs != role.chunks:
            shown = " and ".join(str(len(each)) for each in theirs)
            notes.append(f"TorchTitan puts {shown} layers on this stage")
        role = replace(role, chunks=theirs)
    counts: list[tuple[int, int]] = []

    def build(world: World, observer: Observer) -> TitanProgram:
        program = TitanProgram(titan, world, observer)
        built = sum(len(each) for each in world.chunks or ())
        counts.append((built, program.num_params))
        return program

    with stand_ins(titan):
        found = simulate_role(
            job,
            role,
            # One run of a stage's layers takes no longer than the two of a fold and the comparison.
            fold=fold and job.mesh.pp == 1,
            capacities_bytes=capacities_bytes,
            build=build,
            tolerance_bytes=_TOLERANCE_BYTES,
        )
    notes += _other_sizes(job, counts)
    return replace(found, notes=(*found.notes, *notes))


def _other_sizes(job: Job, counts: Sequence[tuple[int, int]]) -> list[str]:
    """Whether TorchTitan's model has as many parameters as the job's by formula; known without a pipeline only."""
    if job.mesh.pp > 1:
        return []
    by_layers = dict(counts)
    few, more = min(by_layers), max(by_layers)
    layers = job.known_shape.num_layers
    whole = by_layers[few]
    if more > few:
        whole += (layers - few) * (by_layers[more] - by_layers[few]) // (more - few)
    elif few != layers:
        return []
    if whole == job.num_params:
        return [f"its model has {whole:,} parameters, as many as by formula"]
    return [f"its model has {whole:,} parameters, by formula {job.num_params:,}"]
