"""What each rank measured in each cell, kept in the store from the moment it is measured.

Whoever reports reads what is there: all of it after a complete run, the rows so far after a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from distdoctor.nccl_bench.facts.rows import Group
from distdoctor.nccl_bench.plan import Cell
from distdoctor.ranks.store import StoreLostError, TimedStore

# One rank's samples of one cell and repeat: four arrays of at most 100 numbers of 4 bytes, and a head.
MAX_RECORD_BYTES = 64 * 1024

# Values asked for in one call, so that it ends within the store's time limit. Our own choice.
_VALUES_PER_CALL = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRun:
    """A cell as it was run: in these groups at once, `number` in the order of the run."""

    number: int
    stage: str
    groups: tuple[Group, ...]
    cell: Cell
    num_repeats: int
    computing: bool = False

    @property
    def concurrent(self) -> bool:
        """Several groups ran at once."""
        return len(self.groups) > 1


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rank's part in one cell and repeat."""

    size_bytes: int
    """What was moved, by nccl-tests' definition and rounding."""
    samples: bytes = b""
    """Times of the iterations (`analysis.samples`)."""
    validated: bool = False
    wrong_elements: int = 0
    wrong_example: str = ""


def record_key(number: int, repeat: int, rank: int) -> str:
    """Where a rank puts its record."""
    return f"cell/{number}/{repeat}/{rank}"


def done_key(number: int, repeat: int) -> str:
    """Where ranks note that their record is there."""
    return f"cell/{number}/{repeat}/done"


def encode_record(record: Record) -> bytes:
    """The record as MessagePack."""
    return msgspec.msgpack.encode(record)


def read_records(
    store: TimedStore, runs: Iterable[CellRun], world_size: int
) -> Mapping[int, Mapping[int, Mapping[int, Record]]]:
    """number → repeat → rank → record, of what is there. A store that is lost in between ends it early."""
    found: dict[int, dict[int, dict[int, Record]]] = {}
    for run in runs:
        for repeat in range(run.num_repeats):
            try:
                records = _read(store, run.number, repeat, world_size)
            except StoreLostError:
                return found
            if not records:
                break
            found.setdefault(run.number, {})[repeat] = records
    return found


def _read(store: TimedStore, number: int, repeat: int, world_size: int) -> dict[int, Record]:
    ranks = sorted(store.ranks_in(done_key(number, repeat), world_size))
    records: dict[int, Record] = {}
    for start in range(0, len(ranks), _VALUES_PER_CALL):
        part = ranks[start : start + _VALUES_PER_CALL]
        values = store.get_many([record_key(number, repeat, rank) for rank in part])
        records.update(_decoded(part, values))
    return records


def _decoded(ranks: Sequence[int], values: Sequence[bytes]) -> Iterable[tuple[int, Record]]:
    for rank, value in zip(ranks, values, strict=True):
        if len(value) > MAX_RECORD_BYTES:
            continue
        try:
            yield rank, msgspec.msgpack.decode(value, type=Record)
        except msgspec.DecodeError:
            continue
