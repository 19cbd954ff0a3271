"""The answer out of a closed list, and the verdict in words where no finding speaks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec.structs import replace

from distdoctor.report.assemble import MAX_TITLE, clip_title
from distdoctor.report.model import Confidence, Finding, Report, Severity, Status, Verdict
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.rotation import MIN_EXCESS
from distdoctor.straggler.checks.extremes import all_close
from distdoctor.straggler.checks.same_ranks import why_sets_clear_nobody
from distdoctor.straggler.checks.slow_rank import nobody_title, nobody_words
from distdoctor.straggler.checks.unjudged import why_not_judged, why_silence_says_nothing
from distdoctor.straggler.words import percent


class Answer(str, Enum):
    """All answers that there are; the first part of the verdict's cause class."""

    SLOW_RANK = "slow_rank"
    SLOW_HOST = "slow_host"
    SLOW_LINK = "slow_link"
    INTERMITTENT = "intermittent"
    RANK0_EXTRA_WORK = "rank0_extra_work"
    STAGE_IMBALANCE = "stage_imbalance"
    DATA_IMBALANCE = "data_imbalance"
    DATA_BOUND = "data_bound"
    JOB_WIDE = "job_wide"
    STALLS = "stalls"
    PERIODIC = "periodic"
    GPU_UNLIKE_PEERS = "gpu_unlike_peers"
    NONE = "none"
    INCONCLUSIVE = "inconclusive"


_OF_CHECK = {
    "straggler-slow-rank": Answer.SLOW_RANK,
    "straggler-slow-host": Answer.SLOW_HOST,
    "straggler-slow-link": Answer.SLOW_LINK,
    "straggler-intermittent": Answer.INTERMITTENT,
    "straggler-rank0-work": Answer.RANK0_EXTRA_WORK,
    "straggler-stage-imbalance": Answer.STAGE_IMBALANCE,
    "straggler-data-imbalance": Answer.DATA_IMBALANCE,
    "straggler-data-bound": Answer.DATA_BOUND,
    "straggler-extremes": Answer.SLOW_RANK,
    "straggler-regime": Answer.JOB_WIDE,
    "straggler-stall": Answer.STALLS,
    "straggler-periodic": Answer.PERIODIC,
    "straggler-telemetry": Answer.GPU_UNLIKE_PEERS,
}


def straggler_verdict(report: Report, facts: Analysed) -> Verdict:
    """The report's verdict with its answer; where nothing is a warning, what was looked at and what it shows."""
    verdict = report.verdict
    serious = [
        each for each in report.findings if each.ignored is None and each.severity is not Severity.INFO
    ]
    if serious:
        worst = serious[0]
        answer = _OF_CHECK.get(worst.id)
        cause = worst.cause_class or (answer.value if answer is not None else None)
        return replace(verdict, cause_class=cause, summary=_with_seen(verdict.summary, facts))
    if verdict.status is Status.UNKNOWN or inconclusive_reason(facts) is not None:
        return _inconclusive(report, facts)
    return _none(report, facts)


def inconclusive_reason(facts: Analysed) -> tuple[str, str | None] | None:
    """Why nobody can be named and nobody ruled out; None when somebody is, by at least one set of times."""
    if not facts.judged:
        return None if all_close(facts.reading.extremes) is not None else why_not_judged(facts)
    if any(each.judgement.accused or each.judgement.hosts for each in facts.judged):
        return None
    unequal = why_sets_clear_nobody(facts.judged)
    if unequal is not None:
        return unequal
    reasons = [why_silence_says_nothing(each) for each in facts.judged]
    return None if any(reason is None for reason in reasons) else reasons[0]


def _inconclusive(report: Report, facts: Analysed) -> Verdict:
    reason, how = inconclusive_reason(facts) or ("the evidence does not decide", None)
    notes = [each for each in report.findings if each.ignored is None]
    shown = f" {notes[0].title[:1].upper()}{notes[0].title[1:]}." if notes and _tells(notes[0]) else ""
    remedy = f" What would decide: {how}." if how else ""
    shown += _arrivals(facts)
    verdict = Verdict(
        status=Status.UNKNOWN,
        title=clip_title(f"inconclusive: {reason}"),
        summary=f"Nobody is named and nobody is ruled out: {reason}.{shown}{remedy}",
        confidence=Confidence.HIGH,
        cause_class=Answer.INCONCLUSIVE.value,
    )
    return _of_one_log(verdict, report, facts)


