"""A small caching allocator that writes memory snapshots as torch does, for tests.

Sizes are rounded, segments sized and split, and events recorded by the rules of torch's allocator, so that what is
read from a snapshot can be compared with what is known here. Addresses are invented; nothing needs a GPU.
"""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

START_US = 1_760_000_000_000_000


@dataclass
class FakeBlock:
    address: int
    size: int
    requested: int = 0
    state: str = "inactive"
    frames: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class FakeSegment:
    device: int
    address: int
    size: int
    stream: int
    pool: tuple[int, int]
    is_small: bool
    is_expandable: bool
    frames: list[dict[str, Any]]
    blocks: list[FakeBlock]


class SnapshotWorld:
    """One process: devices, streams, pools, what is recorded, and which torch writes it."""

    def __init__(
        self,
        *,
        total: int = 80 * GIB,
        outside: int = 1 * GIB,
        history: str | None = "all",
        stacks: bool = True,
        max_entries: int | None = None,
        expandable: bool = False,
        torch: tuple[int, int] = (2, 13),
        split_limit: int | None = None,
    ) -> None:
        self.total, self.outside = total, outside
        self.history, self.stacks = history, stacks
        self.expandable, self.torch, self.split_limit = expandable, torch, split_limit
        self.segments: list[FakeSegment] = []
        self.traces: dict[int, deque[dict[str, Any]]] = {}
        self.max_entries = max_entries
        self.clock_us = START_US
        self.next_address = 0x7F00_0000_0000
        self._frames: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._no_frames: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []

    # --- what a program does --------------------------------------------------------------------------------

    def alloc(
        self,
        size: int,
        *stack: str,
        stream: int = 0,
        pool: tuple[int, int] = (0, 0),
        device: int = 0,
    ) -> int | None:
        """Address of a new block, or None after an `oom` event. `stack` is innermost first: "file.py:12:name"."""
        frames = self.frames(stack)
        rounded = max(512, -(-size // 512) * 512)
        found = self._find(rounded, stream, pool, device)
        if found is None and not self._grow(rounded, stream, pool, device, frames):
            self.release_cached(device, frames)
            if not self._grow(rounded, stream, pool, device, frames):
                self._record(device, "oom", self.device_free(device), rounded, stream, pool, frames)
                return None
        segment, block = found or self._find(rounded, stream, pool, device)  # type: ignore[misc]
        rest = block.size - rounded
        if rest >= 512 if segment.is_small else rest > MIB:
            spare = FakeBlock(block.address + rounded, rest, frames=self._no_frames)
            segment.blocks.insert(segment.blocks.index(block) + 1, spare)
            block.size = rounded
        block.state, block.requested = "active_allocated", size
        block.frames = frames if self.history else self._no_frames
        self._record(device, "alloc", block.address, size, stream, pool, frames)
        return block.address

    def free(self, address: int, *stack: str, pending: bool = False) -> None:
        """Let go of a block; `pending`: another stream still uses it."""
        segment, block = self._at(address)
        frames = self.frames(stack) if stack else block.frames
        here = (segment.stream, segment.pool, frames)
        self._record(segment.device, "free_requested", address, block.requested, *here)
        block.state = "active_pending_free"
        if not pending:
            self.complete(address, frames)

    def complete(self, address: int, frames: list[dict[str, Any]] | None = None) -> None:
        """The free that was pending is done; neighbours that are free are joined."""
        segment, block = self._at(address)
        used = block.frames if frames is None else frames
        self._record(
            segment.device, "free_completed", address, block.requested, segment.stream, segment.pool, used
        )
        block.state, block.frames = "inactive", self._no_frames
        joined: list[FakeBlock] = []
        for each in segment.blocks:
            if joined and each.state == joined[-1].state == "inactive":
                joined[-1].size += each.size
            else:
                joined.append(each)
        segment.blocks = joined

    def release_cached(self, device: int = 0, frames: list[dict[str, Any]] | None = None) -> None:
        """Give back segments of ordinary pools that hold nothing, as before an out-of-memory error."""
        for segment in [each for each in self.segments if each.device == device and each.pool == (0, 0)]:
            if all(each.state == "inactive" for each in segment.blocks):
                action = "segment_unmap" if segment.is_expandable else "segment_free"
                used = frames or self._no_frames
                self._record(
                    device, action, segment.address, segment.size, segment.stream, segment.pool, used
                )
                self.segments.remove(segment)

    def fill(self, size: int, *stack: str, leave: int) -> None:
        """Allocate blocks of `size` until the device has at most `leave` left. Raises when they do not fit."""
        while self.device_free() > leave:
            if self.alloc(size, *stack) is None:
                raise AssertionError(f"{size} bytes do not fit, and {self.device_free()} are left")

    # --- the allocator ----------------------------------------------------------------------------------------

    def reserved(self, device: int = 0) -> int:
        return sum(each.size for each in self.segments if each.device == device)

    def allocated(self, device: int = 0) -> int:
        blocks = (block for each in self.segments if each.device == device for block in each.blocks)
        return sum(each.size for each in blocks if each.state == "active_allocated")

    def device_free(self, device: int = 0) -> int:
        return self.total - self.outside - self.reserved(device)

    def _find(
        self, rounded: int, stream: int, pool: tuple[int, int], device: int
    ) -> tuple[FakeSegment, FakeBlock] | None:
        fitting = [
            (block.size, block.address, segment, block)
            for segment in self.segments
            if (segment.stream, segment.pool, segment.device) == (stream, pool, device)
            and segment.is_small == (rounded <= MIB)
            for block in segment.blocks
            if block.state == "inactive" and block.size >= rounded
        ]
        if not fitting:
            return None
        _, _, segment, block = min(fitting, key=lambda each: each[:2])
        return segment, block

    def _grow(
        self, rounded: int, stream: int, pool: tuple[int, int], device: int, frames: list[dict[str, Any]]
    ) -> bool:
        is_small = rounded <= MIB
        size = 2 * MIB if is_small else 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
        if size > self.device_free(device):
            return False
        segment = FakeSegment(
            device, self.next_address, size, stream, pool, is_small, self.expandable,
            frames if self.history else self._no_frames, [FakeBlock(self.next_address, size, frames=self._no_frames)],
        )  # fmt: skip
        self.next_address += size + 2 * MIB
        self.segments.append(segment)
        action = "segment_map" if self.expandable else "segment_alloc"
        self._record(device, action, segment.address, size, stream, pool, frames)
        return True

    def _at(self, address: int) -> tuple[FakeSegment, FakeBlock]:
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.size:
                for block in segment.blocks:
                    if block.address == address:
                        return segment, block
        raise KeyError(hex(address))

    # --- the record ---------------------------------------------------------------------------------------------

    def frames(self, stack: tuple[str, ...]) -> list[dict[str, Any]]:
        """A list of frames as torch builds it: a new list, of dicts that are shared."""
        if not self.stacks or not stack:
            return self._no_frames
        frames = []
        for each in stack:
            filename, line, name = each.rsplit(":", 2)
            key = (filename, int(line), name)
            made = {"line": key[1], "name": name, "filename": filename}
            frames.append(self._frames.setdefault(key, made))
        return frames

    def _record(
        self, device: int, action: str, address: int, size: int, stream: int, pool: tuple[int, int],
        frames: list[dict[str, Any]],
    ) -> None:  # fmt: skip
        self.clock_us += 10
        if self.history != "all":
            return
        event: dict[str, Any] = {}
        event["action"] = action
        event["device_free" if action == "oom" else "addr"] = address
        event["size"] = size
        event["stream"] = stream
        if self.torch >= (2, 2):
            event["time_us"] = self.clock_us
        if self.torch >= (2, 9):
            event["pool_id"] = tuple(pool)
            event["compile_context"] = "N/A"
            event["user_metadata"] = ""
        if frames:
            event["frames"] = frames
        self.traces.setdefault(device, deque(maxlen=self.max_entries)).append(event)

    def snapshot(self) -> dict[str, Any]:
        """The dict that `torch.cuda.memory._snapshot()` would give now."""
        num_devices = max([0, *(each.device for each in self.segments), *self.traces]) + 1
        found: dict[str, Any] = {
            "segments": [self._segment_dict(each) for each in sorted(self.segments, key=lambda x: x.address)],
            "device_traces": [list(self.traces.get(device, [])) for device in range(num_devices)],
        }
        if self.torch >= (2, 1):
            found["allocator_settings"] = {
                "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True" if self.expandable else "",
                "max_split_size": self.split_limit or -1,
                "garbage_collection_threshold": 0.0,
                "expandable_segments": self.expandable,
                "pinned_num_register_threads": 1,
                "release_lock_on_cudamalloc": False,
                "pinned_use_cuda_host_register": False,
                "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
            }
            found["external_annotations"] = self.annotations
        return found

    def _segment_dict(self, segment: FakeSegment) -> dict[str, Any]:
        active = [each for each in segment.blocks if each.state != "inactive"]
        found: dict[str, Any] = {
            "device": segment.device,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": sum(each.size for each in active if each.state == "active_allocated"),
            "active_size": sum(each.size for each in active),
            "stream": segment.stream,
            "segment_type": "small" if segment.is_small else "large",
        }
        if self.torch >= (2, 1):
            found["requested_size"] = sum(each.requested for each in active)
            found["segment_pool_id"] = tuple(segment.pool)
            found["is_expandable"] = segment.is_expandable
            found["frames"] = segment.frames
        found["blocks"] = [self._block_dict(each) for each in segment.blocks]
        return found

    def _block_dict(self, block: FakeBlock) -> dict[str, Any]:
        if self.torch >= (2, 1):
            return {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": block.state,
                "frames": block.frames,
            }
        found: dict[str, Any] = {"size": block.size, "state": block.state}
        if block.state != "inactive" and self.history:
            found["history"] = [{"addr": block.address, "real_size": block.requested, "frames": block.frames}]
        return found

    def pickled(self, *, protocol: int = 4) -> bytes:
        return pickle.dumps(self.snapshot(), protocol=protocol)

    def write(self, path: Path, *, protocol: int = 4) -> str:
        path.write_bytes(self.pickled(protocol=protocol))
        return str(path)
