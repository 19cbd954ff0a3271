"""Is it slower than it was?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from distdoctor.nccl_bench.analysis.baseline import Change, Pair, pairs_of, why_not_comparable
from distdoctor.nccl_bench.analysis.curves import source_of
from distdoctor.nccl_bench.analysis.machine import hosts_of_group
from distdoctor.nccl_bench.checks.base import (
    BenchCheck,
    Found,
    NotApplicable,
    NotSeen,
    Outcome,
    Passed,
    not_seen,
)
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import GroupKind
from distdoctor.report.checking import Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, SkipCause, Team
from distdoctor.units import format_bytes

# Less than half of the old bandwidth makes a job very slow. Our own threshold.
CRITICAL_BELOW = 0.5

MAX_NAMED = 6

HOW_BASELINE = "give the report of a run on the same hosts: --baseline FILE"


def check_regression(facts: BenchFacts) -> Sequence[Outcome]:
    """Each collective of each group against the baseline: largest size, or two neighbouring sizes."""
    baseline = facts.baseline
    if baseline is None:
        return [NotApplicable(detail="no baseline was given (--baseline FILE)")]
    if not facts.rows or not baseline.rows:
        which = "this run" if not facts.rows else f"the baseline `{baseline.label}`"
        return [not_seen(facts, f"{which} has no rows")]
    why = why_not_comparable(facts, baseline)
    if why is not None:
        return [not_seen(facts, f"the baseline `{baseline.label}` is of {why}", how=HOW_BASELINE)]
    pairs = pairs_of(facts, baseline)
    if not pairs:
        return [not_seen(facts, f"no row of the baseline `{baseline.label}` matches", how=HOW_BASELINE)]
    outcomes: list[Outcome] = []
    for members in _sets(pairs):
        outcomes += _outcomes(facts, baseline, members)
    return outcomes


def _sets(pairs: Sequence[Pair]) -> list[list[list[Pair]]]:
    """Curves of pairs by size, those of one set of groups together."""
    curves: dict[tuple[object, ...], list[Pair]] = {}
    for pair in pairs:
        row = pair.row
        key = (row.collective, row.group.kind, row.group.label, row.style, row.concurrent, row.in_place)
        curves.setdefault(key, []).append(pair)
    sets: dict[tuple[object, ...], list[list[Pair]]] = {}
    for curve in curves.values():
        row = curve[0].row
        of_set = (row.collective, row.group.set_label or row.group.label, row.concurrent)
        sets.setdefault(of_set, []).append(sorted(curve, key=lambda pair: pair.row.size_bytes))
    return list(sets.values())


def _outcomes(facts: BenchFacts, baseline: BenchFacts, curves: list[list[Pair]]) -> list[Outcome]:
    slower = [curve for curve in curves if _changed(curve, Change.SLOWER)]
    faster = [curve for curve in curves if _changed(curve, Change.FASTER)]
    unclear = [pair for curve in curves for pair in curve if pair.change is Change.UNCLEAR]
    outcomes: list[Outcome] = []
    if slower:
        outcomes.append(_slower(facts, baseline, slower, len(curves)))
    elif faster:
        outcomes.append(_faster(facts, baseline, faster))
    if unclear:
        outcomes.append(_unclear(unclear, sum(len(curve) for curve in curves)))
    if not slower and not faster and (same := _same(curves)) is not None:
        outcomes.append(same)
    return outcomes


def _changed(curve: list[Pair], change: Change) -> bool:
    """The largest size, or two neighbouring ones: one odd cell in the middle is no regression."""
    marks = [pair.change is change for pair in curve]
    return marks[-1] or any(one and other for one, other in pairwise(marks))


def _label(pair: Pair) -> str:
    group = pair.row.group
    return (
        pair.row.collective
        if group.kind in (GroupKind.JOB, GroupKind.TABLE)
        else f"{pair.row.collective} in {group.label}"
    )


def _evidence(facts: BenchFacts, baseline: BenchFacts, pair: Pair) -> Evidence:
    size = format_bytes(pair.row.size_bytes)
    now, then = pair.row.busbw_gbps, pair.before.busbw_gbps
    words = (
        f"{now:.4g} GB/s, {then:.4g} in the baseline"
        if now is not None and then is not None
        else f"{pair.row.time_us:.4g} µs, {pair.before.time_us:.4g} in the baseline"
    )
    repeats = (
        "their repeats do not overlap"
        if pair.both_repeated
        else "without repeats on both sides, so that only a large change counts"
    )
    return Evidence(
        text=f"{_label(pair)} at {size}: {words} ({pair.ratio - 1:+.0%}); {repeats}",
        value=round(now, 3) if now is not None else round(pair.row.time_us, 1),
        unit="GB/s" if now is not None else "µs",
        expected=f"{then:.4g} GB/s" if then is not None else f"{pair.before.time_us:.4g} µs",
        expected_source=source_of(baseline.label, pair.before),
        source=source_of(facts.label, pair.row),
    )


def _slower(facts: BenchFacts, baseline: BenchFacts, curves: list[list[Pair]], num_curves: int) -> Found:
    pairs = [pair for curve in curves for pair in curve if pair.change is Change.SLOWER]
    worst = min(pairs, key=lambda pair: pair.ratio)
    sure = all(pair.both_repeated for pair in pairs)
    groups = tuple(dict.fromkeys(_label(curve[0]) for curve in curves))
    return Found(
        key=f"{worst.row.collective}:{worst.row.group.kind.value}",
        title=f"{worst.row.collective} is {1 - worst.ratio:.0%} slower than in the baseline",
        severity=Severity.CRITICAL if sure and worst.ratio < CRITICAL_BELOW else Severity.WARNING,
        confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
        evidence=(
            *(
                _evidence(facts, baseline, pair)
                for pair in sorted(pairs, key=lambda pair: pair.ratio)[:MAX_NAMED]
            ),
            *([Evidence(text=f"slower groups: {', '.join(groups[:MAX_NAMED])}")] if num_curves > 1 else []),
            *_versions(facts, baseline),
        ),
        explanation=(
            "The same collective between as many ranks took less time in the run that it is compared with. Repeats "
            "of both runs were compared, not only their means, and rows that were not steady were left out."
            if sure
            else "The same collective between as many ranks took less time in the run that it is compared with. One "
            "side has a single measurement, so that this is to be repeated before anybody acts on it."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Compare the hosts' set-up with that of the time of the baseline: drivers, NCCL, links, settings",
                command="distdoctor compare OLD.json NEW.json",
            ),
        ),
        scope=Scope(hosts=_hosts(facts, curves) if len(curves) < num_curves else ()),
        cause_class="network:regression",
        fault=Fault.UNKNOWN,
    )


def _faster(facts: BenchFacts, baseline: BenchFacts, curves: list[list[Pair]]) -> Found:
    pairs = [pair for curve in curves for pair in curve if pair.change is Change.FASTER]
    best = max(pairs, key=lambda pair: pair.ratio)
    return Found(
        key=f"faster:{best.row.collective}:{best.row.group.kind.value}",
        title=f"{best.row.collective} is {best.ratio - 1:.0%} faster than in the baseline",
        severity=Severity.INFO,
        confidence=Confidence.HIGH if all(pair.both_repeated for pair in pairs) else Confidence.MEDIUM,
        evidence=(
            *(
                _evidence(facts, baseline, pair)
                for pair in sorted(pairs, key=lambda pair: -pair.ratio)[:MAX_NAMED]
            ),
            *_versions(facts, baseline),
        ),
        explanation="Keep this run as the new baseline, or later losses up to this difference go unnoticed.",
        actions=(Action(team=Team.JOB_OWNER, text="Keep this run's report as the new baseline"),),
        cause_class=None,
    )


def _versions(facts: BenchFacts, baseline: BenchFacts) -> tuple[Evidence, ...]:
    """Software that changed between the runs: the first thing to look at."""
    changed = [
        f"{name} {then} then, {now} now"
        for name in ("nccl", "torch", "cuda", "driver")
        if (now := getattr(facts.versions, name))
        and (then := getattr(baseline.versions, name))
        and now != then
    ]
    return (Evidence(text=f"changed since: {'; '.join(changed)}"),) if changed else ()


def _hosts(facts: BenchFacts, curves: list[list[Pair]]) -> tuple[str, ...]:
    named: list[str] = []
    for curve in curves:
        hosts = hosts_of_group(facts, curve[0].row.group)
        if hosts is not None and len(hosts) == 1:
            named.append(hosts[0])
    return tuple(dict.fromkeys(named))


def _unclear(pairs: list[Pair], num_pairs: int) -> NotSeen:
    first = pairs[0]
    reason = (
        f"inconclusive for {len(pairs)} of {num_pairs} rows of {first.row.collective}; "
        f"{_label(first)} at {format_bytes(first.row.size_bytes)}: {first.why_unclear}"
    )
    unread = Unread(cause=SkipCause.NOISY, reason=reason, how="repeat on idle hosts, with --repeats 5")
    return NotSeen(unread=unread, what=f"change of {first.row.collective}")


def _same(curves: list[list[Pair]]) -> Passed | None:
    pairs = [pair for curve in curves for pair in curve if pair.change is not Change.UNCLEAR]
    if not pairs:
        return None
    largest = max(pairs, key=lambda pair: pair.row.size_bytes)
    now, then = largest.row.busbw_gbps, largest.before.busbw_gbps
    figures = f"{now:.4g} GB/s, {then:.4g} before" if now and then else f"{largest.ratio - 1:+.0%}"
    return Passed(
        detail=(
            f"{_label(largest)}: {len(pairs)} rows as before; at {format_bytes(largest.row.size_bytes)} {figures}"
        )
    )


CHECK = BenchCheck(id="bench-regression", title="bandwidth against the baseline", run=check_regression)
