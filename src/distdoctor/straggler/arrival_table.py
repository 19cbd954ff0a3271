"""Arrivals at collectives as people look at them: one row a rank, who was last most often first."""

from __future__ import annotations

import numpy as np

from distdoctor.report.model import Column, Scalar, Table
from distdoctor.straggler.analysis.collectives.arrivals import Arrivals

# Rows of the table; the rest is counted in its note.
MAX_ROWS = 64


def arrival_table(arrivals: Arrivals, *, max_rows: int = MAX_ROWS) -> Table | None:
    """Rank, host, how often last, waiting; None when no collective could be judged."""
    if not arrivals.num_collectives:
        return None
    took_part = np.flatnonzero(arrivals.num)
    share = arrivals.num_last[took_part] / arrivals.num[took_part]
    order = took_part[np.lexsort((took_part, -share))]
    return Table(
        name="arrivals",
        title="who comes last to collectives",
        columns=(
            Column(name="rank", align="right"),
            Column(name="host"),
            Column(name="last", align="right"),
            Column(name="of", align="right"),
            Column(name="last", unit="%", align="right"),
            Column(name="waits, total", unit="ms", align="right"),
            Column(name="waits, median", unit="us", align="right"),
            Column(name="waits", unit="% of the time", align="right"),
            Column(name="late in all its groups"),
        ),
        rows=tuple(_row(arrivals, int(row)) for row in order[:max_rows]),
        note=_note(arrivals, len(order) - max_rows),
    )


def _row(arrivals: Arrivals, row: int) -> tuple[Scalar, ...]:
    share = float(arrivals.wait_share[row])
    last, num = int(arrivals.num_last[row]), int(arrivals.num[row])
    return (
        arrivals.ranks[row],
        arrivals.hosts[row],
        last,
        num,
        round(100 * last / num, 1),
        round(float(arrivals.wait_ms[row]), 3),
        round(float(arrivals.median_wait_us[row]), 1),
        None if np.isnan(share) else round(100 * share, 1),
        "yes" if arrivals.late_in_all[row] else "no",
    )


def _note(arrivals: Arrivals, num_more: int) -> str:
    parts = [f"{arrivals.num_collectives:,} collectives with all of their ranks"]
    if arrivals.num_nobody_last:
        parts.append(f"in {arrivals.num_nobody_last:,} of them all came at once")
    for number, why in (
        (arrivals.num_partial, "lack ranks"),
        (arrivals.num_damaged, "are damaged"),
        (arrivals.num_rooted, "may be left early by some ranks, or have no known name"),
        (arrivals.num_point_to_point, "are messages between two ranks"),
    ):
        if number:
            parts.append(f"{number:,} more {why} and do not count")
    if num_more > 0:
        parts.append(f"{num_more:,} more ranks are not shown")
    return "; ".join(parts)
