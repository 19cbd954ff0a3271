"""How near does the replay of the caching allocator come to what torch reserved on a GPU?

    python benchmarks/oom_allocator.py [FILE_OR_FOLDER ...] [-o FILE.md]

Reads memory snapshots whose history is complete from the first segment on, and replays their allocations and frees in
order. Also reads profiler traces with memory events (`profile_memory=True`): they begin in the middle, so their one
step is repeated over a block that stands for what was there before. What cannot be used is listed with the reason.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from distdoctor.errors import DistdoctorError
from distdoctor.oom.allocator.blocks import Block
from distdoctor.oom.allocator.caching import CachingAllocator
from distdoctor.oom.allocator.options import AllocatorOptions, parse_allocator_conf
from distdoctor.oom.facts.snapshot import ORDINARY_POOL, DeviceState, EventKind
from distdoctor.oom.snapshots.files import sniff_snapshot
from distdoctor.oom.snapshots.read import read_snapshot
from distdoctor.units import MIB

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"

# A step from a trace is repeated until its reserved bytes stand still; this often at most.
MAX_REPEATS = 12

_GROWS = (EventKind.SEGMENT_ALLOC, EventKind.SEGMENT_MAP)
_SHRINKS = (EventKind.SEGMENT_FREE, EventKind.SEGMENT_UNMAP)


@dataclass(frozen=True)
class Row:
    """One source. Bytes; `why_not` instead of numbers where it cannot be used."""

    source: str
    kind: str
    num_events: int = 0
    real: int = 0
    replayed: int = 0
    remark: str = ""
    why_not: str = ""


def main() -> int:
    """Print the table; 2 when there is nothing to read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[CASES])
    parser.add_argument("-o", "--output", type=Path, help="write the table as Markdown")
    options = parser.parse_args()
    rows = [row for path in files_in(options.paths) for row in rows_of(path)]
    if not rows:
        print("error: no memory snapshot and no trace with memory events was found", file=sys.stderr)
        return 2
    text = table(rows)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


def files_in(paths: list[Path]) -> Iterator[Path]:
    """Files that may be snapshots or traces, in order."""
    for path in paths:
        yield from sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def rows_of(path: Path) -> list[Row]:
    """Rows for one file; none when it is neither a snapshot nor a trace with memory events."""
    if path.name.endswith((".json", ".json.gz")):
        return trace_rows(path)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        try:
            head = file.read(4096)
        except (OSError, EOFError):
            return []
    if not sniff_snapshot(str(path), head):
        return []
    try:
        snapshot, _ = read_snapshot(str(path))
        options = parse_allocator_conf(snapshot.settings.text or "")
    except DistdoctorError as error:
        return [Row(path.name, "snapshot", why_not=error.message)]
    if snapshot.settings.expandable_segments:
        options = replace(options, expandable_segments=True)
    return [snapshot_row(f"{path.name}, device {each.device}", each, options) for each in snapshot.devices]


