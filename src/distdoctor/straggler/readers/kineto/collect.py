"""Collectives of one trace as rows: communicator, step, times and bytes of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.collectives import Group
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.kineto.gather import P2P_OPS, Collectives, Floats, GroupKey, Ints
from distdoctor.straggler.readers.kineto.groups import Registry
from distdoctor.straggler.readers.kineto.match import Rows, rows_of


@dataclass(frozen=True, slots=True)
class Took:
    """What the trace tells of collectives, and the times of the things that they are."""

    told: Collectives
    start_us: Floats
    dur_us: Floats
    step_of: Ints
    """Index of the step of each thing; -1: of none."""
    at: Ints
    """Which thing each collective is; -1: one that is left out."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What indexes and keys of this trace mean."""

    named: Mapping[GroupKey, Group | None]
    registry: Registry
    step_numbers: Ints
    base_s: float
    """Added to times, seconds since 1970 UTC; NaN: not known."""


def places_of(told: Collectives, is_mine: NDArray[np.bool_]) -> Ints:
    """Places of collectives among the activities of one device; -1: on another device."""
    place = np.where(is_mine, np.cumsum(is_mine) - 1, -1)
    return place[np.array(told.at, dtype=np.int64)].astype(np.int64)


def collect_rows(
    took: Took, labels: Labels, options: ReadOptions, *, has_p2p_calls: bool, max_rows: int
) -> tuple[Rows | None, int, int]:
    """The rows; how many calls have no known peer and so are in none; how many of later steps had no room."""
    told = took.told
    num = len(told.at)
    group = np.full(num, -1, dtype=np.int64)
    op = np.zeros(num, dtype=np.int64)
    seq = np.array(told.seq, dtype=np.int64)
    num_unpaired = 0
    for row, (key, name) in enumerate(zip(told.group, told.op, strict=True)):
        known = labels.named[key]
        is_p2p = name in P2P_OPS
        # Without metadata "send_recv" is an all-to-all, unless the trace holds calls of sends or receives.
        if known is None or (is_p2p and key.op is None and (has_p2p_calls or name != "send_recv")):
            num_unpaired += 1
            continue
        number = labels.registry.group(known)
        group[row] = -1 if number is None else number
        op[row] = labels.registry.op("send_recv" if is_p2p else name)
        if is_p2p:
            seq[row] = -1  # torch counts sends and receives apart from collectives
    step = _steps(took, labels.step_numbers)
    wanted = (step < 0) | options.wants_each(step)
    if options.first_step is not None or options.last_step is not None:
        wanted &= step >= 0
    keep = (group >= 0) & (took.at >= 0) & wanted
    num_wanted = int(np.count_nonzero(keep))
    if num_wanted > max_rows:
        keep &= _first_steps(step, keep, max_rows)
    num_left_out = num_wanted - int(np.count_nonzero(keep))
    if not keep.any():
        return None, num_unpaired, num_left_out
    at = took.at[keep]
    rows = rows_of(
        group=group[keep],
        op=op[keep],
        seq=seq[keep],
        step=step[keep],
        start_us=took.start_us[at],
        dur_us=took.dur_us[at],
        num_bytes=np.array(told.num_bytes, dtype=np.int64)[keep],
        base_s=labels.base_s,
    )
    return rows, num_unpaired, num_left_out


def _first_steps(step: Ints, keep: NDArray[np.bool_], max_rows: int) -> NDArray[np.bool_]:
    """Rows of as many whole steps from the first as there is room for: all ranks then keep much the same steps."""
    steps, counts = np.unique(step[keep], return_counts=True)
    num_steps = int(np.searchsorted(np.cumsum(counts), max_rows, side="right"))
    return np.isin(step, steps[:num_steps])


def _steps(took: Took, numbers: Ints) -> Ints:
    step = np.full(len(took.at), -1, dtype=np.int64)
    here = np.flatnonzero(took.at >= 0)
    index = took.step_of[took.at[here]]
    if len(numbers):
        step[here] = np.where(index >= 0, numbers[np.maximum(index, 0)], -1)
    return step
