"""Did the benchmark end? A table that stops half-way is a hang or a kill, and what it shows is no clean bill."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed, not_seen
from distdoctor.nccl_bench.facts.bench import BenchFacts, TableNotes
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import format_bytes

MAX_SPELLED = 5

# Somebody ended it, which people do to a test that hangs: no failure of its own.
_INTERRUPTED = re.compile(r"\^C|\bTerminated\b|CANCELLED AT(?!.*DUE TO TIME LIMIT)")


def check_cut_table(facts: BenchFacts) -> Sequence[Outcome]:
    """Critical when the run failed or broke off within a row; a warning when the text just ends before the plan does.

    Rows that somebody pasted without head and footer are no answer: whether that run ended is not seen.
    """
    table = facts.table
    if table is None:
        return [NotApplicable(detail="no table of another benchmark")]
    if not table.ended:
        failed = any(not _INTERRUPTED.search(error) for error in table.errors)
        return [_failed(facts, table) if failed else _cut(facts, table)]
    if table.errors and table.out_of_bounds_ok is not False:
        return [_failed_at_end(facts, table)]
    if table.excerpt:
        return [
            not_seen(facts, "only a part of the table was given", how="give the whole output", what="its end")
        ]
    return [Passed(detail="the table has its footer: the run ended")]


def _after(facts: BenchFacts, table: TableNotes) -> str:
    """Where it stopped, for titles: "at 256 KiB", "after 128 KiB", "before the first size"."""
    if table.unfinished_bytes:
        return f"at {format_bytes(table.unfinished_bytes)}"
    if facts.rows:
        return f"after {format_bytes(max(row.size_bytes for row in facts.rows))}"
    return "before its first size"


def _planned(table: TableNotes, *, has_rows: bool) -> str:
    """ " of 8 GiB" where the run's settings say how far it was to go."""
    if table.planned_max_bytes is None or not has_rows:
        return ""
    return f" of {format_bytes(table.planned_max_bytes)}"


def _failed(facts: BenchFacts, table: TableNotes) -> Found:
    return Found(
        title=f"the network test failed {_after(facts, table)}",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        evidence=(*_failures(facts, table), *_end(facts, table)),
        explanation=(
            "The benchmark or its launcher told of a failure before the run was through. The rows before it are right "
            "as far as they go; nothing is known of larger sizes."
        ),
        actions=_actions(facts),
        cause_class="hang" if any("time" in error.lower() for error in table.errors) else None,
        fault=Fault.UNKNOWN,
    )


def _cut(facts: BenchFacts, table: TableNotes) -> Found:
    return Found(
        title=(
            f"the network test stopped {_after(facts, table)}: it hung or was ended"
            if table.cut_is_likely
            else f"the table stops {_after(facts, table)}{_planned(table, has_rows=bool(facts.rows))}: hung, ended or copied in part"
        ),
        severity=Severity.CRITICAL if table.cut_is_likely else Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(*_end(facts, table), *_failures(facts, table)),
        explanation=(
            "nccl-tests prints a footer when it is through, and here none follows. The usual cause is a hang in the "
            "next size, which a larger message reaches by another protocol or path; a time limit or Ctrl-C looks the "
            "same"
            + (
                "."
                if table.cut_is_likely
                else ", and so does a copy that stops in the middle: look at the rest of the output."
            )
            + " Do not read the rows that are there as a result."
        ),
        actions=_actions(facts),
        cause_class="hang" if table.cut_is_likely else "truncated",
        fault=Fault.UNKNOWN,
    )


def _failed_at_end(facts: BenchFacts, table: TableNotes) -> Found:
    return Found(
        key="after",
        title="the network test ended, and failures are told beside its table",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=_failures(facts, table),
        explanation="All rows and the footer are there; the failure came afterwards, or in another process.",
        actions=_actions(facts)[:1],
    )


def _failures(facts: BenchFacts, table: TableNotes) -> tuple[Evidence, ...]:
    lines = (*table.error_lines, *(None for _ in table.errors))
    shown = [
        Evidence(text=f"`{error}`", source=f"{facts.label}, line {line}" if line else facts.label)
        for error, line in zip(table.errors[:MAX_SPELLED], lines, strict=False)
    ]
    rest = len(table.errors) - MAX_SPELLED
    if rest > 0:
        shown.append(Evidence(text=f"and {rest} more such lines", value=rest, source=facts.label))
    return tuple(shown)


def _end(facts: BenchFacts, table: TableNotes) -> tuple[Evidence, ...]:
    largest = max((row.size_bytes for row in facts.rows), default=None)
    planned = table.planned_max_bytes
    return (
        Evidence(
            text=table.cut or "the table has no footer",
            value=largest,
            unit="bytes" if largest is not None else None,
            expected=f"rows up to {format_bytes(planned)}"
            if planned
            else "`# Out of bounds values` after the last row",
            expected_source="the run's own settings"
            if planned
            else "nccl-tests prints it when it is through",
            source=f"{facts.label}, line {table.last_line}" if table.last_line else facts.label,
        ),
    )


def _actions(facts: BenchFacts) -> tuple[Action, ...]:
    see = Action(
        team=Team.JOB_OWNER,
        text="Run it again with NCCL's log and a time limit of its own: the last lines name the transport that stuck",
        command="mpirun -x NCCL_DEBUG=INFO … all_reduce_perf -b 8 -e 8G -f 2 -g 1 -T 300 2>&1 | tee nccl-tests.log",
    )
    one_host = facts.num_hosts in (None, 1)
    apart = Action(
        team=Team.PLATFORM,
        text=(
            "Between the GPUs of one host: try without direct copies; if that runs, look at PCIe ACS and the IOMMU"
            if one_host
            else "Run it on each host alone, then on pairs of hosts: what hangs alone is the host, else the network"
        ),
        command="NCCL_P2P_DISABLE=1 … all_reduce_perf -b 8 -e 8G -f 2 -g 8" if one_host else None,
    )
    return see, apart


CHECK = BenchCheck(id="bench-cut-off", title="whether the benchmark ended", run=check_cut_table)
