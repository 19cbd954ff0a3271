"""The times of one loop on one rank, as they travel; rows and arrivals from those of all ranks.

What other ranks send is not trusted: it is looked at before it is used. Ranks whose samples are missing or have
another length than the others' are left out; a row is made of those that remain.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from distdoctor.nccl_bench.definitions import algbw_gbps, busbw_gbps
from distdoctor.nccl_bench.facts.lateness import Arrival, ArrivalsOfGroup
from distdoctor.nccl_bench.facts.rows import Group, Row, Style
from distdoctor.ranks.messages import PayloadError

Times = NDArray[np.float32]
"""Microseconds, one element an iteration that was kept."""

# Iterations of a loop that are kept, at most: the 99th percentile needs a hundred. Our own choice.
MAX_KEPT = 128

# A loop has at most some hundred iterations; more are nonsense from a peer. Our own bound.
_MAX_ITERS = 1_000_000

# A time of a day, in microseconds; the watchdog ends a run long before. Our own bound.
_MAX_TIME_US = 86_400e6

_VERSION = 1
# Version; 1: all four columns, 0: total alone; iterations; every how many were kept; microseconds of the loop.
_HEAD = struct.Struct("<BBIId")
_ALL_COLUMNS = 4


class LoopTimes(Protocol):
    """What a loop measured, in sequences of equal length; microseconds."""

    @property
    def own_us(self) -> Sequence[float]:
        """From the previous iteration's end until handed in."""

    @property
    def barrier_us(self) -> Sequence[float]:
        """Waiting in the barrier before."""

    @property
    def operation_us(self) -> Sequence[float]:
        """From handed in to complete."""

    @property
    def total_us(self) -> Sequence[float]:
        """What a bandwidth is computed from."""

    @property
    def loop_us(self) -> float:
        """The whole loop."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankSamples:
    """One loop on one rank; every `every`-th of its iterations, float32."""

    iters: int
    """Iterations that were run."""
    every: int
    total_us: Times
    loop_us: float
    own_us: Times | None = None
    """None, like the two below, where nothing stood between iterations: streaming tells nothing of arrivals."""
    barrier_us: Times | None = None
    operation_us: Times | None = None

    @classmethod
    def of(cls, loop: LoopTimes) -> RankSamples:
        """At most MAX_KEPT iterations of a loop, the same ones on all ranks that made equally many."""
        iters = len(loop.total_us)
        isolated = any(loop.barrier_us)
        every = max(1, -(-iters // MAX_KEPT))

        def kept(column: Sequence[float]) -> Times:
            return np.asarray(column[::every], dtype=np.float32)

        return cls(
            iters=iters,
            every=every,
            total_us=kept(loop.total_us),
            loop_us=loop.loop_us,
            own_us=kept(loop.own_us) if isolated else None,
            barrier_us=kept(loop.barrier_us) if isolated else None,
            operation_us=kept(loop.operation_us) if isolated else None,
        )

    def encode(self) -> bytes:
        """A head of 18 bytes and 4 bytes a number, little-endian."""
        columns = [self.total_us]
        columns += [each for each in (self.own_us, self.barrier_us, self.operation_us) if each is not None]
        head = _HEAD.pack(_VERSION, int(len(columns) == _ALL_COLUMNS), self.iters, self.every, self.loop_us)
        return head + b"".join(column.astype("<f4").tobytes() for column in columns)

    @classmethod
    def decode(cls, data: bytes) -> RankSamples:
        """Raises PayloadError for another version, lengths that do not agree, and numbers that are no times."""
        if len(data) < _HEAD.size:
            raise PayloadError(f"samples of {len(data)} bytes")
        version, isolated, iters, every, loop_us = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise PayloadError(f"samples of version {version}; this is {_VERSION}")
        if isolated > 1 or not 1 <= iters <= _MAX_ITERS or every < 1:
            raise PayloadError(f"samples of every {every}th of {iters} iterations")
        kept = -(-iters // every)
        num_columns = _ALL_COLUMNS if isolated else 1
        if kept > MAX_KEPT or len(data) != _HEAD.size + 4 * kept * num_columns:
            raise PayloadError(f"samples of {kept} iterations in {len(data)} bytes")
        numbers = np.frombuffer(data, dtype="<f4", offset=_HEAD.size).astype(np.float32)
        columns = numbers.reshape(num_columns, kept)
        times = np.append(columns.ravel(), np.float32(min(loop_us, 2 * _MAX_TIME_US)))
        # A NaN passes no comparison.
        if not bool(np.all((times >= 0) & (times <= _MAX_TIME_US))):
            raise PayloadError("samples that are no times")
        return cls(
            iters=iters,
            every=every,
            total_us=columns[0],
            loop_us=loop_us,
            own_us=columns[1] if isolated else None,
            barrier_us=columns[2] if isolated else None,
            operation_us=columns[3] if isolated else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowHeader:
    """What a row says beside its times."""

    collective: str
    group: Group
    size_bytes: int
    dtype: str = "float32"
    op: str | None = None
    in_place: bool | None = None
    style: Style = Style.STREAMING
    concurrent: bool = False


def row_from_samples(header: RowHeader, repeats: Sequence[Mapping[int, RankSamples]]) -> Row | None:
    """The row of one collective at one size; `repeats` holds each repeat's samples by global rank. None without any.

    An iteration's time is that of the slowest rank; a repeat's the median of those; the row's the median of the
    repeats'. Minimum, maximum and percentiles (nearest rank, as nccl-tests) are over the iterations of all repeats,
    the mean is over ranks as well.
    """
    usable = [tuple(same_length(each).values()) for each in repeats]
    tables = [np.stack([samples.total_us for samples in each]).astype(np.float64) for each in usable if each]
    if not tables:
        return None
    slowest = np.concatenate([table.max(axis=0) for table in tables])
    fastest = np.concatenate([table.min(axis=0) for table in tables])
    repeats_us = tuple(float(np.median(table.max(axis=0))) for table in tables)
    time_us = float(np.median(repeats_us))
    num_ranks = len(header.group.ranks)
    return Row(
        collective=header.collective,
        group=header.group,
        num_ranks=num_ranks,
        size_bytes=header.size_bytes,
        dtype=header.dtype,
        op=header.op,
        in_place=header.in_place,
        style=header.style,
        concurrent=header.concurrent,
        iters=max(each[0].iters for each in usable if each),
        time_us=time_us,
        repeats_us=repeats_us if len(repeats_us) > 1 else (),
        min_us=float(slowest.min()),
        max_us=float(slowest.max()),
        p95_us=_nearest_rank(slowest, 95),
        p99_us=_nearest_rank(slowest, 99),
        mean_us=float(np.mean(np.concatenate([table.ravel() for table in tables]))),
        fastest_rank_us=float(np.median(fastest)),
        algbw_gbps=algbw_gbps(header.size_bytes, time_us),
        busbw_gbps=busbw_gbps(header.collective, header.size_bytes, time_us, num_ranks),
    )


def arrivals_from_samples(
    group: Group, collective: str, size_bytes: int, repeats: Sequence[Mapping[int, RankSamples]]
) -> ArrivalsOfGroup | None:
    """Who arrives late, from isolated loops. Ranks that any repeat lacks are left out; None when none remains.

    In every iteration the rank that waited least, in barrier and collective together, came last; what the others
    waited beyond it is their waiting. Two ranks that waited equally little both came last.
    """
    told = [
        {rank: samples for rank, samples in each.items() if samples.operation_us is not None}
        for each in map(same_length, repeats)
    ]
    told = [each for each in told if each]
    ranks = sorted(set.intersection(*(set(each) for each in told))) if told else []
    if not ranks:
        return None
    own = _joined(told, ranks, "own_us")
    operation = _joined(told, ranks, "operation_us")
    waits = _joined(told, ranks, "barrier_us") + operation
    beyond = waits - waits.min(axis=0)
    arrivals = tuple(
        Arrival(
            rank=rank,
            own_us=float(np.median(own[index])),
            wait_us=float(np.median(beyond[index])),
            last_share=float(np.mean(beyond[index] == 0)),
            iterations=own.shape[1],
            own_p90_us=_nearest_rank(own[index], 90),
        )
        for index, rank in enumerate(ranks)
    )
    return ArrivalsOfGroup(
        group_label=group.label,
        collective=collective,
        size_bytes=size_bytes,
        arrivals=arrivals,
        transfer_us=float(np.median(operation.min(axis=0))),
    )


def same_length(samples: Mapping[int, RankSamples]) -> dict[int, RankSamples]:
    """The ranks, in order, that ran and kept as many iterations as most of them did."""
    shapes = Counter((each.iters, each.every, each.operation_us is None) for each in samples.values())
    if not shapes:
        return {}
    usual = shapes.most_common(1)[0][0]
    return {
        rank: each
        for rank, each in sorted(samples.items())
        if (each.iters, each.every, each.operation_us is None) == usual
    }


def _joined(
    repeats: Sequence[Mapping[int, RankSamples]], ranks: Sequence[int], column: str
) -> NDArray[np.float64]:
    """One row for each rank: its times of all repeats, one after another."""
    return np.stack(
        [np.concatenate([getattr(each[rank], column) for each in repeats]) for rank in ranks]
    ).astype(np.float64)


def _nearest_rank(values: NDArray[np.float64], percent: float) -> float:
    """Always one of the values; p99 of fewer than 100 is the largest."""
    index = max(1, int(np.ceil(percent * values.size / 100))) - 1
    return float(np.partition(values, index)[index])
