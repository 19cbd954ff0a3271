"""Where do the ranks of a table run? From the columns of its last row of each rank, unless it moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from distdoctor.report.model import GpuRef
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.readers.column_plan import Plan
from distdoctor.straggler.readers.columns import MAX_RANKS, Role
from distdoctor.straggler.readers.raw_table import RawTable

# Columns that say nothing of a place.
_NO_PLACES = frozenset({Role.RANK, Role.WORLD_SIZE, Role.ATTEMPT})


def places_of(
    table: RawTable,
    plan: Plan,
    ranks: NDArray[np.float64],
    is_kept: NDArray[np.bool_],
    defaults: dict[str, object],
) -> list[Place]:
    """A place for each rank; `ranks` and `is_kept` have shape (rows,), `defaults` hold for the whole file."""
    if not (set(plan.places) - _NO_PLACES or plan.coords or defaults):
        return []
    rows = np.flatnonzero(is_kept)
    distinct, last = np.unique(ranks[rows][::-1], return_index=True)
    cells = _Cells(table, plan, rows[len(rows) - 1 - last], defaults)
    moved = set(moved_ranks(table, plan, ranks, is_kept))
    return [
        replace(place, host=None, local_rank=None, gpu=None, pod=None) if place.rank in moved else place
        for place in (
            cells.place(index, rank) for index, rank in enumerate(distinct.astype(np.int64).tolist())
        )
    ]


def moved_ranks(
    table: RawTable, plan: Plan, ranks: NDArray[np.float64], is_kept: NDArray[np.bool_]
) -> list[int]:
    """Ranks whose rows name several hosts, as after a restart: on which of them they were slow is not told."""
    words = table.words(plan.places[Role.HOST].name) if Role.HOST in plan.places else None
    if words is None:
        return []
    codes = words[0]
    rows = np.flatnonzero(is_kept & (codes >= 0))
    if not len(rows):
        return []
    rows = rows[np.argsort(ranks[rows], kind="stable")]
    distinct, first = np.unique(ranks[rows], return_index=True)
    differ = np.minimum.reduceat(codes[rows], first) != np.maximum.reduceat(codes[rows], first)
    return [int(rank) for rank in distinct[differ]]


class _Cells:
    """Words and numbers of the rows that tell where ranks run."""

    def __init__(
        self, table: RawTable, plan: Plan, rows: NDArray[np.intp], defaults: dict[str, object]
    ) -> None:
        self._words: dict[Role, list[str | None]] = {}
        self._defaults = defaults
        for role in (Role.HOST, Role.POD, Role.GPU, Role.GPU_UUID, Role.GPU_PCI, Role.GPU_MODEL):
            words = table.words(plan.places[role].name) if role in plan.places else None
            if words is not None:
                codes, texts = words
                self._words[role] = [texts[code] if code >= 0 else None for code in codes[rows].tolist()]
        self._local = (
            table.numbers(plan.places[Role.LOCAL_RANK].name)[rows] if Role.LOCAL_RANK in plan.places else None
        )
        self._coords = {
            column.coord: table.numbers(column.name)[rows]
            for column in plan.coords
            if column.coord is not None
        }

    def place(self, index: int, rank: int) -> Place:
        """Of the rank whose row is at `index`."""
        local = self._local[index] if self._local is not None else self._defaults.get("local_rank")
        coords = {name: _small_int(values[index]) for name, values in self._coords.items()}
        return Place(
            rank=rank,
            host=self._word(Role.HOST, index),
            local_rank=_small_int(local),
            gpu=self._gpu(index),
            pod=self._word(Role.POD, index),
            coords={name: value for name, value in coords.items() if value is not None},
        )

    def _word(self, role: Role, index: int) -> str | None:
        words = self._words.get(role)
        if words is not None and words[index] is not None:
            return words[index]
        default = self._defaults.get({Role.HOST: "host", Role.POD: "pod"}.get(role, ""))
        return str(default)[:255] if isinstance(default, str) and default else None

    def _gpu(self, index: int) -> GpuRef | None:
        name = self._word(Role.GPU, index) or ""
        number = name.rpartition(":")[2] if not name.lower().startswith("gpu-") else ""
        try:
            ordinal = _small_int(float(number)) if number and name.count(":") < 2 else None
        except ValueError:
            ordinal = None
        uuid = self._word(Role.GPU_UUID, index) or (name if name.lower().startswith("gpu-") else None)
        gpu = GpuRef(
            host=self._word(Role.HOST, index),
            index=ordinal,
            pci=self._word(Role.GPU_PCI, index) or (name if name.count(":") == 2 else None),
            uuid=uuid,
            model=self._word(Role.GPU_MODEL, index),
        )
        return gpu if gpu.index is not None or gpu.pci or gpu.uuid or gpu.model else None


def _small_int(value: object) -> int | None:
    """A whole number from 0 to a million, else None."""
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if 0 <= number < MAX_RANKS and number == int(number) else None
