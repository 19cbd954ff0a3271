"""What grew between two sets of snapshots: before and after a change, or early and late in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distdoctor.oom.snapshots.holders import Holding
from distdoctor.oom.snapshots.tables import INFERRED, gib, where
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.model import Column, Scalar, Table
from distdoctor.units import MIB

# Places in the code that are listed for each device, by how much they changed.
TOP_STACKS = 12

# Smaller differences are not listed: alignment and caches move by as much. Our own choice.
MIN_BYTES = MIB


def changes(old: Sequence[SnapshotView], new: Sequence[SnapshotView]) -> tuple[Table, ...]:
    """Tables of what differs by category and by place in the code, for devices that are in both.

    Devices are matched by rank and number; where only one device is in each, these two. Line numbers are not compared,
    so that code that moved is not taken for new code. Empty when nothing can be matched.
    """
    pairs = _pairs(old, new)
    if not pairs:
        return ()
    category_rows = [row for a, b in pairs for row in _rows(a, b, lambda view: view.categories, None)]
    stack_rows = [row for a, b in pairs for row in _rows(a, b, lambda view: view.stacks, TOP_STACKS)]
    note = f"{INFERRED}; differences below 1 MiB are left out"
    return (
        _table("oom-changes-by-category", "What changed, by what memory is for", "for", category_rows, note),
        _table("oom-changes-by-stack", "What changed, by the code that asked", "asked by", stack_rows, note),
    )


def _pairs(
    old: Sequence[SnapshotView], new: Sequence[SnapshotView]
) -> list[tuple[SnapshotView, SnapshotView]]:
    if len(old) == len(new) == 1:
        return [(old[0], new[0])]
    before = {(view.snapshot.rank, view.state.device): view for view in old}
    return [(before[key], view) for view in new if (key := (view.snapshot.rank, view.state.device)) in before]


def _rows(
    old: SnapshotView,
    new: SnapshotView,
    holdings: Callable[[SnapshotView], Sequence[Holding]],
    most: int | None,
) -> list[tuple[Scalar, ...]]:
    before, after = _by_label(holdings(old)), _by_label(holdings(new))
    labels = sorted(
        {*before, *after}, key=lambda label: (-abs(after.get(label, 0) - before.get(label, 0)), label)
    )
    rows: list[tuple[Scalar, ...]] = []
    for label in labels[:most]:
        was, now = before.get(label, 0), after.get(label, 0)
        if abs(now - was) >= MIN_BYTES:
            rows.append((where(new), label, gib(was), gib(now), gib(now - was)))
    return rows


def _by_label(holdings: Sequence[Holding]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in holdings:
        label = _without_lines(each.label)
        found[label] = found.get(label, 0) + each.num_bytes
    return found


def _without_lines(label: str) -> str:
    """`model.py forward` for `model.py:41 forward`."""
    parts = [each.split(" ", 1) for each in label.split(" < ")]
    return " < ".join(" ".join([each[0].rsplit(":", 1)[0], *each[1:]]) for each in parts)


def _table(name: str, title: str, what: str, rows: Sequence[tuple[Scalar, ...]], note: str) -> Table:
    columns = (
        Column(name="where"),
        Column(name=what),
        Column(name="before", unit="GiB", align="right"),
        Column(name="after", unit="GiB", align="right"),
        Column(name="change", unit="GiB", align="right"),
    )
    return Table(name=name, title=title, columns=columns, rows=tuple(rows), note=note)
