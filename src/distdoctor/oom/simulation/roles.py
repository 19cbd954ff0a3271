"""Which ranks differ? One rank stands for all that do the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

from distdoctor.oom.estimate import estimate
from distdoctor.oom.formulas.pipeline import layers_of_stages, rank_of_stage
from distdoctor.oom.job import Job
from distdoctor.oom.local import local_models
from distdoctor.oom.strategies.pipeline_parallel import role_words

# Up to so many stages all are simulated.
_FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One kind of rank: a pipeline stage. The first rank along every other dimension stands for it, for shards are
    padded at the end, so that the first one is never smaller than another."""

    words: str
    stage: int
    rank: int
    num_ranks: int
    chunks: tuple[tuple[int, ...], ...]
    """Layers of each of its virtual stages."""


def roles_of(job: Job, *, all_stages: bool = False) -> tuple[Role, ...]:
    """The kinds of ranks to simulate: of a pipeline the first stage, the last, and of those between the one that needs
    most by the estimate; `all_stages`: every one."""
    mesh = job.mesh
    per_stage = mesh.num_ranks // mesh.pp
    num_stages = mesh.pp * job.virtual_stages
    layers = layers_of_stages(job.known_shape.num_layers, num_stages)
    roles = []
    for local in local_models(job):
        mine = [
            stage for stage in range(num_stages) if rank_of_stage(stage, mesh.pp, job.schedule) == local.stage
        ]
        roles.append(
            Role(
                words=role_words(local, job),
                stage=local.stage,
                rank=local.stage * per_stage,
                num_ranks=per_stage,
                chunks=tuple(tuple(layers[stage]) for stage in mine),
            )
        )
    if all_stages or len(roles) <= _FEW:
        return tuple(roles)
    between = _largest_between(job)
    chosen = replace(
        roles[between],
        words=f"pipeline stages 1 to {mesh.pp - 2} of {mesh.pp} (stage {between} simulated)",
        num_ranks=per_stage * (mesh.pp - 2),
    )
    return (roles[0], chosen, roles[-1])


def _largest_between(job: Job) -> int:
    """The stage between the first and the last that needs most."""
    between = estimate(job).roles[1:-1]
    return max(between, key=lambda role: role.peak.num_bytes).stage
