"""Did every process run alone? Without MPI support each prints a table of its own, with one rank and no bus.

Known from users of nccl-tests: binaries built without MPI=1 and started by mpirun or srun (NVIDIA/nccl-tests
issues 71 and 294).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.readers.draft import Draft
from distdoctor.nccl_bench.readers.ranks_of_table import by_rank


def mark_lone_processes(found: Sequence[BenchFacts], drafts: Sequence[Draft]) -> tuple[BenchFacts, ...]:
    """`found` with `each_alone` on tables of one rank that processes of one start printed.

    Proof is a launcher's count, tables that mix, or streams side by side; equal tables one after another may
    also be runs repeated by hand, and then `processes` stays None.
    """
    alone = [index for index, facts in enumerate(found) if is_alone(facts, drafts[index])]
    marked = list(found)
    for index in alone:
        processes = _processes(index, alone, drafts)
        repeats = sum(_same_run(drafts[index], drafts[other]) for other in alone)
        if processes is None and repeats < 2:
            continue
        notes = found[index].table
        if notes is not None:
            marked[index] = replace(found[index], table=replace(notes, each_alone=True, processes=processes))
    return tuple(marked)


def is_alone(facts: BenchFacts, draft: Draft) -> bool:
    """One rank: the list of ranks holds rank 0 only, or bytes were moved and busbw is 0.

    Also several jobs that one start made: their lists name the same ranks again, by other processes.
    """
    if jobs_listed(draft) > 1:
        return True
    devices = by_rank(draft.devices)
    if devices and devices[-1].rank > 0:
        return False
    if facts.num_ranks == 1:
        return True
    return bool(facts.rows) and draft.is_alone and any(row.size_bytes for row in facts.rows)


def jobs_listed(draft: Draft) -> int:
    """How many processes call themselves rank 0 of one group: each of them is a job of its own."""
    firsts = {(each.host, each.pid) for each in draft.devices if each.rank == 0}
    groups = {each.group for each in draft.devices if each.rank == 0}
    return len(firsts) if len(groups) <= 1 and all(pid is not None for _, pid in firsts) else 0


def _processes(index: int, alone: Sequence[int], drafts: Sequence[Draft]) -> int | None:
    """How many processes ran side by side, where something proves it."""
    draft = drafts[index]
    listed = jobs_listed(draft)
    if max(draft.num_starts, listed) > 1:
        return max(draft.num_starts, listed)
    streams = {drafts[other].stream for other in alone if _same_run(draft, drafts[other])}
    if len(streams) > 1:
        return len(streams)
    launched = draft.command.processes
    return launched if launched is not None and launched > 1 else None


def _same_run(first: Draft, second: Draft) -> bool:
    return (first.settings, first.banner or first.command.collective) == (
        second.settings,
        second.banner or second.command.collective,
    )
