"""Which pages of docs/strategies explain a job, for people who run clusters and did not write the model."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Category, Estimate
from distdoctor.oom.job import Job
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload
from distdoctor.oom.strategies import (
    activation_checkpointing,
    context_parallel,
    expert_parallel,
    pipeline_parallel,
    tensor_parallel,
)
from distdoctor.oom.strategies.all import strategy_of

FOLDER = "docs/strategies"

# From this share of the peak on the loss has its page. Our own choice, as in the check of it.
_LARGE_SHARE = 0.25


def pages_of(job: Job, estimate: Estimate) -> tuple[str, ...]:
    """Names of pages, the strategy's first; one for each dimension that is used and each thing that weighs."""
    mesh = job.mesh
    pages = [_strategy_page(job)]
    pages += [
        page
        for page, is_used in (
            (tensor_parallel.PAGE, mesh.tp > 1),
            (pipeline_parallel.PAGE, mesh.pp > 1),
            (context_parallel.PAGE, mesh.cp > 1),
            (expert_parallel.PAGE, mesh.ep > 1),
            ("combinations", sum(size > 1 for size in (mesh.dp, mesh.tp, mesh.pp, mesh.cp)) > 1),
            ("device-mesh", mesh.num_ranks > 1),
            (activation_checkpointing.PAGE, job.checkpointing is not Checkpointing.NONE),
            ("offload", job.offload_optimizer is not Offload.NONE),
            ("logits", _weighs(estimate, Category.LOGITS)),
        )
        if is_used
    ]
    return tuple(f"{FOLDER}/{page}.md" for page in pages)


def _strategy_page(job: Job) -> str:
    is_hybrid = job.strategy is DataParallel.FSDP and job.mesh.dp_replicate > 1 and job.mesh.dp_shard > 1
    return "hsdp" if is_hybrid else strategy_of(job.strategy).page


def _weighs(estimate: Estimate, category: Category) -> bool:
    peak = estimate.worst.peak
    return peak.of(category) >= _LARGE_SHARE * peak.num_bytes
