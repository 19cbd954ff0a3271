"""How much of each communication is waiting, and how much of a worker's step neither computes.

Operations that meet end together, so the duration of one less the shortest of its group is waiting for the last to
come; what remains is moving data. No clocks are compared. An operation whose partners are not in the trace, or cannot
be told, counts as waiting as a whole.

Only exposed time counts: what lies beside computing on the same worker costs nothing. Sends and receives are posted
in pairs and overlap, so lengths of unions are taken, never sums.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.readers.op_trace.kinds import COMM, Group
from distdoctor.straggler.readers.op_trace.table import Ops

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NO_COMM = -1
_UNSEEN = -2
"""Meets workers that have no rows of their own."""
_UNKNOWN = -3
"""Its partners cannot be told."""

# Directions of point-to-point operations, so that a send of activations never meets a receive of gradients.
_DIRECTIONS = {"forward": 0, "backward": 1}


def waiting(ops: Ops, tensor: Ints, num_stages: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Of each operation of one step, how long it waits, and whether partners that it should have are missing.

    `tensor`, shape (rows,): which of several workers of equal stage and replica the row's is. What does not
    communicate waits 0.
    """
    group = _groups(ops, tensor, num_stages)
    met = group >= 0
    shortest = np.full(int(group.max(initial=-1)) + 1, np.inf)
    np.minimum.at(shortest, group[met], ops.duration[met])
    size = np.bincount(group[met], minlength=len(shortest))
    alone = group == _UNKNOWN
    alone[met] = size[group[met]] < 2
    wait = np.zeros(len(ops))
    wait[met] = ops.duration[met] - shortest[group[met]]
    whole = alone | (group == _UNSEEN)
    wait[whole] = ops.duration[whole]
    return wait, alone


def _groups(ops: Ops, tensor: Ints, num_stages: int) -> Ints:
    """Equal numbers for operations that meet; `_NO_COMM`, `_UNSEEN` or `_UNKNOWN` for those that meet nobody."""
    group = np.full(len(ops), _NO_COMM, dtype=np.int64)
    key = np.zeros((len(ops), 5), dtype=np.int64)
    side = np.zeros(len(ops), dtype=np.int64)
    seq = _sequence(ops)
    for number, name in enumerate(ops.names):
        rows = np.flatnonzero(ops.optype == number)
        if name not in COMM or not len(rows):
            continue
        kind, is_send = COMM[name]
        group[rows] = _UNSEEN if kind is Group.UNSEEN else 0
        if kind in (Group.FROM_BEFORE, Group.FROM_AFTER):
            # A link is named by the stage before it; from the last stage it goes back to the first.
            link = (ops.stage[rows] - (kind is Group.FROM_BEFORE)) % max(num_stages, 1)
            direction = _DIRECTIONS[name.partition("-")[0]]
            key[rows] = _stack(direction, ops.dp[rows], link, tensor[rows], seq[rows])
            side[rows] = 1 if is_send else -1
        elif kind is Group.REPLICAS:
            key[rows] = _stack(10 + number, ops.stage[rows], 0, tensor[rows], seq[rows])
        elif kind is Group.ENDS:
            key[rows] = _stack(10 + number, ops.dp[rows], 0, tensor[rows], seq[rows])
        elif kind is Group.ALL:
            key[rows] = _stack(10 + number, 0, 0, 0, seq[rows])
    links = np.flatnonzero(side)
    if len(links):
        # Where sends and receives of a link differ in number, which meets which is not known: with interleaved
        # stages the trace also holds operations that were never launched.
        at = _dense(key[links, :4])
        group[links[np.bincount(at, weights=side[links])[at] != 0]] = _UNKNOWN
    meets = np.flatnonzero(group == 0)
    group[meets] = _dense(key[meets])
    return group


def _stack(kind: int, *parts: NDArray[np.generic] | int) -> Ints:
    size = max(len(part) for part in parts if not isinstance(part, int))
    return np.stack([np.broadcast_to(np.asarray(part, np.int64), size) for part in (kind, *parts)], axis=1)


def _sequence(ops: Ops) -> Ints:
    """Each row's number among those of its worker and type: as told, or counted by start."""
    if not len(ops) or ops.seq.min() >= 0:
        return ops.seq.astype(np.int64)
    key = _dense(np.stack([ops.rank.astype(np.int64), ops.optype.astype(np.int64)], axis=1))
    order = np.lexsort((ops.start, key))
    first = np.searchsorted(key[order], key[order], side="left")
    counted = np.empty(len(ops), dtype=np.int64)
    counted[order] = np.arange(len(ops)) - first
    return counted


def _dense(columns: Ints) -> Ints:
    """Equal rows get equal numbers from 0 on."""
    key = np.zeros(len(columns), dtype=np.int64)
    for column in columns.T:
        _, inverse = np.unique(column, return_inverse=True)
        # Both are below the number of rows, so that the product fits.
        _, key = np.unique(key * (len(columns) + 1) + inverse.reshape(-1), return_inverse=True)
        key = key.reshape(-1)
    return key


def covered(row: NDArray[np.integer], start: Floats, end: Floats, num_rows: int) -> Floats:
    """Length of the union of intervals in each of `num_rows` rows, in the unit of `start`; shape (num_rows,)."""
    if not len(row):
        return np.zeros(num_rows)
    begin = float(start.min())
    # Rows are laid one behind another on one axis, so far apart that they cannot touch.
    width = float(end.max()) - begin + 1.0
    left = start - begin + row * width
    right = end - begin + row * width
    order = np.argsort(left, kind="stable")
    left, right = left[order], right[order]
    reached = np.maximum.accumulate(right)
    before = np.concatenate(([-np.inf], reached[:-1]))
    lengths: Floats = np.maximum(right - np.maximum(left, before), 0.0)
    return np.bincount(row[order], weights=lengths, minlength=num_rows).astype(np.float64)
