"""What every check of NCCL's log needs: the log, or why there is none."""

from __future__ import annotations

from distdoctor.nccl_bench.checks.base import NotApplicable, NotSeen, not_seen
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import NcclLog
from distdoctor.report.model import Confidence, Evidence

# The subsystems that print what the checks of the log read (NCCL user guide, NCCL_DEBUG_SUBSYS).
HOW = (
    "run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV,TUNING "
    "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log and give the files"
)

_RANKING = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)


def log_or_reason(facts: BenchFacts) -> NcclLog | NotApplicable | NotSeen:
    """The log; not applicable where NCCL does not run; not seen where it wrote nothing that we have."""
    if facts.nccl_log is not None:
        return facts.nccl_log
    if facts.backend is not None and facts.backend not in ("nccl", "rccl"):
        return NotApplicable(detail=f"the backend is {facts.backend}, not NCCL")
    return not_seen(facts, "no log of NCCL", how=HOW)


def unsaid(facts: BenchFacts, what: str) -> NotSeen:
    """The log does not hold what decides."""
    return not_seen(facts, f"the log of NCCL does not say {what}", how=HOW)


def least(*confidences: Confidence) -> Confidence:
    """The lowest of several."""
    return min(confidences, key=_RANKING.index)


def override_evidence(log: NcclLog, *names: str) -> tuple[Evidence, ...]:
    """One line for each of the settings that the environment makes."""
    return tuple(
        Evidence(
            text=f"{each.name} is set to {each.value}", value=each.value, source=each.where or log.origin
        )
        for each in log.overrides
        if each.name in names
    )
