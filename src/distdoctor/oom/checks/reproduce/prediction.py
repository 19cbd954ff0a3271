"""Does what was measured agree with the formulas for the same settings?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.reproduce.base import TRACKER, ReproduceCheck, categories_words, who
from distdoctor.oom.facts.reproduced import Outcome, RankPart, Reproduced, ReproduceFacts
from distdoctor.report.assemble import clip_title
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Passed, Unread
from distdoctor.report.checking import Outcome as CheckOutcome
from distdoctor.report.model import Confidence, Evidence, Fault, Severity, SkipCause
from distdoctor.units import format_bytes

# Formulas are good to some 10 to 15 % on GPUs; kernels of the CPU keep other tensors. Our own thresholds.
OFF_ON_GPU = 0.2
OFF_ON_CPU = 0.3

# From here on all that a step needs has been there: optimizer states appear in the first one.
STEADY_STEPS = 2

FORMULAS = "the formulas of docs/oom.md"


def off_by(part: RankPart, combination: Reproduced) -> float | None:
    """(measured - predicted) / predicted of one rank's peak; None where one of them is not known."""
    role = combination.role_of(part.rank)
    if role is None or part.peak is None or combination.outcome is not Outcome.DONE:
        return None
    if part.steps_done < STEADY_STEPS or not role.peak.num_bytes:
        return None
    return part.peak.num_bytes / role.peak.num_bytes - 1


def _run(facts: ReproduceFacts) -> Sequence[CheckOutcome]:
    threshold = OFF_ON_GPU if facts.on_gpu else OFF_ON_CPU
    looked_at = [
        (combination, worst, off)
        for combination in facts.combinations
        if (worst := combination.worst) is not None and (off := off_by(worst, combination)) is not None
    ]
    if not looked_at:
        if facts.steps < STEADY_STEPS:
            return [NotApplicable(detail="one step: optimizer states are there in the second one only")]
        unread = Unread(cause=SkipCause.FAILED, reason="no strategy ran to its end")
        return [NotSeen(unread=unread)]
    found: list[CheckOutcome] = [
        _found(facts, combination, worst, off, threshold)
        for combination, worst, off in looked_at
        if abs(off) > threshold
    ]
    if found:
        return found
    most = max(abs(off) for _, _, off in looked_at)
    return [Passed(detail=f"within {100 * most:.0f} % of the formulas")]


def _found(
    facts: ReproduceFacts, combination: Reproduced, worst: RankPart, off: float, threshold: float
) -> Found:
    role = combination.role_of(worst.rank)
    predicted = role.peak.num_bytes if role is not None else 0.0
    measured = worst.peak.num_bytes if worst.peak is not None else 0
    parts = {each.category.value: round(each.num_bytes) for each in role.peak.amounts} if role else {}
    more = "more" if off > 0 else "less"
    why = (
        "Kernels of the CPU keep other tensors than those of CUDA, which the formulas count. "
        if not facts.on_gpu
        else "A version of torch that keeps other tensors, or a formula that is wrong for this combination. "
    )
    return Found(
        key=combination.name,
        title=clip_title(
            f"{combination.name}: {who(facts, (worst.rank,))} took {abs(100 * off):.0f} % {more} than predicted"
        ),
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"measured {format_bytes(measured)} at the peak: "
                f"{categories_words(worst.peak.by_category if worst.peak else {})}",
                value=measured,
                unit="B",
                expected=f"{format_bytes(predicted)}, give or take {100 * threshold:.0f} %",
                expected_source=FORMULAS,
                source=TRACKER,
            ),
            Evidence(text=f"predicted {format_bytes(predicted)}: {categories_words(parts)}", source=FORMULAS),
        ),
        explanation=f"{why}On a small model little things weigh much. Trust what was measured.",
        actions=(),
        fault=Fault.UNKNOWN,
    )


CHECK = ReproduceCheck(id="oom-prediction-off", title="what was measured beside the formulas", run=_run)
