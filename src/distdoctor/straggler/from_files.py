"""A report over files: each goes to the reader that knows it best, and what nobody knows is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, find_files, read_head
from distdoctor.report.model import InputFile, Report
from distdoctor.report.request import ReportRequest
from distdoctor.straggler.analyse import analyse
from distdoctor.straggler.aside import UNKNOWN, left_aside
from distdoctor.straggler.build import straggler_report
from distdoctor.straggler.coordinates import Layout, with_layout
from distdoctor.straggler.facts.reading import Reading, join
from distdoctor.straggler.readers.all import READERS
from distdoctor.straggler.readers.base import Reader, ReadOptions

# A recording has a file for each rank, and the largest jobs have some 16,000 of them. Our own bound.
MAX_FILES = 100_000

# Enough to know any kind of file by sight.
HEAD_BYTES = 256 * 1024

KINDS = (
    "recordings of `straggler record`, Kineto traces, TorchTitan structured logs, NCCL Inspector dumps, logs of "
    "Megatron-LM, DeepSpeed, TorchTitan, HF Trainer …, pipeline op traces, Prometheus exports, tables (CSV, JSON "
    "lines, Parquet, Arrow) with columns such as step, rank, forward_ms, wait_ms"
)


def report_of_files(
    request: ReportRequest,
    paths: Sequence[str],
    *,
    options: ReadOptions | None = None,
    layout: Layout | None = None,
    around_s: float | None = None,
    num_gpus: int | None = None,
) -> Report:
    """The report over files and folders. Raises InputError when none can be read, UsageError for a mesh that is wrong."""
    began = perf_counter()
    options = options or ReadOptions()
    reading = read_evidence_files(paths, options)
    _check_steps(reading, paths, options)
    reading = with_layout(reading, layout or Layout())
    read_at = perf_counter()
    facts = analyse(reading, around_s=around_s, num_gpus=num_gpus)
    timings = {"read": round(read_at - began, 3), "analyse": round(perf_counter() - read_at, 3)}
    return straggler_report(request, facts, timings=timings)


def _check_steps(reading: Reading, paths: Sequence[str], options: ReadOptions) -> None:
    """Raises InputError when `--steps` leaves nothing, with the steps that there are."""
    if (options.first_step is None and options.last_step is None) or reading.steps or reading.series:
        return
    everything = read_evidence_files(paths, replace(options, first_step=None, last_step=None))
    steps = [each.steps for each in everything.steps] + [each.steps for each in everything.series]
    steps = [each for each in steps if len(each)]
    if steps:
        first, last = min(int(each.min()) for each in steps), max(int(each.max()) for each in steps)
        raise InputError(
            f"the evidence has steps {first:,} to {last:,}, none of them in --steps",
            hint=f"give a range within {first}:{last}",
        )


def read_evidence_files(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All evidence in `paths`. Raises InputError when a path is not there or no file can be read."""
    by_reader: dict[str, tuple[Reader, list[str]]] = {}
    unknown: list[InputFile] = []
    for path in find_files(paths, max_files=MAX_FILES):
        try:
            reader = _reader_of(path)
        except InputError as error:
            why_not = error.in_one_line
            unknown.append(InputFile(path=path, kind="unreadable", read=False, why_not=why_not))
            continue
        if reader is None:
            name = "standard input" if path == STDIN else f"`{path}`"
            why_not = f"{name} holds no timing that is known"
            unknown.append(InputFile(path=path, kind=UNKNOWN, read=False, why_not=why_not))
        else:
            by_reader.setdefault(reader.name, (reader, []))[1].append(path)
    readings = [reader.read(files, options) for reader, files in by_reader.values()]
    reading = join([*readings, Reading(inputs=tuple(unknown))])
    if not any(each.read for each in reading.inputs):
        raise _nothing_read(reading.inputs)
    return left_aside(reading, given=frozenset(paths))


def _reader_of(path: str) -> Reader | None:
    """The reader that is surest of a file; None when none knows it. Raises InputError when it cannot be opened."""
    head = read_head(path, max_bytes=HEAD_BYTES)
    scored = [(reader.sniff(path, head), -number) for number, reader in enumerate(READERS)]
    score, number = max(scored)
    return READERS[-number] if score > 0 else None


def _nothing_read(inputs: Sequence[InputFile]) -> InputError:
    first = inputs[0]
    name = "standard input" if first.path == STDIN else f"`{first.path}`"
    why = first.why_not or "cannot be read"
    message = why if name in why or first.path in why else f"{name}: {why}"
    more = f" (and {len(inputs) - 1} more)" if len(inputs) > 1 else ""
    return InputError(f"{message}{more}", hint=f"known kinds: {KINDS}")
