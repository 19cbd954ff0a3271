"""Is the loss the peak? With a large vocabulary it often is, and it is cheap to avoid."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.estimate.base import SOURCE, EstimateCheck, gib
from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.report.checking import Found, NotApplicable, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# From this share of the peak on it is worth a line. Our own choice.
LARGE_SHARE = 0.25


def _run(facts: EstimateFacts) -> Sequence[Outcome]:
    if not facts.estimate.is_whole:
        return [NotApplicable(detail="nothing is known of the model's vocabulary")]
    peak = facts.estimate.worst.peak
    share = peak.of(Category.LOGITS) / peak.num_bytes
    if share < LARGE_SHARE:
        return [Passed(detail=f"logits and loss are {share:.0%} of the peak")]
    size = gib(peak.of(Category.LOGITS))
    shape = facts.job.shape
    words = f"{shape.vocab_size:,} words" if shape is not None else "the vocabulary"
    return [
        Found(
            title=f"the loss is {share:.0%} of the peak: {size} for logits and their gradients",
            evidence=tuple(
                Evidence(
                    text=f"{each.how}; {gib(peak.num_bytes)} are allocated at the peak",
                    value=round(each.num_bytes),
                    unit="B",
                    source=SOURCE,
                )
                for each in peak.amounts
                if each.category is Category.LOGITS
            ),
            explanation=f"Logits have a number for each of {words} and each token, several times over in fp32.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="use a chunked or fused cross entropy (Liger, cut cross entropy, TorchTitan's chunked loss)"
                    + (
                        ", or loss parallelism"
                        if facts.job.mesh.tp > 1 and not facts.job.loss_parallel
                        else ""
                    ),
                ),
            ),
            severity=Severity.INFO,
            confidence=Confidence.MEDIUM,
            cause_class="capacity:logits",
            fault=Fault.USER_CODE,
        )
    ]


CHECK = EstimateCheck(id="oom-estimate-logits", title="share of logits and loss", run=_run)
