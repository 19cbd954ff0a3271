"""A report over files, and a baseline out of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdoctor.errors import InputError
from distdoctor.evidence import read_bounded, read_head
from distdoctor.nccl_bench.build import BenchRequest, bench_report
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.readers.files import facts_from_files
from distdoctor.nccl_bench.readers.own_report import facts_of_report
from distdoctor.report.codec import MAX_REPORT_BYTES, decode
from distdoctor.report.model import Report


def report_of_files(request: BenchRequest, paths: Sequence[str], *, baseline: str | None = None) -> Report:
    """The report over tables and logs in files. Raises InputError when none can be read."""
    facts, inputs = facts_from_files(paths)
    if baseline is not None:
        compared = read_baseline(baseline)
        facts = tuple(replace(each, baseline=compared) for each in facts)
    return bench_report(request, facts, inputs=inputs)


def read_baseline(path: str) -> BenchFacts:
    """The rows of a report of ours, or of any table that the readers know. Raises InputError."""
    head = read_head(path, max_bytes=4096)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and b"distdoctor" in head:
        facts = facts_of_report(decode(read_bounded(path, MAX_REPORT_BYTES + 1), path), path)
        if facts is None:
            raise InputError(
                f"the report `{path}` holds no bandwidths", hint="make one with `nccl-bench --save-baseline`"
            )
        return facts
    tables = [each for each in facts_from_files([path])[0] if each.rows]
    if not tables:
        raise InputError(f"`{path}` holds no table of bandwidths to compare with")
    first, *others = tables
    return replace(first, rows=tuple(row for table in (first, *others) for row in table.rows))