def snapshot_row(name: str, state: DeviceState, options: AllocatorOptions) -> Row:
    """The peaks of reserved bytes, and how many segments came as predicted."""
    events = state.events
    if events is None or not len(events):
        return Row(name, "snapshot", why_not="no history was recorded")
    grown = sum(size for kind, size in zip(events.kinds, events.sizes, strict=True) if kind in _GROWS)
    shrunk = sum(size for kind, size in zip(events.kinds, events.sizes, strict=True) if kind in _SHRINKS)
    before = sum(each.total_size for each in state.segments) - grown + shrunk
    if before:
        return Row(
            name, "snapshot", why_not=f"{before / MIB:.0f} MiB were reserved before the history begins"
        )
    if any(events.pool(index) not in (None, ORDINARY_POOL) for index in range(len(events))):
        return Row(name, "snapshot", why_not="private pools (CUDA graphs), which are not modelled")
    allocator = CachingAllocator(options)
    live: dict[int, Block] = {}
    real = peak_real = peak_ours = num_segments = num_right = foreseen = 0
    for index in range(len(events)):
        kind, address, size = events.kinds[index], events.addresses[index], events.sizes[index]
        if kind in _GROWS:
            real += size
            num_segments += kind == EventKind.SEGMENT_ALLOC
            foreseen += size
        elif kind in _SHRINKS:
            # When and why the driver's memory ran short is not modelled; that it was given back is taken over.
            if allocator.reserved > real - size:
                allocator.empty_cache()
            real -= size
        elif kind == EventKind.ALLOC:
            held = allocator.reserved
            block = allocator.allocate(max(1, size), events.stream(index))
            assert block is not None
            live[address] = block
            # Segments are recorded just before the allocation that needed them.
            num_right += bool(foreseen) and allocator.reserved - held == foreseen
            foreseen = 0
        elif kind == EventKind.FREE_COMPLETED and address in live:
            allocator.free(live.pop(address))
        peak_real, peak_ours = max(peak_real, real), max(peak_ours, allocator.reserved)
    remark = f"{num_right} of {num_segments} segments foreseen, event by event" if num_segments else ""
    return Row(name, "snapshot", len(events), peak_real, peak_ours, remark)


def trace_rows(path: Path) -> list[Row]:
    """A row for each device of a profiler trace that has memory events."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            trace = json.load(file)
    except (OSError, EOFError, ValueError):
        return []
    listed = trace.get("traceEvents") if isinstance(trace, dict) else None
    devices: dict[int, list[dict[str, int]]] = {}
    for event in listed if isinstance(listed, list) else []:
        if (
            isinstance(event, dict)
            and event.get("name") == "[memory]"
            and event["args"].get("Device Id", -1) >= 0
        ):
            devices.setdefault(event["args"]["Device Id"], []).append(event["args"])
    name = "/".join(path.parts[-2:])
    return [trace_row(f"{name}, device {device}", events) for device, events in sorted(devices.items())]


def trace_row(name: str, events: list[dict[str, int]]) -> Row:
    """One step, repeated over a block for what was there before."""
    real = max(each["Total Reserved"] for each in events)
    if any(each["Total Reserved"] != real for each in events):
        return Row(
            name, "trace", why_not="reserved changes within the trace, and what was free before is not told"
        )
    before = events[0]["Total Allocated"] - events[0]["Bytes"]
    allocator = CachingAllocator(AllocatorOptions())
    allocator.allocate(before)
    reserved = -1
    repeats = 0
    while reserved != allocator.reserved and repeats < MAX_REPEATS:
        reserved = allocator.reserved
        repeats += 1
        live: dict[int, Block] = {}
        for each in events:
            if each["Bytes"] > 0:
                block = allocator.allocate(each["Bytes"])
                assert block is not None
                live[each["Addr"]] = block
            elif each["Addr"] in live:
                allocator.free(live.pop(each["Addr"]))
        for block in live.values():
            allocator.free(block)
    remark = f"begins with {before / MIB:.0f} MiB in unknown places; its step repeated {repeats} times"
    return Row(name, "trace", len(events), real, allocator.reserved, remark)


def table(rows: list[Row]) -> str:
    """Rows with numbers, then what could not be used."""
    used = [row for row in rows if not row.why_not]
    lines = [
        "| source | kind | events | reserved MiB | replayed MiB | difference | remark |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.source} | {row.kind} | {row.num_events} | {row.real / MIB:.0f} | {row.replayed / MIB:.0f} "
        f"| {100 * (row.replayed - row.real) / row.real:+.2f} % | {row.remark} |"
        for row in used
    ]
    if not any(row.kind == "snapshot" for row in used):
        lines += ["", "No memory snapshot that could be used was found."]
    if len(used) < len(rows):
        lines += ["", "Not used:", ""]
        lines += [f"- {row.source}: {row.why_not}" for row in rows if row.why_not]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
