"""The smallest shared library that a loader would read: headers, a dynamic section, strings, constants."""

from __future__ import annotations

import struct

X86_64, AARCH64 = 62, 183
_BASE = 0x10000
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29


def build_elf(
    *,
    soname: str | None = None,
    needed: tuple[str, ...] = (),
    rpath: str | None = None,
    runpath: str | None = None,
    constants: bytes = b"",
    machine: int = X86_64,
    bits: int = 64,
) -> bytes:
    """An ELF file with these entries and `constants` in .rodata; nothing in it can be run."""
    strings = bytearray(b"\0")

    def text(value: str) -> int:
        strings.extend(value.encode() + b"\0")
        return len(strings) - 1 - len(value.encode())

    entries = [(_NEEDED, text(name)) for name in needed]
    entries += [
        (tag, text(value))
        for tag, value in ((_SONAME, soname), (_RPATH, rpath), (_RUNPATH, runpath))
        if value
    ]
    header_size, program_size, section_size = (64, 56, 64) if bits == 64 else (52, 32, 40)
    strings_at = header_size + 2 * program_size
    dynamic_at = strings_at + len(strings)
    word = "<qQ" if bits == 64 else "<iI"
    entries.append((_STRTAB, _BASE + strings_at))
    dynamic = b"".join(struct.pack(word, tag, value) for tag, value in [*entries, (0, 0)])
    names = b"\0.rodata\0.shstrtab\0"
    constants_at = dynamic_at + len(dynamic)
    names_at = constants_at + len(constants)
    sections_at = names_at + len(names)
    total = sections_at
    header = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1, 1]) + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH" if bits == 64 else "<HHIIIIIHHHHHH",
        3, machine, 1, 0, header_size, sections_at, 0, header_size, program_size, 2, section_size, 3, 2,
    )  # fmt: skip
    if bits == 64:
        programs = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, total, total, 0x1000)
        programs += struct.pack(
            "<IIQQQQQQ", 2, 6, dynamic_at, _BASE + dynamic_at, 0, len(dynamic), len(dynamic), 8
        )
        sections = bytes(64)
        sections += struct.pack(
            "<IIQQQQIIQQ", 1, 1, 2, _BASE + constants_at, constants_at, len(constants), 0, 0, 1, 0
        )
        sections += struct.pack("<IIQQQQIIQQ", 9, 3, 0, 0, names_at, len(names), 0, 0, 1, 0)
    else:
        programs = struct.pack("<IIIIIIII", 1, 0, _BASE, _BASE, total, total, 5, 0x1000)
        programs += struct.pack(
            "<IIIIIIII", 2, dynamic_at, _BASE + dynamic_at, 0, len(dynamic), len(dynamic), 6, 8
        )
        sections = bytes(40)
        sections += struct.pack(
            "<IIIIIIIIII", 1, 1, 2, _BASE + constants_at, constants_at, len(constants), 0, 0, 1, 0
        )
        sections += struct.pack("<IIIIIIIIII", 9, 3, 0, 0, names_at, len(names), 0, 0, 1, 0)
    return header + programs + bytes(strings) + dynamic + constants + names + sections


def build_nccl(version: str, cuda: str = "12.8", **attributes: object) -> bytes:
    """A libnccl.so.2 that carries NCCL's banner among other text."""
    banner = b"unrelated NCCL version %d.%d\0" + f"NCCL version {version}+cuda{cuda}".encode() + b"\0more\0"
    return build_elf(soname="libnccl.so.2", constants=banner, **attributes)  # type: ignore[arg-type]


def build_loader_cache(libraries: list[tuple[str, str]]) -> bytes:
    """A /etc/ld.so.cache of format 1.1 that lists (name, path)."""
    strings = bytearray()
    rows = b""
    first = 48 + 24 * len(libraries)
    for name, path in libraries:
        name_at = first + len(strings)
        strings += name.encode() + b"\0"
        path_at = first + len(strings)
        strings += path.encode() + b"\0"
        rows += struct.pack("=iIIIQ", 0x303, name_at, path_at, 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("=II", len(libraries), len(strings)) + bytes(20)
    return header + rows + bytes(strings)
