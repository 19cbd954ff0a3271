"""The matrix as the checks of hosts and links see it: what it can tell, and the words they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.analysis.late import late_us
from distdoctor.nccl_bench.analysis.matrix_cells import SLOW_RATIO
from distdoctor.nccl_bench.analysis.matrix_score import Kind, MatrixScore, State, Suspect, score_matrix
from distdoctor.nccl_bench.checks.base import NotApplicable, NotSeen, Outcome, Passed, not_seen
from distdoctor.nccl_bench.checks.ports import busier
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.matrix import Matrix
from distdoctor.report.model import Confidence, Evidence, Severity
from distdoctor.units import format_bytes

# A third of the others' speed: every collective across that host takes three times as long. Our own threshold.
CRITICAL_RATIO = 1 / 3

HOW = "distdoctor nccl-bench --matrix all --time-limit 300"
THRESHOLD = "our own threshold: {part} of what comparable pairs of this run reach, by how steady they are"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A matrix that can be judged."""

    matrix: Matrix
    score: MatrixScore
    suspects: tuple[Suspect, ...]
    """Of the kinds asked for, that may be named."""
    waiting: int
    """Of those kinds, that look slow and were not measured again."""


def view_of(facts: BenchFacts, kinds: Sequence[Kind]) -> View | Outcome:
    """The matrix with its suspects of some kinds, or why it cannot be judged.

    In a run of our own only confirmed suspects are named. A matrix from elsewhere may have no second pass; its
    suspects are leads.
    """
    matrix = facts.matrix
    ranks = {place.rank for place in facts.places} or set(range(facts.num_ranks or 0))
    if len(ranks) == 1:
        return NotApplicable(detail="one rank has no pair")
    if matrix is None or not matrix.pairs:
        return not_seen(facts, "pairs of ranks were not measured", how=HOW)
    if facts.shares_gpus:
        return not_seen(
            facts, "GPUs are shared by several ranks or with another job: times of pairs say nothing of links"
        )
    if not facts.places:
        return not_seen(facts, "which rank is on which host is not known: pairs cannot be compared")
    score = score_matrix(matrix, facts.places, late_us=late_us(facts))
    of_kinds = [each for each in score.suspects if each.kind in kinds]
    named = (State.CONFIRMED,) if facts.is_live else (State.CONFIRMED, State.OPEN)
    suspects = tuple(each for each in of_kinds if each.state in named)
    waiting = sum(each.state is State.OPEN for each in of_kinds) if facts.is_live else 0
    return View(matrix=matrix, score=score, suspects=suspects, waiting=waiting)


def rest_of(facts: BenchFacts, view: View, passed: Passed) -> list[Outcome]:
    """What is said beside findings: pairs that nobody looked at again, pairs that are missing, or all is well."""
    outcomes: list[Outcome] = []
    if view.waiting:
        reason = "some pairs look slow, but there was no time to measure them again beside others"
        outcomes.append(not_seen(facts, reason, how=HOW))
    elif not view.suspects:
        outcomes.append(passed)
    if not view.matrix.complete:
        outcomes.append(not_seen(facts, "the time ended before all pairs were measured", how=HOW))
    return outcomes


def confidence_of(facts: BenchFacts, suspect: Suspect) -> Confidence:
    """High only for what was confirmed, between hosts, on hosts that were not busier than others."""
    if suspect.state is not State.CONFIRMED:
        return Confidence.LOW
    few_alike = suspect.candidate.is_inside and len({place.host for place in facts.places}) < 3
    if few_alike or suspect.candidate.only_two_hosts or busier(facts, suspect.hosts):
        return Confidence.MEDIUM
    return Confidence.HIGH


def severity_of(facts: BenchFacts, suspect: Suspect) -> Severity:
    """Critical from a third of the others' speed down, when confirmed; inside a host only where others are alike."""
    sure = suspect.state is State.CONFIRMED
    if suspect.candidate.is_inside:
        sure = confidence_of(facts, suspect) is Confidence.HIGH
    return Severity.CRITICAL if sure and suspect.ratio < CRITICAL_RATIO else Severity.WARNING


