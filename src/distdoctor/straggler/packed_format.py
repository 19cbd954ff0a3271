"""What `straggler pack` writes into the metadata of a Parquet file, and how it is read back: one JSON object.

Columns are rank, step, started_s and `<section>_ms`; rows are sorted by rank, then by step, and every rank has every
step of its file, so that a column is an array of ranks × steps without looking at the first two.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.report.model import GpuRef
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.sections import Section

PACKED_VERSION = 1
METADATA_KEY = b"distdoctor"

RANK_COLUMN = "rank"
STEP_COLUMN = "step"
STARTED_COLUMN = "started_s"

MAX_RANKS = 1_000_000
# Steps of one file.
MAX_STEPS = 20_000_000


def section_column(section: Section) -> str:
    """Name of the column of a section, in milliseconds."""
    return f"{section.value}_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedHead:
    """What one packed file says of itself."""

    source: str
    places: tuple[Place, ...]
    """By rank in ascending order."""
    steps: NDArray[np.int64]
    world_size: int | None
    notes: tuple[Note, ...]


class _Gpu(msgspec.Struct, omit_defaults=True):
    index: int | None = None
    uuid: str | None = None
    pci: str | None = None
    model: str | None = None


class _Place(msgspec.Struct, omit_defaults=True):
    rank: int
    host: str | None = None
    local_rank: int | None = None
    pod: str | None = None
    gpu: _Gpu | None = None
    coords: dict[str, int] = {}


class _Note(msgspec.Struct, omit_defaults=True):
    kind: str
    text: str
    how: str | None = None


class _Head(msgspec.Struct, omit_defaults=True):
    packed: int
    source: str
    places: list[_Place]
    steps: list[tuple[int, int, int]]
    """First step, number of steps, distance: one entry for each evenly spaced stretch."""
    world_size: int | None = None
    notes: list[_Note] = []


def encode_head(head: PackedHead) -> bytes:
    """The JSON that goes under `METADATA_KEY`."""
    return msgspec.json.encode(
        _Head(
            packed=PACKED_VERSION,
            source=head.source,
            places=[_told(place) for place in head.places],
            steps=stretches(head.steps),
            world_size=head.world_size,
            notes=[_Note(note.kind.value, note.text, note.how) for note in head.notes],
        )
    )


def decode_head(data: bytes) -> PackedHead:
    """Raises InputError with one line when it is broken or of a newer version."""
    try:
        version = json.loads(data)["packed"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError("its distdoctor metadata are broken") from None
    if isinstance(version, int) and version > PACKED_VERSION:
        raise InputError(
            f"it is packed in format {version}, and this distdoctor reads up to {PACKED_VERSION}",
            hint="install a newer distdoctor",
        )
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InputError(f"its distdoctor metadata are broken: {str(error)[:100]}") from None
    ranks = [place.rank for place in head.places]
    if not ranks or sorted(set(ranks)) != ranks or ranks[0] < 0 or ranks[-1] >= MAX_RANKS:
        raise InputError("its distdoctor metadata name no ranks in order")
    return PackedHead(
        source=head.source[:200],
        places=tuple(_place(place) for place in head.places),
        steps=_steps(head.steps),
        world_size=head.world_size if head.world_size and 0 < head.world_size <= MAX_RANKS else None,
        notes=tuple(_note(note) for note in head.notes[:256]),
    )


def stretches(steps: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Ascending numbers as (first, how many, distance), so that 5,000 steps are three numbers."""
    found: list[tuple[int, int, int]] = []
    start = 0
    gaps = np.diff(steps)
    # Where the distance changes, a stretch may end.
    changes = np.flatnonzero(np.diff(gaps) != 0) + 1 if len(gaps) > 1 else np.empty(0, np.int64)
    for end in [*changes.tolist(), len(steps) - 1]:
        if end < start:
            continue
        count = end - start + 1
        found.append((int(steps[start]), count, int(gaps[start]) if count > 1 else 1))
        start = end + 1
    return found


def _steps(told: Sequence[tuple[int, int, int]]) -> NDArray[np.int64]:
    if sum(max(0, count) for _, count, _ in told) > MAX_STEPS or any(
        not (0 <= first < 2**53 and count > 0 and 0 < gap < 2**40) for first, count, gap in told
    ):
        raise InputError("its distdoctor metadata name no steps that can be")
    parts = [first + gap * np.arange(count, dtype=np.int64) for first, count, gap in told]
    steps = np.concatenate(parts) if parts else np.empty(0, np.int64)
    if not len(steps) or np.any(np.diff(steps) <= 0):
        raise InputError("its distdoctor metadata name no steps in order")
    return steps


def _told(place: Place) -> _Place:
    gpu = place.gpu
    return _Place(
        rank=place.rank,
        host=place.host,
        local_rank=place.local_rank,
        pod=place.pod,
        gpu=_Gpu(index=gpu.index, uuid=gpu.uuid, pci=gpu.pci, model=gpu.model) if gpu else None,
        coords=dict(place.coords),
    )


def _place(told: _Place) -> Place:
    gpu = told.gpu
    return Place(
        rank=told.rank,
        host=told.host[:255] if told.host else None,
        local_rank=told.local_rank
        if told.local_rank is not None and 0 <= told.local_rank < MAX_RANKS
        else None,
        pod=told.pod[:255] if told.pod else None,
        gpu=GpuRef(host=told.host, index=gpu.index, uuid=gpu.uuid, pci=gpu.pci, model=gpu.model)
        if gpu
        else None,
        coords={name[:32]: value for name, value in list(told.coords.items())[:16] if 0 <= value < MAX_RANKS},
    )


def _note(told: _Note) -> Note:
    kinds = {kind.value: kind for kind in NoteKind}
    return Note(kind=kinds.get(told.kind, NoteKind.LIMITED), text=told.text[:1000], how=told.how)


def has_head(metadata: Any) -> bool:
    """Whether a schema's metadata are those of a packed file."""
    return bool(metadata) and METADATA_KEY in metadata
