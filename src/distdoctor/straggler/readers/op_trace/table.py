"""Rows of an operation trace as compact columns: 29 bytes an operation, row group by row group."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.straggler.readers.base import ReadOptions

REQUIRED = ("rank", "step", "optype", "start_ts", "duration", "dp_rank", "stage")

# `seq_id` counts operations of one type, step and worker by their start, so it can be counted here.
OPTIONAL = ("seq_id",)

# 16 ranks × 44 steps of 32 micro-batches are 117,000 rows. 7 million took 1.0 GB and 6 s while they were worked on; beyond
# 10 million a range of steps must be given. Our own limit.
MAX_ROWS = 10_000_000

MAX_RANKS = 1_000_000
MAX_NUMBER = 1 << 31

# Rows that are turned into arrays at once.
BATCH_ROWS = 1 << 18

# An operation that takes longer than this is no measurement, whatever the unit.
MAX_TIME = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """Operations, arrays of shape (rows,)."""

    rank: NDArray[np.int32]
    dp: NDArray[np.int32]
    stage: NDArray[np.int32]
    step: NDArray[np.int64]
    optype: NDArray[np.int16]
    """Index into `names`."""
    start: NDArray[np.float64]
    duration: NDArray[np.float64]
    seq: NDArray[np.int32]
    """-1: not told."""
    names: tuple[str, ...]
    num_dropped: int = 0
    """Rows with values that cannot be."""

    def __len__(self) -> int:
        return len(self.rank)

    def take(self, rows: NDArray[Any]) -> Ops:
        """Only these rows, copied."""
        return Ops(
            **{
                each.name: getattr(self, each.name)[rows]
                for each in fields(Ops)
                if each.name not in ("names", "num_dropped")
            },
            names=self.names,
            num_dropped=self.num_dropped,
        )


def join_ops(parts: list[Ops]) -> Ops:
    """Rows of several files or batches as one table."""
    if len(parts) == 1:
        return parts[0]
    names: dict[str, int] = {}
    optypes = []
    for part in parts:
        new = np.array([names.setdefault(name, len(names)) for name in part.names], dtype=np.int16)
        optypes.append(new[part.optype])
    return Ops(
        **{
            each.name: np.concatenate([getattr(part, each.name) for part in parts])
            for each in fields(Ops)
            if each.name not in ("names", "num_dropped", "optype")
        },
        optype=np.concatenate(optypes),
        names=tuple(names),
        num_dropped=sum(part.num_dropped for part in parts),
    )


def read_table(path: str, options: ReadOptions) -> Ops:
    """The rows of one Parquet file. Raises InputError: pyarrow is missing, columns are lacking, it is broken."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"`{path}` is Parquet, which needs pyarrow", hint='pip install "distdoctor[parquet]"'
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            names = set(file.schema_arrow.names)
            lacking = [name for name in REQUIRED if name not in names]
            if lacking:
                raise InputError(f"`{path}` lacks the columns {', '.join(lacking)}")
            columns = [name for name in (*REQUIRED, *OPTIONAL) if name in names]
            return _read_batches(path, file.iter_batches(BATCH_ROWS, columns=columns), options)
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, OverflowError, MemoryError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"cannot read `{path}` as Parquet: {lines[0][:200]}") from None


def _read_batches(path: str, batches: Any, options: ReadOptions) -> Ops:
    parts: list[Ops] = []
    num_rows = 0
    for batch in batches:
        part = _ops_of(batch, options)
        num_rows += len(part)
        if num_rows > MAX_ROWS:
            raise InputError(
                f"`{path}` holds more than {MAX_ROWS:,} operations", hint="give a range: `--steps 1000:1100`"
            )
        parts.append(part)
    if not parts:
        raise InputError(f"`{path}` has no rows")
    return join_ops(parts)


def _ops_of(batch: Any, options: ReadOptions) -> Ops:
    """One batch of pyarrow; rows without numbers, or with impossible ones, are left out and counted."""
    integers = {name: _integers(batch.column(name)) for name in ("rank", "dp_rank", "stage", "step")}
    rank, dp, stage, step = (values for values, _ in integers.values())
    good = np.ones(len(rank), dtype=bool)
    for _, known in integers.values():
        good &= known
    start, duration = _floats(batch.column("start_ts")), _floats(batch.column("duration"))
    optype, names = _words(batch.column("optype"))
    if "seq_id" in batch.schema.names:
        seq, seq_known = _integers(batch.column("seq_id"))
        seq = np.where(seq_known & (seq >= 0) & (seq < MAX_NUMBER), seq, -1)
    else:
        seq = np.full(len(rank), -1, dtype=np.int64)
    with np.errstate(invalid="ignore"):
        good &= (rank >= 0) & (rank < MAX_RANKS) & (np.abs(step) < MAX_NUMBER)
        good &= (dp >= -1) & (dp < MAX_RANKS) & (stage >= -1) & (stage < MAX_RANKS)
        good &= (np.abs(start) < MAX_TIME) & (duration >= 0) & (duration < MAX_TIME) & (optype >= 0)
    num_dropped = int(len(good) - np.count_nonzero(good))
    good &= options.wants_each(step)
    return Ops(
        rank=rank[good].astype(np.int32),
        dp=dp[good].astype(np.int32),
        stage=stage[good].astype(np.int32),
        step=step[good],
        optype=optype[good].astype(np.int16),
        start=start[good],
        duration=duration[good],
        seq=seq[good].astype(np.int32),
        names=names,
        num_dropped=num_dropped,
    )


def _integers(column: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole numbers and which of them are there. Raises ValueError or TypeError for other types."""
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind in "iu":
        # Beyond 2^63 wraps to negative, which is out of every bound.
        return values.astype(np.int64), np.ones(len(values), dtype=bool)
    numbers = values.astype(np.float64)
    known = np.isfinite(numbers) & (np.abs(numbers) < MAX_NUMBER) & (numbers == np.floor(numbers))
    return np.where(known, numbers, 0).astype(np.int64), known


def _floats(column: Any) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return values


def _words(column: Any) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Text as indexes into its distinct values; -1 where it is missing."""
    import pyarrow

    if not pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words = tuple(" ".join(str(word).split())[:100] for word in column.dictionary.to_pylist())
    if len(words) > 30_000:
        raise ValueError("the column optype has more than 30,000 different values")
    indexes = column.indices.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.nan_to_num(indexes, nan=-1.0).astype(np.int32), words
