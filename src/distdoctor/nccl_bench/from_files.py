"""A report over files, and a baseline out of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, find_files, read_bounded, read_head
from distdoctor.nccl_bench.build import bench_report
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.readers.files import facts_from_files
from distdoctor.nccl_bench.readers.nccl_log_merge import merge_logs
from distdoctor.nccl_bench.readers.own_report import facts_of_report
from distdoctor.report.codec import MAX_REPORT_BYTES, decode
from distdoctor.report.model import InputFile, Report
from distdoctor.report.request import ReportRequest


def report_of_files(request: ReportRequest, paths: Sequence[str], *, baseline: str | None = None) -> Report:
    """The report over tables and logs in files. Raises InputError when none can be read."""
    files = find_files(paths)
    own = [path for path in files if _is_own_report(path)]
    others = [path for path in files if path not in own]
    facts, inputs = facts_from_files(others) if others else ((), ())
    facts = (*(_facts_of_own(path) for path in own), *_join_logs(facts))
    inputs = (*(InputFile(path=path, kind="distdoctor report") for path in own), *inputs)
    if baseline is not None:
        compared = read_baseline(baseline)
        facts = tuple(replace(each, baseline=compared) for each in facts)
    return bench_report(request, facts, inputs=inputs)


def _is_own_report(path: str) -> bool:
    if path == STDIN:
        return False
    head = read_head(path, max_bytes=4096)
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and b"distdoctor" in head


def _facts_of_own(path: str) -> BenchFacts:
    facts = facts_of_report(decode(read_bounded(path, MAX_REPORT_BYTES + 1), path), path)
    if facts is None:
        raise InputError(
            f"the report `{path}` holds no bandwidths", hint="make one with `nccl-bench --save-baseline`"
        )
    return facts


def _join_logs(all_facts: tuple[BenchFacts, ...]) -> tuple[BenchFacts, ...]:
    """Logs that NCCL wrote beside (a file for each process) as one, and to the table when there is only one."""
    logs = [facts for facts in all_facts if facts.nccl_log is not None and not facts.rows]
    tables = [facts for facts in all_facts if facts not in logs]
    if not logs or len(tables) > 1 or (len(logs) == 1 and not tables):
        return all_facts
    merged = merge_logs([facts.nccl_log for facts in logs if facts.nccl_log is not None])
    if not tables:
        largest = max(logs, key=lambda facts: facts.num_ranks or 0)
        return (replace(largest, label=f"{len(logs)} logs", nccl_log=merged),)
    (table,) = tables
    if table.nccl_log is not None:
        merged = merge_logs([table.nccl_log, merged])
    return (replace(table, nccl_log=merged, num_hosts=table.num_hosts or logs[0].num_hosts),)


def reports_of_tables(
    request: ReportRequest, paths: Sequence[str]
) -> tuple[list[tuple[str, Report]], list[InputFile]]:
    """(file, its report) for each table, and what became of each file. Raises InputError when none can be read."""
    facts, inputs = facts_from_files(paths)
    return [(each.label, bench_report(request, [each])) for each in facts], list(inputs)


def read_baseline(path: str) -> BenchFacts:
    """The rows of a report of ours, or of any table that the readers know. Raises InputError."""
    if _is_own_report(path):
        return _facts_of_own(path)
    tables = [each for each in facts_from_files([path])[0] if each.rows]
    if not tables:
        raise InputError(f"`{path}` holds no table of bandwidths to compare with")
    first, *others = tables
    return replace(first, rows=tuple(row for table in (first, *others) for row in table.rows))
