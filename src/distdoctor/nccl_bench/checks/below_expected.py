"""Is each collective as fast as the hardware should make it?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.analysis.curves import Curve, curves_of, source_of
from distdoctor.nccl_bench.analysis.expectation import expected_busbw, is_cpu_only
from distdoctor.nccl_bench.analysis.expected import Expectation, NoExpectation
from distdoctor.nccl_bench.analysis.fit import find_cliffs
from distdoctor.nccl_bench.analysis.hypotheses import hypotheses_of
from distdoctor.nccl_bench.analysis.machine import hosts_of_group, machine_of, num_hosts_of, shares_gpus
from distdoctor.nccl_bench.analysis.noise import is_noisy
from distdoctor.nccl_bench.analysis.shortfall import Shortfall
from distdoctor.nccl_bench.checks.base import (
    BenchCheck,
    Found,
    NotApplicable,
    NotSeen,
    Outcome,
    Passed,
    not_seen,
)
from distdoctor.nccl_bench.checks.shortfall_found import found_of
from distdoctor.nccl_bench.checks.too_slow_for_any import absurd
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import Row
from distdoctor.report.checking import Unread
from distdoctor.report.model import SkipCause
from distdoctor.units import MIB, format_bytes

# Below this share of the expectation's low end a number is named. nccl-tests' own NCCL_TESTS_MIN_BW fails at 0.9.
WARN_BELOW = 0.9

# Between an eighth of the plateau's size and that size healthy published curves have 0.45 of the low end and more;
# less than this is named there too. Our own threshold.
CLIMB_FROM = 8
WARN_BELOW_ON_THE_CLIMB = 0.4

# A row that is too noisy to judge is judged by its fastest repeat, if even that is below this. Our own threshold:
# noise only makes slower, and a factor of two in the best of several repeats is not noise.
SLOW_IN_SPITE_OF_NOISE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One curve against its expectation."""

    curve: Curve
    row: Row
    expectation: Expectation
    noise: str | None
    climbing: bool
    """The row is below the plateau's size."""

    @property
    def ratio(self) -> float:
        """Measured busbw over the expectation's low end."""
        return (self.row.busbw_gbps or 0.0) / self.expectation.low_gbps

    @property
    def best_ratio(self) -> float:
        """The same by the fastest repeat."""
        fastest = min(self.row.repeats_us, default=self.row.time_us)
        return self.ratio * self.row.time_us / fastest if fastest > 0 else self.ratio

    @property
    def is_low(self) -> bool:
        """Slow for certain: by its median when it is steady, by its best repeat when it is not."""
        limit = WARN_BELOW_ON_THE_CLIMB if self.climbing else WARN_BELOW
        if self.noise is None:
            return self.ratio < limit
        return self.best_ratio < min(limit, SLOW_IN_SPITE_OF_NOISE)


def check_below_expected(facts: BenchFacts) -> Sequence[Outcome]:
    """Each collective of each group at the sizes where it must be at full speed, worst group of a set first."""
    curves = [curve for curve in curves_of(facts.rows) if curve.num_ranks is None or curve.num_ranks > 1]
    if not facts.rows:
        return [not_seen(facts, "no row with a bandwidth")]
    if is_cpu_only(facts):
        return [NotApplicable(detail="Gloo and CPUs: no published expectation")]
    if not curves:
        return [NotApplicable(detail="one rank has no bus")]
    judged: list[Judged] = []
    reasons: dict[tuple[str, str | None], list[str]] = {}
    for curve in curves:
        answer = expected_busbw(
            facts, curve.collective, curve.group, curve.num_ranks, at_once=curve.concurrent
        )
        if isinstance(answer, NoExpectation):
            reasons.setdefault((_with_orientation(answer), answer.how), []).append(curve.label)
        elif (one := _judge(facts, curve, answer)) is None:
            reasons.setdefault(_too_small(curve, answer), []).append(curve.label)
        else:
            judged.append(one)
    outcomes = [outcome for each in _sets(judged) if (outcome := _outcome(facts, each, judged)) is not None]
    strange = absurd(facts, curves) if not judged else None
    if strange is not None:
        outcomes.append(strange)
    return [*outcomes, *(_not_judged(facts, reason, how, who) for (reason, how), who in reasons.items())]


