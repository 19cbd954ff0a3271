"""Is somebody slow in every step, each time somebody else? Then the work differs from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.analysis.ranks.rotation import MIN_CORRELATION, MIN_EXCESS
from distdoctor.straggler.checks.base import Found, Outcome, Passed, StragglerCheck, not_seen
from distdoctor.straggler.checks.unjudged import why_not_judged
from distdoctor.straggler.words import percent

# The slowest of a step must be somebody else often enough: nobody may be it in more than this share of the steps,
# unless there are so few ranks that chance gives as much.
MAX_MOST_OFTEN = 0.5

# Jitter of machines is small against the work; work that differs makes single ranks' steps differ by this much.
MIN_NOISE = 0.08

# Noise that is small in most steps does not explain this many times what the slowest of so many ranks would have by it:
# then some steps are far longer, on another rank each time. Our own threshold.
MANY_TIMES = 3.0

# What each step loses is worth a warning from this share on, whatever does it. Our own threshold.
COSTLY = 0.20

# Steps below which nothing is said of what rotates.
MIN_STEPS = 20


def check_data_imbalance(facts: Analysed) -> Sequence[Outcome]:
    """A finding where the slowest rank rotates and is far above its peers."""
    if not facts.judged:
        reason, how = why_not_judged(facts)
        return [not_seen(reason, how=how)]
    return [_outcome(judged) for judged in facts.judged]


def _outcome(judged: Judged) -> Outcome:
    judgement = judged.judgement
    rotation = judgement.rotation
    if judgement.basis in (Basis.WALL_ONLY, Basis.WAIT_ONLY) or rotation is None:
        return not_seen("own times are not in the evidence")
    if judgement.num_steps < MIN_STEPS:
        return not_seen(f"{judged.units}: too few to see whether the slowest rank changes")
    if judgement.kinds is not None or judgement.pattern is not None:
        return not_seen(
            "ranks are of several kinds, so that the slowest one of a step may only be one of the slower kind"
        )
    if (
        rotation.excess < MIN_EXCESS
        or not _is_no_jitter(judged, rotation.excess)
        or rotation.most_often > MAX_MOST_OFTEN
        or rotation.num_different < 3
    ):
        return Passed(detail="no rotating slowness: " + _detail(judged))
    sure = rotation.correlation is not None and rotation.correlation >= MIN_CORRELATION
    witness = (
        f"forward and backward are long in the same steps of the same rank (rank correlation {rotation.correlation:.2f})"
        if rotation.correlation is not None
        else "forward and backward are not told apart, so that longer input is likely, not shown"
    )
    return Found(
        title=f"the slowest rank changes from step to step, {percent(rotation.excess)} above its peers"[:80],
        severity=Severity.WARNING if sure or rotation.excess >= COSTLY else Severity.INFO,
        confidence=Confidence.MEDIUM if sure else Confidence.LOW,
        evidence=(
            Evidence(
                text=f"{rotation.num_different} of {judged.timings.num_ranks} ranks were the slowest one in some "
                f"{judged.unit}, none in more than {percent(rotation.most_often)} of them",
                source=judged.source,
            ),
            Evidence(text=witness, source=judged.source),
            Evidence(
                text=f"own work of a rank differs by {percent(judgement.threshold.noise)} from step to step",
                source=judged.source,
            ),
        ),
        explanation="No machine is slow: each step another rank has the most work, and all others wait for it. Batches "
        "of different length (documents, images, experts chosen) do this"
        + (
            "."
            if sure
            else "; so do pauses that ranks make at different times (garbage collection, a shared file system)."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="balance the work of a step over ranks: pack sequences to equal length, bucket by length, or "
                "balance experts" + ("" if sure else "; let all ranks collect garbage in the same step"),
            ),
        ),
        cause_class="data_imbalance",
        fault=Fault.DATA if sure else Fault.UNKNOWN,
    )


def _is_no_jitter(judged: Judged, excess: float) -> bool:
    """Steps differ much, or those of the slowest rank far more than the usual noise explains."""
    noise = judged.judgement.threshold.noise
    expected = noise * NormalDist().inv_cdf(1 - 1 / (1 + max(judged.timings.num_ranks, 2)))
    return noise >= MIN_NOISE or excess >= MANY_TIMES * expected


def _detail(judged: Judged) -> str:
    rotation = judged.judgement.rotation
    if rotation is None:
        return "not measured"
    return (
        f"the slowest rank of a {judged.unit} is {percent(rotation.excess)} above its peers in the median, "
        f"{percent(rotation.most_often)} of them the same one"
    )


CHECK = StragglerCheck(
    id="straggler-data-imbalance",
    title="work that differs from step to step",
    run=check_data_imbalance,
)
