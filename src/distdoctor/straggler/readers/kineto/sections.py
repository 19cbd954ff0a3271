"""Times of each step of one rank, out of its device's and host's events.

COMPUTE is the union of compute kernels over all streams; COMM adds NCCL's, so it is exposed communication; H2D adds
copies to the device. They tell how long the device was at it. DATA is time of the host, in the data loader's
`__next__`; STEP is the host's mark. All in milliseconds, shape (steps,).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.kineto.gather import Activities, Floats, Ints
from distdoctor.straggler.readers.kineto.intervals import Busy, union_us
from distdoctor.straggler.readers.kineto.names import Work
from distdoctor.straggler.readers.kineto.windows import Windows

Sections = Mapping[Section, NDArray[np.float32]]


def device_sections(work: Activities, step_of: Ints, windows: Windows) -> Sections:
    """COMPUTE, H2D, IDLE and, where there is any, COMM. A step without work of the device has NaN."""
    num_steps = len(windows.numbers)
    end_us = work.start_us + work.dur_us
    compute, h2d, comm, done_us = (np.full(num_steps, np.nan) for _ in range(4))
    for step, rows in _by_step(step_of):
        start, end, kind = work.start_us[rows], end_us[rows], work.work[rows]
        is_compute = kind == Work.COMPUTE
        is_copy = kind == Work.H2D
        is_comm = (kind == Work.NCCL) | (kind == Work.OTHER_COMM)
        compute[step] = union_us(start[is_compute], end[is_compute])
        for array, more in ((h2d, is_copy), (comm, is_comm)):
            both = is_compute | more
            array[step] = union_us(start[both], end[both]) - compute[step] if more.any() else 0.0
        done_us[step] = np.max(end)
    sections = {
        Section.COMPUTE: compute,
        Section.H2D: h2d,
        Section.IDLE: _idle_us(work.start_us, end_us, done_us, windows),
    }
    if np.any((work.work == Work.NCCL) | (work.work == Work.OTHER_COMM)):
        sections[Section.COMM] = comm
    return {section: _ms(values) for section, values in sections.items()}


def host_sections(
    loader: tuple[Floats, Floats], collector: tuple[Floats, Floats], windows: Windows
) -> Sections:
    """STEP, and where the trace has any of it: DATA (the data loader) and GC (Python's collector)."""
    sections = {Section.STEP: _ms(windows.end_us - windows.start_us)}
    for section, (start, dur) in ((Section.DATA, loader), (Section.GC, collector)):
        if len(start):
            sections[section] = _ms(_union_by_step(start, dur, windows))
    return sections


def host_only_sections(
    collectives: tuple[Floats, Floats],
    sends: tuple[Floats, Floats],
    op_starts: Floats,
    windows: Windows,
    data_ms: NDArray[np.float32] | None,
) -> tuple[Sections, Floats]:
    """COMM and UNSPLIT of a trace without a device: collectives on the CPU, and the rest of the step without input.

    What overlaps with a collective counts as the collective's, so UNSPLIT is the least that it can be. A send or
    receive lasts from its posting to its `wait()`: where operations began meanwhile it is neither waiting nor own work
    for sure, and in no section. Also returned: how much of each step that is, as a share.

    collectives, sends: starts and durations. op_starts: when operations began, ascending.
    """
    start, dur = sends
    began = np.searchsorted(op_starts, start + dur, side="left") - np.searchsorted(
        op_starts, start, side="right"
    )
    waits = began <= 0
    sure = [np.concatenate([one, each[waits]]) for one, each in zip(collectives, sends, strict=True)]
    everything = [np.concatenate(both) for both in zip(collectives, sends, strict=True)]
    comm = _union_by_step(sure[0], sure[1], windows)
    told = _union_by_step(everything[0], everything[1], windows)
    step = windows.end_us - windows.start_us
    rest = np.maximum(step - told, 0.0)
    if data_ms is not None:
        rest = np.maximum(rest - np.nan_to_num(data_ms) * 1e3, 0.0)
    hidden: Floats = (told - comm) / np.where(step > 0, step, np.nan)
    return {Section.COMM: _ms(comm), Section.UNSPLIT: _ms(rest)}, hidden


def _idle_us(start: Floats, end: Floats, done: Floats, windows: Windows) -> Floats:
    """Time in which the device did nothing, from the end of the last step's work to the end of this step's.

    So waiting for data before the first kernel counts in the step that waits. The first step of a row of steps
    counts from its beginning on the host.
    """
    busy = Busy.of(start, end)
    began = windows.start_us.copy()
    began[1:] = np.where((np.diff(windows.numbers) == 1) & ~np.isnan(done[:-1]), done[:-1], began[1:])
    known = ~np.isnan(done)
    idle = np.full(len(done), np.nan)
    if known.any():
        idle[known] = (done[known] - began[known]) - (busy.until(done[known]) - busy.until(began[known]))
    not_negative: Floats = np.maximum(idle, 0.0)
    return not_negative


def _by_step(step_of: Ints) -> Iterator[tuple[int, Ints]]:
    """Each step with the indexes of its rows."""
    order = np.argsort(step_of, kind="stable")
    steps, begins = np.unique(step_of[order], return_index=True)
    for position, step in enumerate(steps.tolist()):
        if step >= 0:
            end = begins[position + 1] if position + 1 < len(begins) else len(order)
            yield step, order[begins[position] : end]


def _union_by_step(start: Floats, dur: Floats, windows: Windows) -> Floats:
    """How much of each step lies in the union of these intervals of the host; 0 where none does."""
    busy = Busy.of(start, start + dur)
    return busy.until(windows.end_us) - busy.until(windows.start_us)


def _ms(values: Floats) -> NDArray[np.float32]:
    return (values / 1000.0).astype(np.float32)
