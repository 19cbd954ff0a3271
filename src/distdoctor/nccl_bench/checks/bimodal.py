"""Do repeats of the same measurement fall in two groups?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.cells import Cell, cells_of
from distdoctor.nccl_bench.analysis.curves import source_of
from distdoctor.nccl_bench.analysis.noise import busy_hosts, run_disagrees
from distdoctor.nccl_bench.analysis.statistics import CLUSTER_GAP, Clusters, two_clusters
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotSeen, Outcome, Passed, not_seen
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import GroupKind
from distdoctor.report.checking import Unread
from distdoctor.report.model import Action, Confidence, Evidence, Severity, SkipCause, Team
from distdoctor.units import MIB, format_bytes

# Smaller messages jump between two times on healthy machines, by one wake-up more or less. Our own threshold.
FROM_BYTES = MIB

MIN_REPEATS = 3

# Two modes at several cells of an undisturbed run are a property of the fabric; at one cell, perhaps chance.
WARN_FROM_CELLS = 2

MAX_NAMED = 5


def check_bimodal(facts: BenchFacts) -> Sequence[Outcome]:
    """Cells of 1 MiB and more whose repeats lie in two clear groups, on hosts that were not busy."""
    cells = [
        cell
        for cell in cells_of(facts.rows)
        if cell.row.size_bytes >= FROM_BYTES and len(cell.times_us) >= MIN_REPEATS and cell.row.num_ranks != 1
    ]
    if not cells:
        return [
            not_seen(
                facts, f"no cell has {MIN_REPEATS} repeats", how="--repeats 3, or several tables in one file"
            )
        ]
    busy = busy_hosts(facts)
    disagrees = run_disagrees(facts) if facts.is_live else None
    if busy or disagrees:
        reason = f"the host was busy, which makes repeats differ ({busy[0]})" if busy else f"{disagrees}"
        return [NotSeen(unread=Unread(cause=SkipCause.NOISY, reason=reason, how="repeat on idle hosts"))]
    two = [(cell, clusters) for cell in cells if (clusters := two_clusters(cell.times_us)) is not None]
    if not two:
        return [Passed(detail=f"repeats of {len(cells)} cells lie in one group each")]
    return [_found(facts, two, len(cells))]


def _found(facts: BenchFacts, two: list[tuple[Cell, Clusters]], num_cells: int) -> Found:
    cell, worst = max(two, key=lambda each: each[1].ratio)
    row = cell.row
    return Found(
        key=row.collective,
        title=f"{row.collective} has two speeds, {worst.ratio:.1f}-fold apart, in the same run",
        severity=Severity.WARNING if len(two) >= WARN_FROM_CELLS else Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=(
            *(_evidence(facts, *each) for each in two[:MAX_NAMED]),
            Evidence(text=f"{len(two)} of {num_cells} cells have two speeds"),
        ),
        explanation=(
            "The same collective at the same size is sometimes fast and sometimes slow, with nothing in between, so "
            "that one run proves nothing and a mean describes neither. Known reasons: flows that hash onto the same "
            "or different paths of the fabric, a protocol that NCCL chooses anew for each communicator, one link of "
            "several that drops out."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Repeat several times, then with one protocol; see whether the slow mode stays",
                command="NCCL_PROTO=Simple …",
            ),
            Action(
                team=Team.NETWORK,
                text="See whether flows of one job share a path: load balancing (ECMP, adaptive routing) on the switches",
            ),
        ),
        cause_class="network:bimodal",
    )


def _evidence(facts: BenchFacts, cell: Cell, clusters: Clusters) -> Evidence:
    row = cell.row
    group = "" if row.group.kind in (GroupKind.JOB, GroupKind.TABLE) else f" in {row.group.label}"
    return Evidence(
        text=(
            f"{row.collective}{group} at {format_bytes(row.size_bytes)}: {len(clusters.low)} repeats near "
            f"{_ms(clusters.low)} ms, {len(clusters.high)} near {_ms(clusters.high)} ms"
        ),
        value=round(clusters.ratio, 2),
        expected=f"one group; two are at least {CLUSTER_GAP}-fold apart",
        expected_source="our own threshold",
        source=source_of(facts.label, row),
    )


def _ms(times_us: tuple[float, ...]) -> str:
    return f"{sum(times_us) / len(times_us) / 1e3:.3g}"


CHECK = BenchCheck(id="bench-bimodal", title="whether repeats have two speeds", run=check_bimodal)
