"""Opcodes of single values: numbers, text, constants."""

from __future__ import annotations

import re
import struct
import sys

from distdoctor.oom.snapshots.machine import F8, I4, U1, U2, U4, U8, Handler, Machine, Refused

# Integers are addresses, sizes, times and streams, all of 64 bits; a longer one is no number of a snapshot.
MAX_INT_BYTES = 16
MAX_INT_DIGITS = 40


def _constant(value: object) -> Handler:
    def handler(machine: Machine) -> None:
        machine.push(value, 0)

    return handler


def _number(layout: struct.Struct) -> Handler:
    def handler(machine: Machine) -> None:
        (value,) = layout.unpack_from(machine.data, machine.at)
        machine.at += layout.size
        machine.push(value, 0)

    return handler


def _int_1(machine: Machine) -> None:
    value = machine.data[machine.at]
    machine.at += 1
    machine.stack.append(value)


def _long_1(machine: Machine) -> None:
    size = machine.data[machine.at]
    machine.at += 1
    _long(machine, size)


def _long_4(machine: Machine) -> None:
    (size,) = I4.unpack_from(machine.data, machine.at)
    machine.at += 4
    _long(machine, size)


def _long(machine: Machine, size: int) -> None:
    if not 0 <= size <= MAX_INT_BYTES:
        raise Refused(f"holds a number of {size} bytes, which no snapshot has")
    machine.push(int.from_bytes(machine.take(size), "little", signed=True), 0)


def _sized_text(layout: struct.Struct) -> Handler:
    def handler(machine: Machine) -> None:
        machine.text(machine.take(_size(machine, layout)))

    return handler


def _sized_bytes(layout: struct.Struct) -> Handler:
    def handler(machine: Machine) -> None:
        value = machine.take(_size(machine, layout))
        machine.push(value, sys.getsizeof(value))

    return handler


def _size(machine: Machine, layout: struct.Struct) -> int:
    (size,) = layout.unpack_from(machine.data, machine.at)
    machine.at += layout.size
    if size < 0:
        raise Refused("is damaged: it holds a text of negative length")
    return int(size)


def _int_line(machine: Machine) -> None:
    raw = machine.line()
    if raw in (b"00", b"01"):
        machine.push(raw == b"01", 0)
        return
    _decimal(machine, raw)


def _long_line(machine: Machine) -> None:
    _decimal(machine, machine.line().removesuffix(b"L"))


def _decimal(machine: Machine, raw: bytes) -> None:
    if not re.fullmatch(rb"-?[0-9]{1,%d}" % MAX_INT_DIGITS, raw):
        raise Refused("is damaged, or no pickle: it holds a number that is none")
    machine.push(int(raw), 0)


def _float_line(machine: Machine) -> None:
    raw = machine.line()
    try:
        value = float(raw) if len(raw) <= MAX_INT_DIGITS else None
    except ValueError:
        value = None
    if value is None:
        raise Refused("is damaged, or no pickle: it holds a number that is none")
    machine.push(value, 0)


def _unicode_line(machine: Machine) -> None:
    raw = machine.line()
    try:
        value = raw.decode("raw-unicode-escape")
    except UnicodeDecodeError:
        value = raw.decode("latin-1")
    machine.push(value, sys.getsizeof(value))


def _string_line(machine: Machine) -> None:
    raw = machine.line()
    if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
        raise Refused("is damaged, or no pickle: it holds a text without quotes")
    machine.text(raw[1:-1])


SCALARS: dict[int, Handler] = {
    ord(")"): _constant(()),
    ord("N"): _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    ord("K"): _int_1,
    ord("M"): _number(U2),
    ord("J"): _number(I4),
    0x8A: _long_1,
    0x8B: _long_4,
    ord("G"): _number(F8),
    ord("I"): _int_line,
    ord("L"): _long_line,
    ord("F"): _float_line,
    0x8C: _sized_text(U1),
    ord("X"): _sized_text(U4),
    0x8D: _sized_text(U8),
    ord("U"): _sized_text(U1),
    ord("T"): _sized_text(I4),
    ord("V"): _unicode_line,
    ord("S"): _string_line,
    ord("C"): _sized_bytes(U1),
    ord("B"): _sized_bytes(U4),
    0x8E: _sized_bytes(U8),
}