def _of_one_log(verdict: Verdict, report: Report, facts: Analysed) -> Verdict:
    """Where one rank prints for all the title is what its log shows; who is slow stays open, so the status does too."""
    if facts.judged or not facts.series:
        return verdict
    told = [each for each in report.findings if each.ignored is None and each.id in _OF_SERIES]
    if told:
        first = min(told, key=lambda each: _OF_SERIES.index(each.id))
        return replace(verdict, title=first.title, cause_class=first.cause_class, confidence=first.confidence)
    few = all(each.shape.too_few for each in facts.series)
    seen = "too few values to see a change" if few else "no change of speed seen"
    return replace(verdict, title=f"inconclusive: {seen}; one rank's log names nobody")


_OF_SERIES = ("straggler-regime", "straggler-periodic", "straggler-stall")
"""Checks of one log, what matters most first."""


def _arrivals(facts: Analysed) -> str:
    """ " Rank 7 came last to 5 of 8 collectives, rank 5 to 2, rank 4 to 1." """
    for each in facts.collectives:
        counts = [
            (int(num), rank) for num, rank in zip(each.arrivals.num_last, each.arrivals.ranks, strict=True)
        ]
        latest = sorted((pair for pair in counts if pair[0]), key=lambda pair: (-pair[0], pair[1]))[:3]
        if latest and len(each.arrivals.ranks) > 1:
            first, *others = latest
            text = f" Rank {first[1]} came last to {first[0]} of {each.arrivals.num_collectives} collectives"
            return text + "".join(f", rank {rank} to {num}" for num, rank in others) + "."
    return ""


def _tells(finding: Finding) -> bool:
    return finding.id != "straggler-evidence"


def _none(report: Report, facts: Analysed) -> Verdict:
    judged = [each for each in facts.judged if why_silence_says_nothing(each) is None]
    if not judged:
        return _none_by_extremes(report, facts)
    words = nobody_words(judged[0])
    title = f"no straggler: {nobody_title(judged[0])}"
    notes = [each for each in report.findings if each.ignored is None and _tells(each)]
    also = f" {len(notes)} note{'s' if len(notes) > 1 else ''} below." if notes else ""
    return replace(
        report.verdict,
        title=title[:MAX_TITLE],
        summary=f"{words[:1].upper()}{words[1:]}. Smaller differences, and ranks that are not here, would not show."
        f"{_rotating(judged[0])}{_waiting(judged)}{also}",
        confidence=Confidence.MEDIUM,
        cause_class=Answer.NONE.value,
    )


def _none_by_extremes(report: Report, facts: Analysed) -> Verdict:
    apart = all_close(facts.reading.extremes) or 0.0
    return replace(
        report.verdict,
        title=f"no straggler: the least and the most of all ranks are {percent(apart)} apart",
        summary=f"The fastest and the slowest rank are {percent(apart)} apart in what their timers show. Work outside of "
        "these timers, and what changes between reports, would not show.",
        confidence=Confidence.MEDIUM,
        cause_class=Answer.NONE.value,
    )


def _rotating(judged: Judged) -> str:
    """What the slowest rank of each step costs all, when it is worth a look though it is somebody else each time."""
    rotation = judged.judgement.rotation
    if rotation is None or rotation.excess < MIN_EXCESS:
        return ""
    return f" The slowest rank of a {judged.unit}, not always the same, is {percent(rotation.excess)} above its peers."


def _waiting(judged: Sequence[Judged]) -> str:
    """How much of a step ranks wait, when it is worth a look."""
    judgement = judged[0].judgement
    if judgement.wait_ms is None or not judgement.step_ms or judgement.wait_is_derived:
        return ""
    known = judgement.wait_ms[judgement.wait_ms == judgement.wait_ms]
    if not len(known):
        return ""
    share = float(sorted(known)[len(known) // 2]) / judgement.step_ms
    return f" The median rank spends {percent(share)} of a step in collectives."


def _with_seen(summary: str, facts: Analysed) -> str:
    """A warning from one part of the evidence does not mean that ranks could be judged."""
    reason = inconclusive_reason(facts)
    if reason is None:
        return summary
    return f"{summary} Which rank is slow cannot be told: {reason[0]}."