def speed_evidence(view: View, suspect: Suspect, who: str, others: str) -> Evidence:
    """What its pairs reach beside what the others reach."""
    one = suspect.candidate
    part = min(view.score.slow_ratio, SLOW_RATIO) if one.is_inside else view.score.slow_ratio
    return Evidence(
        text=(
            f"{who}: {speed(one.gbps)}, median of {len(one.pairs)} pair{'s' if len(one.pairs) > 1 else ''}; "
            f"{others}: {speed(one.others_gbps)}"
        ),
        value=round(one.gbps, 4),
        unit="GB/s",
        expected=f"at least {speed(one.others_gbps * part)}",
        expected_source=THRESHOLD.format(part=percent(part)),
        source=f"point-to-point matrix, {format_bytes(view.matrix.size_bytes)}, best of the repeats of each pair",
    )


def confirmation_evidence(view: View, suspect: Suspect) -> tuple[Evidence, ...]:
    """What the second pass showed."""
    if suspect.margin is None:
        return ()
    return (
        Evidence(
            text=(
                f"measured again in turn with {suspect.num_controls} control "
                f"pair{'s' if suspect.num_controls != 1 else ''}: the best time is {suspect.margin:.1f} times the "
                "controls' median"
            ),
            value=round(suspect.margin, 2),
            unit="x",
            expected=f"below {1 / view.score.slow_ratio:.3g}, or among the controls' times",
            expected_source="our own threshold",
            source="confirmation round",
        ),
    )


def score_evidence(view: View, hosts: Sequence[str]) -> tuple[Evidence, ...]:
    """Scores of the hosts at fault and the range of all others'."""
    names = set(hosts)
    lines = []
    others = [
        value
        for each in view.score.scores
        if each.name not in names
        for value in (each.egress, each.ingress)
        if value is not None
    ]
    for each in view.score.scores:
        if each.name in names and (each.egress is not None or each.ingress is not None):
            both = [
                f"{way} {value:.2f}"
                for way, value in (("sends", each.egress), ("receives", each.ingress))
                if value is not None
            ]
            lines.append(f"{each.name} {', '.join(both)}")
    if not lines or not others:
        return ()
    listed = "; ".join(lines[:4]) + (" …" if len(lines) > 4 else "")
    text = f"speed over the median of all pairs elsewhere: {listed}; others {min(others):.2f} to {max(others):.2f}"
    return (Evidence(text=text, source="point-to-point matrix"),)


def busy_evidence(facts: BenchFacts, hosts: Sequence[str]) -> tuple[Evidence, ...]:
    """Load on the hosts at fault that the others do not have."""
    return tuple(
        Evidence(text=f"{line}, and not every other host was busy: load may be the cause", source="/proc")
        for line in busier(facts, hosts)[:2]
    )


def speed(gbps: float) -> str:
    """GB/s with three significant digits."""
    return f"{gbps:.3g} GB/s"


def percent(ratio: float) -> str:
    """Of 0.243: "24 %"; below one per cent with a digit."""
    return f"{ratio * 100:.0f} %" if ratio >= 0.01 else f"{ratio * 100:.1f} %"


def judged(view: View) -> str:
    """How much was compared, for a check that passes."""
    score = view.score
    parts = []
    if score.num_between:
        parts.append(f"{score.num_between} pairs between {score.num_hosts} hosts")
    if score.num_inside:
        parts.append(f"{score.num_inside} pairs inside hosts")
    cleared = score.was_confirmed and not score.confirmed
    again = "; what looked slow at first was not when measured again" if cleared else ""
    return f"{' and '.join(parts)} compared{again}"


def nothing_to_compare(facts: BenchFacts, view: View) -> NotSeen | None:
    """For matrices in which no pair has its like: their ranks' hosts are not known."""
    if view.score.num_between or view.score.num_inside:
        return None
    return not_seen(facts, "which rank is on which host is not known: pairs cannot be compared")
