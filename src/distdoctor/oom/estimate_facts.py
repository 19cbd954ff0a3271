"""An estimate as flat facts, for `compare`: what was estimated, and what it came to."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.oom.job import Job
from distdoctor.report.differences import RESULTS, Relevance
from distdoctor.report.model import Fact, Scalar, Severity
from distdoctor.units import GIB

_SOURCE = "oom estimate"

# (end of the key, weight, words): larger is told first.
_TOLD = (
    ("estimate.needed_gib", 60, "what the worst rank's GPU must hold"),
    ("simulated.peak_gib", 59, "what the worst rank allocates, simulated"),
    ("estimate.peak_gib", 55, "the worst rank's allocated peak"),
    ("job.", 50, "the jobs are not the same"),
    ("simulated.", 45, "what the worst rank allocates and reserves, simulated"),
    ("estimate.", 40, "where the memory goes"),
)


def job_values(job: Job) -> dict[str, Scalar]:
    """What two jobs may differ in, by key."""
    return {
        "job.model": job.model.name,
        "job.parameters": job.num_params,
        "job.mesh": job.mesh.words(),
        "job.strategy": job.strategy.value,
        "job.precision": job.precision.value,
        "job.optimizer": f"{job.optimizer.value}, {job.optimizer_loop.value}",
        "job.micro_batch": job.micro_batch,
        "job.micro_batches": job.num_micro_batches,
        "job.seq_len": job.seq_len,
        "job.checkpointing": job.checkpointing.value,
        "job.fused_loss": job.fused_loss,
    }


def estimate_facts(facts: EstimateFacts) -> tuple[Fact, ...]:
    """The job as it was understood, and the estimate's figures."""
    peak = facts.estimate.worst.peak
    low, high = facts.estimate.need_bytes
    values = job_values(facts.job) | {
        "estimate.needed_gib": f"{low / GIB:.1f} to {high / GIB:.1f}",
        "estimate.peak_gib": round(peak.num_bytes / GIB, 1),
        "estimate.peak_at": f"step {peak.step}, {peak.moment.value}",
        "estimate.worst_rank": facts.estimate.worst.role,
    }
    values |= {
        f"estimate.{category.name.lower()}_gib": round(peak.of(category) / GIB, 2) for category in Category
    }
    return tuple(Fact(key=f"oom.{key}", value=value, source=_SOURCE) for key, value in values.items())


def estimate_relevance(key: str) -> Relevance | None:
    """How much a difference between two estimates matters; None for facts of other commands."""
    if not key.startswith("oom."):
        return None
    weight, words = next((weight, words) for start, weight, words in _TOLD if key.startswith(f"oom.{start}"))
    return Relevance(
        weight=weight,
        severity=Severity.INFO,
        consequence=words,
        topic=RESULTS,
        label=key.removeprefix("oom."),
    )
