"""PyTorch profiler traces of many ranks as facts: sections of steps, and collectives matched across ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distdoctor.errors import InputError
from distdoctor.report.model import GpuRef, InputFile
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.file_bytes import size_of
from distdoctor.straggler.readers.file_text import text_start
from distdoctor.straggler.readers.kineto.groups import Registry
from distdoctor.straggler.readers.kineto.lives import newest_run
from distdoctor.straggler.readers.kineto.match import MAX_ROWS, SOURCE, Rows, match
from distdoctor.straggler.readers.kineto.notes import notes_of
from distdoctor.straggler.readers.kineto.ranks import (
    are_copies,
    host_of_name,
    one_of_each,
    one_run,
    ranks_of_names,
)
from distdoctor.straggler.readers.kineto.sections import Sections
from distdoctor.straggler.readers.kineto.trace import KIND, Trace, read_trace
from distdoctor.straggler.readers.rows import StepRows

# A trace of another run, or a second one of the same steps.
ASIDE = f"{KIND}, set aside"

# The part of a step that may be own work or waiting beside which own time is still compared. Our own threshold: as
# much as parts of a step may leave open.
MAX_HIDDEN = 0.15

# Files between two lines of progress.
PROGRESS_FILES = 20

_HEAD_KEYS = (
    b'"schemaVersion"',
    b'"deviceProperties"',
    b'"distributedInfo"',
    b'"trace_id"',
    b'"record_shapes"',
)
_TORCH_CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|gpu_user_annotation|kernel|gpu_memcpy|cuda_runtime|ac2g|fwdbwd'
    rb'|python_function|Operator|Kernel|Memcpy|Runtime)"'
)
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


def sniff(path: str, head: bytes) -> float:
    """How surely a file is a Kineto trace, by its first bytes: execution traces and other JSON are 0."""
    text = text_start(head)
    if not text.startswith(b"{") or head[257:262] == b"ustar":
        return 0.0
    is_named = path.lower().endswith((".pt.trace.json", ".pt.trace.json.gz"))
    keys = sum(key in text for key in _HEAD_KEYS)
    if _EVENTS.search(text) is not None:
        if _TORCH_CATEGORY.search(text) is not None or (keys and b'"ph"' in text):
            return 1.0 if keys or is_named else 0.9
        # Metadata alone, cut before the first event; or a trace of another program.
        return 0.9 if keys or is_named else 0.2 * (b'"ph"' in text)
    # The process groups of thousands of ranks stand before the events.
    return 0.8 if b'"schemaVersion"' in text and keys >= 2 else 0.0


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All traces of one job. What cannot be read of a file costs that file, or what follows the broken place."""
    paths = list(dict.fromkeys(paths))
    registry = Registry.new()
    traces: list[Trace] = []
    inputs: dict[str, InputFile] = {}
    for number, (path, rank) in enumerate(zip(paths, ranks_of_names(paths), strict=True)):
        if options.progress is not None and number % PROGRESS_FILES == 0:
            options.progress(f"reading trace {number + 1} of {len(paths)}")
        try:
            trace = read_trace(path, rank, options, registry, max_rows=MAX_ROWS // len(paths))
        except InputError as error:
            inputs[path] = InputFile(
                path=path, kind=KIND, bytes=size_of(path), read=False, why_not=error.message
            )
            continue
        inputs[path] = trace.input_file
        traces.append(trace)
    of_one_size, of_other_sizes, size_notes = one_run(traces)
    kept, of_other_runs, run_notes = newest_run(of_one_size)
    unranked = [trace for trace in kept if trace.rank is None]
    ranked, doubles, double_notes = one_of_each(kept)
    for trace in (*of_other_sizes, *of_other_runs):
        inputs[trace.path] = _set_aside(trace.input_file)
    for trace, other in doubles:
        inputs[trace.path] = _double(trace, other)
    places = _places(ranked)
    sizes = {trace.header.world_size for trace in ranked if trace.header.world_size is not None}
    timings, row_notes, rows = _timings(ranked, places, sorted(sizes))
    notes = [*size_notes, *run_notes, *double_notes, *row_notes, *notes_of([*ranked, *unranked])]
    collectives, match_notes = match(
        [rank for rank, _ in rows],
        [each for _, each in rows],
        registry,
        sorted({place.rank: place for place in places}.values(), key=lambda place: place.rank),
        max(sizes, default=None),
    )
    return Reading(
        steps=(*((timings,) if timings is not None else ()), *_alone(unranked)),
        collectives=(collectives,) if collectives is not None else (),
        notes=(*notes, *match_notes),
        inputs=tuple(inputs[path] for path in paths),
    )


def _set_aside(file: InputFile) -> InputFile:
    """The same file, read but not used: a note says why, and nothing is missing for want of it."""
    return InputFile(path=file.path, kind=ASIDE, bytes=file.bytes, sha256=file.sha256)


def _double(trace: Trace, other: Trace) -> InputFile:
    """A trace of the same rank and steps as another: a copy, or one that must be missed, for it is of somebody else."""
    file = trace.input_file
    if are_copies(trace, other):
        return _set_aside(file)
    why = f"it tells the same rank, {trace.rank}, at the same time as `{other.path}`: of another job, or numbered by host"
    return InputFile(
        path=file.path, kind=file.kind, bytes=file.bytes, sha256=file.sha256, read=False, why_not=why
    )


def _timings(
    traces: list[Trace], places: Sequence[Place], world_sizes: list[int]
) -> tuple[StepTimings | None, tuple[Note, ...], list[tuple[int, Rows]]]:
    """Steps of all ranks, and their rows of collectives taken out of the traces."""
    table = StepRows()
    rows: list[tuple[int, Rows]] = []
    table.world_sizes = world_sizes
    for place in places:
        table.place(place)
    any_marks = any(trace.has_marks for trace in traces)
    for trace in _mostly_hidden(traces):
        trace.sections = {
            **trace.sections,
            Section.UNSPLIT: np.full(len(trace.steps), np.nan, dtype=np.float32),
        }
    for trace in traces:
        rank = trace.rank
        if rank is None:
            continue
        if trace.has_marks or not any_marks:
            table.add(rank, trace.steps, _sure_sections(trace), started_s=trace.started_s)
        elif trace.rows is not None:
            trace.rows.step[:] = -1
        if trace.rows is not None:
            rows.append((rank, trace.rows))
            trace.rows = None
    timings, notes = table.build(SOURCE)
    return timings, notes, rows


def _mostly_hidden(traces: Sequence[Trace]) -> list[Trace]:
    """Traces whose own time cannot be set beside that of others, since too much of it may lie in sends and receives.

    Where that is so of most ranks the parts of the job's steps do not add up, which everybody sees; where it is so of
    few, these would pass for ranks with little own work.
    """
    if not traces or float(np.median([trace.hidden for trace in traces])) > MAX_HIDDEN:
        return []
    return [trace for trace in traces if trace.hidden > MAX_HIDDEN and Section.UNSPLIT in trace.sections]


def _sure_sections(trace: Trace) -> Sections:
    """All of a whole trace; of a cut one what its marks say, since the rest of a step may stand behind the cut."""
    if trace.is_whole:
        return trace.sections
    return {Section.STEP: trace.sections[Section.STEP]} if trace.has_marks else {}


def _places(traces: Sequence[Trace]) -> list[Place]:
    devices = {trace.device for trace in traces}
    # Every rank on device 0: each sees one GPU only (CUDA_VISIBLE_DEVICES), and the number is not the host's.
    tells_index = len(devices) > 1 or len({trace.rank for trace in traces}) == 1
    return [_place(trace, tells_index=tells_index) for trace in traces if trace.rank is not None]


def _place(trace: Trace, *, tells_index: bool) -> Place:
    host = trace.header.host or host_of_name(trace.path)
    device = trace.device if trace.device is not None and trace.device >= 0 else None
    model = trace.header.gpu_models.get(device) if device is not None else None
    index = device if tells_index else None
    has_gpu = index is not None or model is not None
    return Place(
        rank=trace.rank if trace.rank is not None else -1,
        host=host,
        local_rank=index,
        gpu=GpuRef(host=host, index=index, model=model) if has_gpu else None,
        coords=trace.coords,
    )


def _alone(traces: Sequence[Trace]) -> list[StepTimings]:
    """Traces without a rank, each by itself with a number below zero: there is nobody to compare them with."""
    alone = []
    for number, trace in enumerate(traces, start=1):
        if not len(trace.steps):
            continue
        sections: dict[Section, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {
            section: values[np.newaxis] for section, values in _sure_sections(trace).items()
        }
        place = replace(_place(trace, tells_index=True), rank=-number, coords={})
        alone.append(
            StepTimings(
                source=f"{SOURCE} (rank not told)",
                places=(place,),
                steps=trace.steps,
                sections=sections,
                started_s=trace.started_s,
                world_size=trace.header.world_size,
            )
        )
    return alone
