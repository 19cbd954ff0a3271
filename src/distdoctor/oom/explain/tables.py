"""Events as tables: all of them for programs, and a folded one for people."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.explain.cause import Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.explain.words import rank_words
from distdoctor.report.model import Column, Scalar, Table
from distdoctor.units import GIB

# Rows for people; programs get all. Our own bound.
MAX_ROWS = 24

EVENTS = "oom-events"
FOLDED = "oom-events-folded"


def explain_tables(facts: Explained) -> tuple[Table, ...]:
    """`oom-events`: one row an event, bytes; `oom-events-folded`: equal ones of several ranks in one row, GiB."""
    if not facts.judged:
        return ()
    return (_folded(facts), _all(facts))


def _all(facts: Explained) -> Table:
    numbers = (
        "requested",
        "free",
        "total",
        "allocated",
        "reserved_unallocated",
        "non_torch",
        "others",
        "allowed",
    )
    return Table(
        name=EVENTS,
        title="out-of-memory events",
        columns=(
            Column(name="rank", align="right"),
            Column(name="local_rank", align="right"),
            Column(name="host"),
            Column(name="gpu", align="right"),
            *(Column(name=name, unit="B", align="right") for name in numbers),
            Column(name="phase"),
            Column(name="cause"),
            Column(name="steps_before", align="right"),
            Column(name="file"),
            Column(name="line", align="right"),
        ),
        rows=tuple(_row(each) for each in facts.judged),
        place="data",
    )


def _row(judged: Judged) -> tuple[Scalar, ...]:
    event, account = judged.event, judged.account
    return (
        event.rank,
        event.local_rank,
        event.host,
        event.gpu,
        event.requested_bytes,
        event.free_bytes,
        event.total_bytes,
        event.allocated_bytes,
        event.unallocated_bytes,
        account.non_torch,
        account.others_bytes,
        event.allowed_bytes,
        event.phase.value,
        judged.cause.value,
        event.steps_before,
        event.path,
        event.line,
    )


def _folded(facts: Explained) -> Table:
    groups: dict[tuple[object, ...], list[Judged]] = {}
    for each in facts.judged:
        groups.setdefault(_likeness(each), []).append(each)
    rows = [_folded_row(group) for group in groups.values()]
    left = len(rows) - MAX_ROWS
    note = f"{left} more rows are in the JSON" if left > 0 else None
    if facts.facts.num_left_out:
        note = "; ".join(
            part
            for part in (note, f"{facts.facts.num_left_out:,} events beyond the bound were not kept")
            if part
        )
    names = ("asked", "free", "tensors", "idle in pool", "non-torch", "others")
    return Table(
        name=FOLDED,
        title="who asked for how much, and what was there, in GiB",
        columns=(
            Column(name="who"),
            *(Column(name=name, align="right") for name in names),
            Column(name="phase"),
            Column(name="cause"),
        ),
        rows=tuple(rows[:MAX_ROWS]),
        note=note,
    )


def _likeness(judged: Judged) -> tuple[object, ...]:
    event, account = judged.event, judged.account
    return (
        judged.cause,
        event.phase,
        *(
            _gib(each)
            for each in (
                event.requested_bytes,
                event.allocated_bytes,
                account.others_bytes,
            )
        ),
    )


def _folded_row(group: Sequence[Judged]) -> tuple[Scalar, ...]:
    event, account = group[0].event, group[0].account
    gpu = f"GPU {event.gpu}" if event.gpu is not None else event.family.value
    return (
        rank_words([each.event for each in group]) or gpu,
        *(
            _gib(each)
            for each in (
                event.requested_bytes,
                event.free_bytes,
                event.allocated_bytes,
                event.unallocated_bytes,
                account.non_torch,
                account.others_bytes,
            )
        ),
        event.phase.value,
        group[0].cause.value,
    )


def _gib(num_bytes: int | None) -> float | None:
    return None if num_bytes is None else round(num_bytes / GIB, 2)
