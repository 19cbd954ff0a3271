"""Expert parallelism: experts are spread over ranks, and tokens travel to them; a crowded expert fills its rank."""

from __future__ import annotations

from distdoctor.oom.formulas.layer import routed_saved
from distdoctor.oom.job import Job
from distdoctor.oom.shape import MixtureOfExperts, ModelShape

PAGE = "expert-parallel"


def routed_tokens(moe: MixtureOfExperts, job: Job) -> float:
    """Tokens that arrive at this rank's experts in one layer: top-k copies of its own share of tokens when the
    router is balanced, `expert_imbalance` times as many on the busiest rank. Ranks that cut an expert's width all see
    each other's tokens."""
    share = job.mesh.tp / job.expert_width_ranks if job.sequence_parallel else 1
    crowding = job.expert_imbalance if job.mesh.ep > 1 else 1.0
    return job.tokens * moe.experts_per_token * crowding / share


def kept_bytes(shape: ModelShape, moe: MixtureOfExperts, job: Job) -> float:
    """Bytes that routed experts of one layer keep until their backward pass."""
    each = routed_saved(shape, moe, element=job.compute_bytes, width_ranks=job.expert_width_ranks)
    return routed_tokens(moe, job) * each


def exchange_bytes(shape: ModelShape, moe: MixtureOfExperts, job: Job) -> float:
    """Bytes of tokens on their way to experts and back: one buffer to send and one to receive each way."""
    copies = 4 if job.mesh.ep > 1 else 2
    return copies * routed_tokens(moe, job) * shape.hidden_size * job.compute_bytes
