"""Were the results right? Wrong data come before any speed: a fast wrong collective ruins a model silently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotSeen, Outcome, Passed, not_seen
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import GroupKind, Row
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team
from distdoctor.report.names import ranks_name
from distdoctor.units import format_bytes

# Rows that evidence spells out; the rest is counted.
MAX_SPELLED = 6

HOW = "run nccl-tests with `-c 1`; `distdoctor nccl-bench` always looks at the data"


def check_wrong_data(facts: BenchFacts) -> Sequence[Outcome]:
    """Critical when any result differs from what it must be; never passed when nothing was compared."""
    wrong = [row for row in facts.rows if row.wrong is not None]
    table = facts.table
    failed = table is not None and (table.out_of_bounds_ok is False or bool(table.out_of_bounds))
    if wrong or failed:
        return [_found(facts, wrong)]
    compared = sum(row.validated for row in facts.rows)
    if not facts.rows:
        return [
            not_seen(
                facts, f"{facts.label} holds no measured rows", how=HOW, what="whether results are right"
            )
        ]
    if not compared:
        reason = "results were not compared with what they must be (the check column says N/A)"
        if facts.is_live:
            reason = "results were not compared with what they must be"
        return [not_seen(facts, reason, how=HOW, what="whether results are right")]
    return [
        Passed(detail=f"{compared} of {len(facts.rows)} measured rows were compared, none is wrong"),
        *_left_out(facts),
    ]


def _left_out(facts: BenchFacts) -> list[NotSeen]:
    """Rows that the reader had to leave out may hold anything but wrong data that it saw."""
    if facts.table is None or not facts.table.left_out_rows:
        return []
    return [
        not_seen(
            facts, f"{facts.table.left_out_rows} rows were beyond what is kept", what="the remaining rows"
        )
    ]


def _found(facts: BenchFacts, wrong: Sequence[Row]) -> Found:
    ranks = _wrong_ranks(wrong)
    hosts = tuple(dict.fromkeys(host for rank in ranks for host in [facts.host_of(rank)] if host))
    where, team, fault = _where(facts, wrong, ranks, hosts)
    # Everybody's result being wrong accuses nobody: then the finding is about the whole job.
    narrow = bool(ranks) and not _all_ranks(wrong, ranks)
    return Found(
        title=_title(wrong, ranks, hosts, narrow=narrow),
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        evidence=(*_evidence(facts, wrong), *_footer(facts)),
        explanation=(
            "The benchmark knew what every element must be and found others. A training run over the same path gets "
            f"wrong gradients without any error. {where} Speed says nothing while results are wrong."
        ),
        actions=_actions(team),
        scope=Scope(ranks=ranks, hosts=hosts) if narrow else Scope(),
        cause_class="data_corruption",
        fault=fault,
    )


def _title(wrong: Sequence[Row], ranks: tuple[int, ...], hosts: tuple[str, ...], *, narrow: bool) -> str:
    sizes = sorted({row.size_bytes for row in wrong})
    if narrow:
        whole = f"wrong results on {ranks_name(ranks, hosts)}"
        if len(whole) <= 80:
            return whole
    if not sizes:
        return "the network test got wrong results"
    at = (
        format_bytes(sizes[0])
        if len(sizes) == 1
        else f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"
    )
    names = sorted({row.collective for row in wrong})
    title = f"{names[0]} gave wrong results at {at}" if len(names) == 1 else f"wrong results at {at}"
    return title if len(title) <= 80 else "the network test got wrong results"


def _where(
    facts: BenchFacts, wrong: Sequence[Row], ranks: tuple[int, ...], hosts: tuple[str, ...]
) -> tuple[str, Team, Fault]:
    """What the pattern of wrong ranks means, in words; who looks first; whose it may be."""
    if not ranks:
        return (
            "The table adds up all ranks: it does not say whose copy is wrong. Software below NCCL (network plugin, "
            "libfabric, driver) is a known cause, and so are a GPU's or a link's hardware.",
            Team.PLATFORM,
            Fault.SOFTWARE if (facts.num_hosts or 0) > 1 else Fault.UNKNOWN,
        )
    if _all_ranks(wrong, ranks):
        return (
            "All ranks of the group hold wrong results: a part was damaged before or while it was combined, and then "
            "handed to everybody. Which rank damaged it is not known from this.",
            Team.PLATFORM,
            Fault.UNKNOWN,
        )
    if len(ranks) == 1:
        place = ranks_name(ranks, hosts)
        return (
            f"Only {place} is wrong in every test that failed: its own copy is damaged, by its GPU, its memory, or "
            "the last link on the way to it.",
            Team.HARDWARE,
            Fault.GPU,
        )
    if len(hosts) == 1 and all(facts.host_of(rank) for rank in ranks):
        return (
            f"Wrong results are on {hosts[0]} alone: what came to this host, or was combined on it, is damaged.",
            Team.HARDWARE,
            Fault.HOST,
        )
    return (
        f"Wrong results are on {ranks_name(ranks, hosts)}, and others are right: the damage lies on the paths that "
        "these share.",
        Team.PLATFORM,
        Fault.NETWORK if len(hosts) > 1 else Fault.UNKNOWN,
    )


def _wrong_ranks(wrong: Sequence[Row]) -> tuple[int, ...]:
    """Ranks with wrong results; those that are wrong in every row, where some rows narrow it down to them.

    A reduction hands one rank's damage to all; a transfer between neighbours shows whose it is.
    """
    sets = [set(row.wrong.ranks) for row in wrong if row.wrong and row.wrong.ranks]
    if not sets:
        return ()
    every, common = set().union(*sets), sets[0].intersection(*sets[1:])
    return tuple(sorted(common if common and _all_ranks(wrong, tuple(every)) else every))


def _all_ranks(wrong: Iterable[Row], ranks: tuple[int, ...]) -> bool:
    members = {rank for row in wrong for rank in row.group.ranks}
    return len(ranks) > 1 and bool(members) and members <= set(ranks)


def _evidence(facts: BenchFacts, wrong: Sequence[Row]) -> list[Evidence]:
    found = [_row_evidence(facts, row) for row in wrong[:MAX_SPELLED]]
    rest = len(wrong) - MAX_SPELLED
    if rest > 0:
        found.append(
            Evidence(text=f"and {rest} more rows with wrong results", value=rest, source=facts.label)
        )
    return found


def _row_evidence(facts: BenchFacts, row: Row) -> Evidence:
    wrong = row.wrong
    place = {True: " in place", False: " out of place", None: ""}[row.in_place]
    group = "" if row.group.kind in (GroupKind.JOB, GroupKind.TABLE) else f", {row.group.label}"
    text = f"{row.collective}{place}, {format_bytes(row.size_bytes)}, {row.dtype}{group}: "
    if wrong is not None and wrong.elements:
        text += f"{wrong.elements:,} wrong element{'s' if wrong.elements > 1 else ''}"
    else:
        text += "wrong elements, not counted"
    if wrong is not None and wrong.ranks:
        hosts = dict.fromkeys(host for rank in wrong.ranks for host in [facts.host_of(rank)] if host)
        text += f" on {ranks_name(wrong.ranks, tuple(hosts))}"
    if wrong is not None and wrong.example:
        text += f" ({wrong.example})"
    line = f", line {row.source_line}" if row.source_line else ""
    return Evidence(
        text=text,
        value=wrong.elements if wrong is not None and wrong.elements else None,
        unit="elements" if wrong is not None and wrong.elements else None,
        expected="0",
        expected_source="the benchmark computes what every element must be",
        source=f"{facts.label}{line}",
    )


def _footer(facts: BenchFacts) -> list[Evidence]:
    table = facts.table
    if table is None or table.out_of_bounds is None or table.out_of_bounds_ok is not False:
        return []
    text = f"the table's footer counts {table.out_of_bounds} tests with wrong results"
    return [Evidence(text=text, value=table.out_of_bounds, expected="0", source=f"{facts.label}, footer")]


def _actions(team: Team) -> tuple[Action, ...]:
    again = Action(
        team=Team.JOB_OWNER,
        text="Do not train on these hosts. Run the same test several times: a fault of this kind often comes and goes",
        command="for i in 1 2 3 4 5; do mpirun … all_reduce_perf -b 8 -e 128M -f 2 -g 1 -c 1; done   # #wrong must be 0",
    )
    narrow = Action(
        team=Team.PLATFORM,
        text=(
            "Find the layer: once over sockets, once with the plain protocol, once with the network plugin and libfabric "
            "of another version. The run that is right leaves out the layer at fault"
        ),
        command="NCCL_NET=Socket …   # then: NCCL_PROTO=Simple …",
    )
    hardware = Action(
        team=Team.HARDWARE,
        text="Test the GPU, its memory and its links, and look for Xid and ECC errors",
        command="dcgmi diag -r 3; nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink -e",
    )
    return (again, hardware, narrow) if team is Team.HARDWARE else (again, narrow)


CHECK = BenchCheck(
    id="bench-wrong-data", title="whether results are right", run=check_wrong_data, essential=True
)
