"""One snapshot file: its bytes, unpickled without trust, as facts."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

from distdoctor.errors import InputError
from distdoctor.evidence import MAX_HASHED_BYTES, STDIN, read_bounded
from distdoctor.oom.facts.snapshot import AllocatorSettings, DeviceState, Segment, Snapshot
from distdoctor.oom.snapshots.machine import DEFAULT_MAX_BYTES, Refused
from distdoctor.oom.snapshots.names import host_of, rank_of
from distdoctor.oom.snapshots.packing import SnapshotPacker
from distdoctor.oom.snapshots.unpickle import Loaded, load_pickle
from distdoctor.report.model import InputFile
from distdoctor.units import MIB, format_bytes

KIND = "torch memory snapshot"

HOW_TO_DUMP = 'write it with `torch.cuda.memory._dump_snapshot("snapshot.pickle")`'

# Most devices that one process sees. Our own bound.
MAX_DEVICES = 64


def read_snapshot(path: str, *, max_bytes: int = DEFAULT_MAX_BYTES) -> tuple[Snapshot, InputFile]:
    """The snapshot in the file `path`, and what a report says of the file. gzip is unpacked.

    `max_bytes` bounds the memory that reading it takes (bytes, the file itself included). Raises InputError with one
    line when the file cannot be read, is no snapshot, is damaged, would run code, or needs more memory.
    """
    stored = _stored_bytes(path, max_bytes)
    data = _unpacked(path, stored, max_bytes) if stored[:2] == b"\x1f\x8b" else stored
    sha256 = hashlib.sha256(stored).hexdigest() if len(stored) <= MAX_HASHED_BYTES else None
    num_bytes = len(stored)
    del stored
    snapshot = snapshot_of(data, path=path, max_bytes=max_bytes)
    return snapshot, InputFile(
        path=path, kind=KIND, bytes=num_bytes, sha256=sha256, why_not="; ".join(snapshot.notes) or None
    )


def snapshot_of(data: bytes, *, path: str, max_bytes: int = DEFAULT_MAX_BYTES) -> Snapshot:
    """The snapshot that these bytes hold. Raises InputError, as `read_snapshot` does."""
    name = f"`{path}`"
    if (other := _something_else(data)) is not None:
        what, hint = other
        raise InputError(f"{name} {what}", hint=hint)
    packer = SnapshotPacker()
    try:
        loaded = load_pickle(data, packer, max_bytes=max_bytes)
    except Refused as refused:
        raise InputError(f"{name} {refused}", hint=HOW_TO_DUMP) from None
    return _facts(path, loaded, packer)


def _stored_bytes(path: str, max_bytes: int) -> bytes:
    name = "standard input" if path == STDIN else f"`{path}`"
    if path == STDIN:
        raise InputError("a memory snapshot cannot be read from standard input", hint="give it as a file")
    try:
        size = Path(path).stat().st_size
        if size > max_bytes:
            raise InputError(
                f"{name} has {format_bytes(size)}, more than the limit of {format_bytes(max_bytes)}",
                hint="raise --memory-limit, or record with a smaller max_entries",
            )
        # A pipe has no size; then a small snapshot is all that is taken.
        data = read_bounded(path, size or min(max_bytes, 64 * MIB))
    except FileNotFoundError:
        raise InputError(f"{name} is not there") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    if not data:
        raise InputError(f"{name} is empty")
    return data


def _unpacked(path: str, data: bytes, max_bytes: int) -> bytes:
    machine = zlib.decompressobj(wbits=31)
    # The packed and the unpacked bytes, and what is read from them, must fit together.
    most = max(0, (max_bytes - len(data)) // 2)
    try:
        out = machine.decompress(data, most + 1)
    except zlib.error as error:
        raise InputError(f"`{path}` is damaged gzip: {error}") from None
    if len(out) > most:
        raise InputError(
            f"`{path}` unpacks to more than {format_bytes(most)}, half of the limit of {format_bytes(max_bytes)}"
        )
    return out


def _something_else(data: bytes) -> tuple[str, str | None] | None:
    """What these bytes are when their beginning says that they are no snapshot."""
    start = data[:512].lstrip().lower()
    if data[:4] == b"PK\x03\x04":
        what = "is a zip archive, as torch.save writes checkpoints; a memory snapshot is a plain pickle"
        return what, HOW_TO_DUMP
    if start.startswith((b"<!doctype", b"<html")):
        what = "is a web page made of a snapshot; the snapshot itself (.pickle) is needed"
        return what, HOW_TO_DUMP
    if start[:1] in (b"{", b"[") and start[1:2] not in (b"(", b"q", b"r", b"\x94", b"."):
        return "is JSON, not the pickle that torch writes", HOW_TO_DUMP
    return None


def _facts(path: str, loaded: Loaded, packer: SnapshotPacker) -> Snapshot:
    value = loaded.value
    if isinstance(value, list) and value and all(type(each) is Segment for each in value):
        # `torch.cuda.memory_snapshot()`, and `_snapshot()` before torch 2.0, give the bare list of segments.
        value = {"segments": value}
    if not isinstance(value, dict):
        raise InputError(f"`{path}` is a pickle, but no memory snapshot", hint=HOW_TO_DUMP)
    segments = value.get("segments")
    if not isinstance(segments, list):
        if loaded.is_cut:
            raise InputError(
                f"`{path}` ends before its first list does: cut off, or no pickle", hint=HOW_TO_DUMP
            )
        raise InputError(
            f"`{path}` is a pickle, but no memory snapshot: it has no `segments`", hint=HOW_TO_DUMP
        )
    if not all(type(each) is Segment for each in segments):
        raise InputError(
            f"`{path}` is no memory snapshot: a segment is not described as one", hint=HOW_TO_DUMP
        )
    traces = value.get("device_traces")
    states = _devices(segments, traces if isinstance(traces, list) and not loaded.is_cut else [], packer)
    return Snapshot(
        path=path,
        devices=states,
        settings=_settings(value.get("allocator_settings")),
        rank=rank_of(path),
        host=host_of(path),
        has_stacks=any(each.frames for each in packer.stack_list),
        is_cut=loaded.is_cut,
        notes=tuple(_notes(loaded, packer)),
    )


def _devices(
    segments: list[Segment], traces: list[object], packer: SnapshotPacker
) -> tuple[DeviceState, ...]:
    found = sorted(
        {each.device for each in segments} | {number for number, each in enumerate(traces) if each}
    )
    states = []
    for device in found[:MAX_DEVICES]:
        trace = traces[device] if device < len(traces) else None
        own = tuple(each for each in segments if each.device == device)
        events = packer.events_of(trace) if isinstance(trace, list) else None
        states.append(DeviceState(device=device, segments=own, events=events))
    return tuple(states)


def _settings(value: object) -> AllocatorSettings:
    if not isinstance(value, dict):
        return AllocatorSettings()
    text = value.get("PYTORCH_CUDA_ALLOC_CONF", value.get("PYTORCH_ALLOC_CONF"))
    expandable, split = value.get("expandable_segments"), value.get("max_split_size")
    threshold = value.get("garbage_collection_threshold")
    return AllocatorSettings(
        text=text[:400] if type(text) is str else None,
        expandable_segments=expandable if type(expandable) is bool else None,
        # Unlimited is written as the largest number, which is -1 once torch has made it signed.
        max_split_size=split if type(split) is int and 0 < split < 1 << 60 else None,
        garbage_collection_threshold=threshold if type(threshold) is float else None,
    )


def _notes(loaded: Loaded, packer: SnapshotPacker) -> list[str]:
    notes = []
    if loaded.is_cut:
        notes.append("the file is cut off: the blocks were read, the history was not")
    if loaded.trailing_bytes:
        notes.append(f"{format_bytes(loaded.trailing_bytes)} after the end of the pickle were not looked at")
    if packer.num_odd:
        notes.append(f"{packer.num_odd} events are of a kind that is unknown here, or lack a size")
    return notes
