"""Is the run steady enough for anything to be said about speed?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.curves import curves_of
from distdoctor.nccl_bench.analysis.noise import busy_hosts, is_noisy
from distdoctor.nccl_bench.analysis.statistics import max_over_min
from distdoctor.nccl_bench.checks.base import BenchCheck, NotApplicable, NotSeen, Outcome, Passed, not_seen
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.rows import Row
from distdoctor.report.checking import Unread
from distdoctor.report.model import SkipCause
from distdoctor.units import format_bytes

HOW = "repeat while nothing else runs on the hosts: `--repeats 5`"


def check_noisy(facts: BenchFacts) -> Sequence[Outcome]:
    """The largest size of every curve: there bandwidth is judged, and jitter of microseconds no longer counts."""
    curves = [curve for curve in curves_of(facts.rows) if (curve.num_ranks or 2) > 1]
    if not curves:
        if facts.rows and all(row.num_ranks == 1 for row in facts.rows):
            return [NotApplicable(detail="one rank has no bus")]
        return [not_seen(facts, "no row with a bandwidth")]
    largest = [(curve.label, curve.fastest[-1]) for curve in curves]
    noisy = [(label, row, why) for label, row in largest if (why := is_noisy(facts, row)) is not None]
    if noisy:
        return [_inconclusive(facts, noisy, len(largest))]
    repeated = [fold for _, row in largest if (fold := max_over_min(row.repeats_us)) is not None]
    if not repeated:
        return [
            not_seen(
                facts, _no_repeats(facts), how="run it three times and compare", what="spread of repeats"
            )
        ]
    return [Passed(detail=f"repeats at the largest sizes differ {max(repeated):.2f}-fold at most")]


def _no_repeats(facts: BenchFacts) -> str:
    if facts.origin is Origin.TABLE:
        return "a table holds one mean for each size, and no repeats"
    return "each cell was measured once"


def _inconclusive(facts: BenchFacts, noisy: list[tuple[str, Row, str]], num_curves: int) -> NotSeen:
    label, row, why = noisy[0]
    busy = busy_hosts(facts)
    load = "" if not busy or busy[0] in why else f"; {busy[0]}"
    reason = (
        f"inconclusive: {len(noisy)} of {num_curves} curve{'s' if num_curves > 1 else ''} not steady; {label} at "
        f"{format_bytes(row.size_bytes)}: {why}{load}"
    )
    return NotSeen(unread=Unread(cause=SkipCause.NOISY, reason=reason, how=HOW), what="speed of the network")


CHECK = BenchCheck(id="bench-noisy", title="steadiness of the measurement", run=check_noisy, essential=True)
