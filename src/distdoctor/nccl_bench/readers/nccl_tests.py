"""Tables of nccl-tests and rccl-tests, from 2016 to now, as people keep and paste them → facts."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin, TableNotes
from distdoctor.nccl_bench.facts.places import Versions
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, NotMeasured, Row
from distdoctor.nccl_bench.readers.columns import TableRow
from distdoctor.nccl_bench.readers.draft import Draft
from distdoctor.nccl_bench.readers.drafts import read_drafts
from distdoctor.nccl_bench.readers.ending import judge_ending
from distdoctor.nccl_bench.readers.head import DeviceLine
from distdoctor.nccl_bench.readers.inference import (
    Collective,
    infer_collective,
    is_possible,
    ranks_of_table,
)
from distdoctor.nccl_bench.readers.lines import table_lines
from distdoctor.nccl_bench.readers.lone_ranks import mark_lone_processes
from distdoctor.nccl_bench.readers.ranks_of_table import (
    by_rank,
    group_of,
    hardware_of,
    is_complete,
    places_of,
    share_gpus,
)
from distdoctor.nccl_bench.readers.rows_of_table import rows_of_table

# Of a text with more tables the first are read; each of them goes through every check. Our own choice.
MAX_TABLES = 500


def read_nccl_tests(text: str, label: str) -> tuple[BenchFacts, ...]:
    """The facts of each table in `text` (as `pasted.clean_pasted` leaves it), in its order; empty when there is none.

    A collective that nothing names is inferred from columns, sizes and the ratio of busbw to algbw. Where more
    than one fits, `Row.collective` is the likeliest and `TableNotes.collective_known` is False. Never raises.
    """
    drafts = read_drafts(list(table_lines(text)))[:MAX_TABLES]
    several = len(drafts) > 1
    found = [
        _facts(draft, label, f"{label}, table {number}" if several else label)
        for number, draft in enumerate(drafts, start=1)
    ]
    return mark_lone_processes(found, drafts)


def _facts(draft: Draft, file_label: str, label: str) -> BenchFacts:
    devices = by_rank(draft.devices)
    group, concurrent = group_of(devices)
    table = [*draft.rows, *([draft.unfinished] if draft.unfinished and draft.unfinished.halves else [])]
    listed = _listed(devices, group, concurrent)
    collective = _collective(draft, table, listed, file_label)
    num_ranks = ranks_of_table(collective.name, table)
    if listed is not None and is_possible(collective.name, listed, table):
        num_ranks = listed
    elif listed is not None and num_ranks is not None:
        # Groups that the list does not show (NCCL_TESTS_SPLIT of older versions): the rows tell of one of them.
        group = Group(kind=GroupKind.TABLE, label="table", ranks=())
    rows = rows_of_table(
        table if collective.name else (),
        collective=collective.name,
        group=group,
        concurrent=concurrent,
        num_ranks=num_ranks,
        iters=draft.settings.iters if draft.settings else None,
        validation=_validation(draft),
        footer_ok=draft.bounds is not None and draft.bounds.okay is True and not draft.bounds.count,
    )
    return BenchFacts(
        origin=Origin.TABLE,
        label=label,
        backend=_backend(draft),
        num_ranks=len(devices) if is_complete(devices) else num_ranks,
        num_hosts=len({device.host for device in devices}) if is_complete(devices) else None,
        places=places_of(devices),
        hardware=hardware_of(devices),
        versions=_versions(draft),
        rows=rows,
        not_measured=_not_measured(collective, table),
        table=_notes(draft, collective, rows),
        overrides=draft.command.overrides,
        shares_gpus=share_gpus(devices),
    )


def _listed(devices: Sequence[DeviceLine], group: Group, concurrent: bool) -> int | None:
    """Ranks of the group that the list of ranks shows; of a list that is cut, as many as its last rank says."""
    if concurrent:
        return len(group.ranks) or None
    return devices[-1].rank + 1 if devices else None


def _collective(draft: Draft, table: Sequence[TableRow], listed: int | None, label: str) -> Collective:
    """As the run itself names it; else as its command does; else by inference. The name is empty for hypercube."""
    if draft.banner is not None:
        return Collective(name=draft.banner, known=True, source="its banner")
    if draft.command.collective is not None and draft.command.is_call:
        return Collective(name=draft.command.collective, known=True, source="its command line")
    inferred = infer_collective(table, draft.layout, listed, label)
    if not inferred.known and listed is not None:
        free = infer_collective(table, draft.layout, None, label)
        inferred = free if free.known else inferred
    if draft.command.collective and not inferred.known:
        return Collective(name=draft.command.collective, known=False, source="a sentence before it")
    return inferred


def _validation(draft: Draft) -> int | None:
    if draft.settings is not None and draft.settings.validation is not None:
        return draft.settings.validation
    return draft.command.validation


def _backend(draft: Draft) -> str:
    """rccl where anything says so: the library, the benchmark, or AMD's GPUs."""
    models = " ".join(device.model or "" for device in draft.devices[:1])
    is_rccl = (
        (draft.library is not None and draft.library[0] == "rccl")
        or (draft.tool or "").startswith("rccl")
        or "AMD" in models
        or "Radeon" in models
    )
    return "rccl" if is_rccl else "nccl"


def _versions(draft: Draft) -> Versions:
    if draft.library is None:
        return Versions()
    _, version, cuda = draft.library
    return Versions(nccl=version, cuda=cuda)


def _not_measured(collective: Collective, table: Sequence[TableRow]) -> tuple[NotMeasured, ...]:
    if collective.name or not table:
        return ()
    why = "this benchmark is of no collective that distdoctor compares"
    return (NotMeasured(what="rows of hypercube_perf", why=why, refused=False),)


def _notes(draft: Draft, collective: Collective, rows: Sequence[Row]) -> TableNotes:
    ending = judge_ending(draft)
    failures = [*draft.failures, *draft.endings]
    return TableNotes(
        tool=draft.tool,
        ended=ending.ended,
        cut=ending.cut,
        cut_is_likely=ending.likely,
        excerpt=ending.excerpt,
        out_of_bounds=draft.bounds.count if draft.bounds else None,
        out_of_bounds_ok=draft.bounds.okay if draft.bounds else None,
        average_busbw_gbps=draft.average,
        validated=any(row.validated for row in rows) if rows else None,
        errors=tuple(text for _, text in failures),
        error_lines=tuple(number for number, _ in failures),
        skipped_rows=draft.num_skipped,
        collective_known=collective.known,
        collective_from=collective.source,
        planned_max_bytes=ending.planned_max_bytes,
        unfinished_bytes=draft.unfinished.size if draft.unfinished else None,
        left_out_rows=draft.num_left_out,
        last_line=draft.last_line or None,
    )