def _judge(facts: BenchFacts, curve: Curve, expectation: Expectation) -> Judged | None:
    """The best row at or above the plateau's size, else the best on the upper part of the climb."""
    rows = [row for row in curve.rows if row.busbw_gbps is not None]
    on_plateau = [row for row in rows if row.size_bytes >= expectation.from_bytes]
    climbing = [row for row in rows if row.size_bytes >= expectation.from_bytes // CLIMB_FROM]
    candidates = on_plateau or climbing
    if not candidates:
        return None
    best = max(candidates, key=lambda row: row.busbw_gbps or 0.0)
    one = Judged(
        curve=curve,
        row=best,
        expectation=expectation,
        noise=is_noisy(facts, best),
        climbing=not on_plateau,
    )
    # On the climb a good number proves nothing yet.
    return None if one.climbing and not one.is_low else one


def _sets(judged: Iterable[Judged]) -> list[list[Judged]]:
    """Groups that belong together (all hosts, all rails), slowest first; of several data types the fastest."""
    best: dict[tuple[str, str, bool], Judged] = {}
    for each in judged:
        key = (each.curve.collective, each.curve.group.label, each.curve.concurrent)
        if key not in best or each.ratio > best[key].ratio:
            best[key] = each
    sets: dict[tuple[str, str, bool], list[Judged]] = {}
    for each in best.values():
        group = each.curve.group
        key = (each.curve.collective, group.set_label or group.label, each.curve.concurrent)
        sets.setdefault(key, []).append(each)
    return [sorted(members, key=lambda each: each.ratio) for members in sets.values()]


def _outcome(facts: BenchFacts, members: list[Judged], judged: list[Judged]) -> Outcome | None:
    low = [each for each in members if each.is_low]
    if low:
        return _found(facts, low, members, judged)
    noisy = [each for each in members if each.noise is not None and each.ratio < WARN_BELOW]
    if noisy:
        reason = f"{noisy[0].curve.label} at {format_bytes(noisy[0].row.size_bytes)}: {noisy[0].noise}"
        unread = Unread(cause=SkipCause.NOISY, reason=reason, how="repeat on idle hosts, with --repeats 5")
        return NotSeen(unread=unread, what=f"speed of {noisy[0].curve.label}")
    worst = members[0]
    named = worst.curve.label if len(members) == 1 else f"{worst.curve.collective} in {len(members)} groups"
    least = "" if len(members) == 1 else "at least "
    return Passed(
        detail=(
            f"{named}: {least}{worst.row.busbw_gbps:.4g} GB/s of {worst.expectation.low_gbps:.4g} to "
            f"{worst.expectation.high_gbps:.4g} expected"
        )
    )


def _found(facts: BenchFacts, low: list[Judged], members: list[Judged], judged: list[Judged]) -> Found:
    worst = low[0]
    curve = worst.curve
    shortfall = Shortfall(
        facts=facts,
        curve=curve,
        row=worst.row,
        expectation=worst.expectation,
        machine=machine_of(facts, curve.group),
        num_hosts=num_hosts_of(facts, curve.group, curve.num_ranks) or 1,
        has_cliff=any(not cliff.recovers for cliff in find_cliffs(curve.points)),
        siblings={
            each.curve.collective: each.ratio
            for each in judged
            if each.curve.group.label == curve.group.label and each.curve.collective != curve.collective
        },
    )
    return found_of(
        shortfall,
        hypotheses_of(shortfall),
        noise=worst.noise,
        climbing=worst.climbing,
        num_groups=len(members),
        slow_groups=tuple(each.curve.group.label for each in low),
        hosts=_hosts(facts, low, members),
        source=source_of(facts.label, worst.row),
    )


def _hosts(facts: BenchFacts, low: list[Judged], members: list[Judged]) -> tuple[str, ...]:
    """The hosts of groups that lie on one host each, if others of the same set are well."""
    if len(low) == len(members):
        return ()
    named: list[str] = []
    for each in low:
        hosts = hosts_of_group(facts, each.curve.group)
        if hosts is not None and len(hosts) == 1:
            named.append(hosts[0])
    return tuple(dict.fromkeys(named))


def _with_orientation(answer: NoExpectation) -> str:
    if not answer.orientation:
        return answer.reason
    figures = "; ".join(each.in_words for each in answer.orientation)
    return f"{answer.reason}; published on such GPUs, for orientation: {figures}"


def _too_small(curve: Curve, expectation: Expectation) -> tuple[str, str | None]:
    largest = curve.rows[-1].size_bytes
    reason = (
        f"the sizes end at {format_bytes(largest)}; such hardware is at full speed from "
        f"{format_bytes(expectation.from_bytes)} on"
    )
    return reason, f"measure larger messages too: `--max-bytes {expectation.from_bytes // MIB}M`"


def _not_judged(facts: BenchFacts, reason: str, how: str | None, labels: list[str]) -> NotSeen:
    shown = ", ".join(dict.fromkeys(labels[:4])) + (f" and {len(labels) - 4} more" if len(labels) > 4 else "")
    skipped = not_seen(facts, reason, how=how, what=f"speed of {shown}")
    if facts.is_live and not shares_gpus(facts) and not reason.startswith("the sizes end"):
        # Nobody left it out on purpose: the hardware did not tell.
        unread = Unread(cause=SkipCause.FAILED, reason=reason, how=how)
        return NotSeen(unread=unread, what=skipped.what)
    return skipped


CHECK = BenchCheck(
    id="bench-below-expected", title="bandwidth against what the hardware can", run=check_below_expected
)
