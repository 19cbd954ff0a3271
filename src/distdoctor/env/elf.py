"""What an ELF file asks of the loader (NEEDED, SONAME, RPATH, RUNPATH), and where its sections lie.

Read with `struct` alone from the parts that are needed, so that a libtorch_cuda.so of gigabytes costs a few
reads. Layout: System V ABI, chapters 4 and 5 (gabi41), and the 32-bit variant of the same tables.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

# Tables in real libraries hold tens of entries; more is junk or an attack on our memory.
MAX_TABLE_ENTRIES = 4096
MAX_DYNAMIC_BYTES = 1 << 20
MAX_STRING_BYTES = 4096
MAX_NAME_TABLE_BYTES = 1 << 20

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29


@dataclass(frozen=True, slots=True, kw_only=True)
class ElfDynamic:
    """The dynamic section, as far as the choice of libraries depends on it."""

    bits: int
    """32 or 64."""
    machine: int
    """e_machine: 62 is x86-64, 183 is AArch64."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    """DT_RPATH, split at ':'; `$ORIGIN` is left as it stands."""
    runpath: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Layout:
    """How this file's numbers are packed."""

    bits: int
    machine: int
    program_offset: int
    program_size: int
    program_count: int
    section_offset: int
    section_size: int
    section_count: int
    section_names: int
    order: str


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    file_size: int


def read_elf_dynamic(path: Path) -> ElfDynamic:
    """The dynamic section of `path`; empty for a static executable.

    Raises OSError when it cannot be read, ValueError when it is no ELF file or its tables make no sense.
    """
    with path.open("rb") as stream:
        layout = _read_layout(stream)
        segments = _read_segments(stream, layout)
        dynamic = next((each for each in segments if each.kind == _PT_DYNAMIC), None)
        if dynamic is None:
            return ElfDynamic(bits=layout.bits, machine=layout.machine)
        entries = _read_dynamic(stream, layout, dynamic)
        table = next((value for tag, value in entries if tag == _DT_STRTAB), None)
        if table is None:
            raise ValueError(f"{path}: dynamic section without a string table")
        strings = _file_offset(segments, table)
        texts = [
            (tag, _read_string(stream, strings + value))
            for tag, value in entries
            if tag in (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH)
        ]
    return ElfDynamic(
        bits=layout.bits,
        machine=layout.machine,
        soname=next((text for tag, text in texts if tag == _DT_SONAME), None),
        needed=tuple(text for tag, text in texts if tag == _DT_NEEDED),
        rpath=_search_path(texts, _DT_RPATH),
        runpath=_search_path(texts, _DT_RUNPATH),
    )


def section_range(path: Path, name: str) -> tuple[int, int] | None:
    """(offset, size) in the file of the section `name`; None when it has no such section.

    Raises OSError, ValueError as `read_elf_dynamic`.
    """
    with path.open("rb") as stream:
        layout = _read_layout(stream)
        if not layout.section_offset or not layout.section_count:
            return None
        headers = _read_sections(stream, layout)
        if layout.section_names >= len(headers):
            raise ValueError(f"{path}: section names are missing")
        _, offset, size = headers[layout.section_names]
        names = _read_at(stream, offset, min(size, MAX_NAME_TABLE_BYTES), exact=False)
    for at, section_offset, section_size in headers:
        if names[at : at + len(name) + 1] == name.encode() + b"\0":
            return section_offset, section_size
    return None


def _read_layout(stream: BinaryIO) -> _Layout:
    head = stream.read(64)
    if len(head) < 52 or head[:4] != b"\x7fELF":
        raise ValueError("not an ELF file")
    bits = {1: 32, 2: 64}.get(head[4])
    order = {1: "<", 2: ">"}.get(head[5])
    if bits is None or order is None or (bits == 64 and len(head) < 64):
        raise ValueError("unknown kind of ELF file")
    form = "HHIQQQIHHHHHH" if bits == 64 else "HHIIIIIHHHHHH"
    values = struct.unpack_from(order + form, head, 16)
    layout = _Layout(
        bits=bits,
        order=order,
        machine=values[1],
        program_offset=values[4],
        section_offset=values[5],
        program_size=values[8],
        program_count=values[9],
        section_size=values[10],
        section_count=values[11],
        section_names=values[12],
    )
    if max(layout.program_count, layout.section_count) > MAX_TABLE_ENTRIES:
        raise ValueError("ELF header names too many entries")
    return layout


def _read_segments(stream: BinaryIO, layout: _Layout) -> list[_Segment]:
    form = "IIQQQQQQ" if layout.bits == 64 else "IIIIIIII"
    segments = []
    for row in _read_table(stream, layout.program_offset, layout.program_size, layout.program_count):
        values = _unpack(layout, form, row)
        if layout.bits == 64:
            kind, _, offset, address, _, file_size, _, _ = values
        else:
            kind, offset, address, _, file_size, _, _, _ = values
        segments.append(_Segment(kind, offset, address, file_size))
    return segments


def _read_sections(stream: BinaryIO, layout: _Layout) -> list[tuple[int, int, int]]:
    """(place of the name, offset, size) of each section."""
    form = "IIQQQQIIQQ" if layout.bits == 64 else "IIIIIIIIII"
    rows = _read_table(stream, layout.section_offset, layout.section_size, layout.section_count)
    sections = []
    for row in rows:
        values = _unpack(layout, form, row)
        sections.append((values[0], values[4], values[5]))
    return sections


def _read_dynamic(stream: BinaryIO, layout: _Layout, segment: _Segment) -> list[tuple[int, int]]:
    data = _read_at(stream, segment.offset, min(segment.file_size, MAX_DYNAMIC_BYTES))
    form = layout.order + ("qQ" if layout.bits == 64 else "iI")
    size = struct.calcsize(form)
    entries: list[tuple[int, int]] = []
    for tag, value in struct.iter_unpack(form, data[: len(data) // size * size]):
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
        if len(entries) > MAX_TABLE_ENTRIES:
            raise ValueError("dynamic section has too many entries")
    return entries


def _read_table(stream: BinaryIO, offset: int, size: int, count: int) -> list[bytes]:
    if count == 0:
        return []
    if not 8 <= size <= 1024:
        raise ValueError("ELF table has entries of an impossible size")
    data = _read_at(stream, offset, size * count)
    return [data[at : at + size] for at in range(0, size * count, size)]


def _unpack(layout: _Layout, form: str, row: bytes) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout.order + form, row)
    except struct.error:
        raise ValueError("ELF table has entries of an impossible size") from None


def _file_offset(segments: list[_Segment], address: int) -> int:
    """Where in the file the byte at a virtual address lies."""
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.file_size:
            return segment.offset + address - segment.address
    raise ValueError("the string table lies outside the file")


def _read_string(stream: BinaryIO, offset: int) -> str:
    data = _read_at(stream, offset, MAX_STRING_BYTES, exact=False)
    end = data.find(b"\0")
    if end < 0:
        raise ValueError("a string in the dynamic section has no end")
    return data[:end].decode("utf-8", "replace")


def _read_at(stream: BinaryIO, offset: int, size: int, *, exact: bool = True) -> bytes:
    try:
        stream.seek(offset)
    except (OverflowError, ValueError, OSError) as error:  # beyond what the file system can address
        raise ValueError(f"ELF offset out of range: {error}") from None
    data = stream.read(size)
    if exact and len(data) < size:
        raise ValueError("ELF file is cut short")
    return data


def _search_path(texts: list[tuple[int, str]], wanted: int) -> tuple[str, ...]:
    joined = next((text for tag, text in texts if tag == wanted), "")
    return tuple(part for part in joined.split(":") if part)
