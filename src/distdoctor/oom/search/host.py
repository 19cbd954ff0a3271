"""How much memory of its host one rank would need: offloaded states, and activations that wait there."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.estimate import Category, Estimate, RoleEstimate
from distdoctor.oom.job import Job
from distdoctor.units import GIB

# Hosts of 8 GPUs have 2 to 4 TiB at most; what asks for more is no proposal. Our own bound.
MAX_HOST_BYTES = 512 * GIB


def host_bytes(job: Job, made: Estimate) -> float:
    """Bytes of host memory for the rank that needs most of the GPU."""
    return made.worst.host_bytes + _moved_activations(job, made)


def _moved_activations(job: Job, made: Estimate) -> float:
    """What would lie on the GPU if activations were not offloaded."""
    if not job.said.offload_activations:
        return 0.0
    stays = estimate(replace(job, said=replace(job.said, offload_activations=False)))
    return _kept(stays.worst) - _kept(made.worst)


def _kept(role: RoleEstimate) -> float:
    return max(moment.of(Category.ACTIVATIONS) for moment in role.moments)
