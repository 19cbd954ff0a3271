"""Which step each event belongs to.

Work of the device belongs to the step that launched it: the host runs ahead, so the device may be a step behind. Where
the trace holds no launch for a piece of work, it belongs to the step of the work before it on the device; where it
holds no launch at all, to the step during which it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.readers.kineto.gather import Activities, Floats, Ints

# The last step of a trace is left out when it lasts less than this part of the others' median: the profiler was
# stopped right after it began. Our own threshold; in real traces it is below 1 %.
STUB_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Windows:
    """Steps in the order of time, shape (steps,)."""

    numbers: Ints
    start_us: Floats
    end_us: Floats

    def at(self, times: Floats) -> NDArray[np.int64]:
        """Index of the step during which each time lies, or just after which; -1: before the first, after the last."""
        if not len(self.numbers):
            return np.full(len(times), -1, dtype=np.int64)
        index = np.searchsorted(self.start_us, times, side="right") - 1
        follows = np.append(np.diff(self.numbers) == 1, False)
        until = np.where(follows, np.append(self.start_us[1:], np.inf), self.end_us)
        return np.where((index >= 0) & (times <= until[np.maximum(index, 0)]), index, -1)


def windows_of(numbers: Sequence[int], start: Floats, dur: Floats) -> tuple[Windows, int | None]:
    """The steps of one trace, and the number of a last one that was left out as a stub."""
    steps = np.array(numbers, dtype=np.int64)
    order = np.argsort(start, kind="stable")
    steps, start, dur = steps[order], start[order], dur[order]
    # Two profilers at once mark each step twice.
    first = np.sort(np.unique(steps, return_index=True)[1])
    steps, start, dur = steps[first], start[first], dur[first]
    stub = None
    if len(steps) > 1 and dur[-1] < STUB_SHARE * np.median(dur[:-1]):
        stub = int(steps[-1])
        steps, start, dur = steps[:-1], start[:-1], dur[:-1]
    return Windows(steps, start, start + dur), stub


def steps_of_work(work: Activities, launch_ids: Ints, launch_us: Floats, windows: Windows) -> Ints:
    """Index of the step of each activity, shape (activities,); -1: of none."""
    launched = _launch_times(work.correlation, launch_ids, launch_us)
    if np.all(np.isnan(launched)):
        return windows.at(work.start_us)
    steps = np.full(len(launched), -1, dtype=np.int64)
    order = np.argsort(work.start_us, kind="stable")
    times = launched[order]
    known = ~np.isnan(times)
    # The latest known one before each, on any stream of the device.
    last_known = np.maximum.accumulate(np.where(known, np.arange(len(times)), -1))
    at = windows.at(np.where(known, times, 0.0))
    steps[order] = np.where(last_known >= 0, at[np.maximum(last_known, 0)], -1)
    return steps


def _launch_times(wanted: Ints, ids: Ints, times: Floats) -> Floats:
    """When each id was launched; NaN where that is not in the trace."""
    found = np.full(len(wanted), np.nan)
    if not len(ids) or not len(wanted):
        return found
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    is_there = (ordered[at] == wanted) & (wanted > 0)
    found[is_there] = times[order][at[is_there]]
    return found
