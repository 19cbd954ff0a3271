"""Tables of snapshots: live memory by purpose and by code, and how the allocator's pools are filled."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.snapshots.findings import first_failure_first
from distdoctor.oom.snapshots.holders import Holding, share
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.oom.snapshots.words import pool_text
from distdoctor.report.model import Column, Scalar, Table
from distdoctor.units import GIB, MIB

# Rows for each device; the rest is summed up in one.
TOP_STACKS = 12
TOP_POOLS = 12

# Devices that get rows. A job of a thousand ranks shows those that failed first.
MAX_DEVICES = 8

INFERRED = "what memory is for is inferred from the names in the stacks; a snapshot holds no purposes"


def snapshot_tables(views: Sequence[SnapshotView]) -> tuple[Table, ...]:
    """Three tables over the devices that failed first: by category, by stack, by pool."""
    chosen = first_failure_first(views)[:MAX_DEVICES]
    if not chosen:
        return ()
    left_out = f"; {len(views) - len(chosen)} more devices are not shown" if len(views) > len(chosen) else ""
    return (_by_category(chosen, left_out), _by_stack(chosen, left_out), _pools(chosen, left_out))


def where(view: SnapshotView) -> str:
    """`rank 3, device 0, host-a`, as far as known."""
    parts = [f"rank {view.snapshot.rank}"] if view.snapshot.rank is not None else []
    parts.append(f"device {view.state.device}")
    return ", ".join([*parts, *([view.snapshot.host] if view.snapshot.host else [])])


def gib(num_bytes: int) -> float:
    """GiB with three digits behind the point, so that a MiB still shows."""
    return round(num_bytes / GIB, 3)


def moment_words(views: Sequence[SnapshotView]) -> str:
    """`at the failure`, or what it is instead, for a title."""
    at_failure = sum(view.moment.oom is not None for view in views)
    if at_failure == len(views):
        return "at the failure"
    return (
        "when the snapshot was taken" if not at_failure else "at the failure, or when the snapshot was taken"
    )


def _by_category(views: Sequence[SnapshotView], left_out: str) -> Table:
    rows = tuple(
        (where(view), each.label, gib(each.num_bytes), _share(each, view), each.count, gib(each.largest))
        for view in views
        for each in view.categories
    )
    columns = (
        Column(name="where"),
        Column(name="for"),
        _number("in use", "GiB"),
        _number("share", "%"),
        _number("blocks"),
        _number("largest", "GiB"),
    )
    title = f"Memory in use by what it is for, {moment_words(views)}"
    return Table(
        name="oom-live-by-category", title=title, columns=columns, rows=rows, note=INFERRED + left_out
    )


def _by_stack(views: Sequence[SnapshotView], left_out: str) -> Table:
    rows: list[tuple[Scalar, ...]] = []
    for view in views:
        rows += [_stack_row(view, each) for each in view.stacks[:TOP_STACKS]]
        rest = view.stacks[TOP_STACKS:]
        if rest:
            total = sum(each.num_bytes for each in rest)
            blocks = sum(each.count for each in rest)
            before = sum(each.baseline_bytes for each in rest)
            percent = round(100 * share(total, view.moment.live_bytes), 1)
            rows.append(
                (where(view), f"{len(rest)} other places", "", gib(total), percent, blocks, gib(before))
            )
    columns = (
        Column(name="where"),
        Column(name="asked by, innermost first"),
        Column(name="for"),
        _number("in use", "GiB"),
        _number("share", "%"),
        _number("blocks"),
        _number("older than the history", "GiB"),
    )
    title = f"Memory in use by the code that asked, {moment_words(views)}"
    return Table(
        name="oom-live-by-stack", title=title, columns=columns, rows=tuple(rows), note=INFERRED + left_out
    )


def _stack_row(view: SnapshotView, each: Holding) -> tuple[Scalar, ...]:
    return (
        where(view),
        each.label,
        each.category.value,
        gib(each.num_bytes),
        _share(each, view),
        each.count,
        gib(each.baseline_bytes),
    )


def _pools(views: Sequence[SnapshotView], left_out: str) -> Table:
    rows = tuple(
        (
            where(view),
            pool_text(use.key) + (" (of the request)" if use is view.own_pool else ""),
            gib(use.reserved),
            gib(use.live),
            gib(use.free),
            round(use.largest / MIB, 1),
            use.num_segments,
        )
        for view in views
        for use in view.pools[:TOP_POOLS]
    )
    columns = (
        Column(name="where"),
        Column(name="pool"),
        _number("held", "GiB"),
        _number("in use", "GiB"),
        _number("free", "GiB"),
        _number("largest free piece", "MiB"),
        _number("segments"),
    )
    note = "free memory of one pool and stream is never lent to another" + left_out
    return Table(
        name="oom-pools", title=f"Pools, {moment_words(views)}", columns=columns, rows=rows, note=note
    )


def _share(each: Holding, view: SnapshotView) -> float:
    return round(100 * share(each.num_bytes, view.moment.live_bytes), 1)


def _number(name: str, unit: str | None = None) -> Column:
    return Column(name=name, unit=unit, align="right")
