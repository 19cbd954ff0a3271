"""Opcodes that hold no value: those that frame a pickle, and those that would import or call something.

Names and numbers are those of Python's `pickletools`, protocols 0 to 5.
"""

from __future__ import annotations

from distdoctor.oom.snapshots.machine import U8, Handler, Machine, Refused

# Opcodes that import, call, or ask the reader's program for an object. None of them is ever carried out.
RUNS_CODE = {
    ord("c"): "GLOBAL",
    ord("i"): "INST",
    ord("o"): "OBJ",
    ord("R"): "REDUCE",
    ord("b"): "BUILD",
    0x81: "NEWOBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL",
    ord("P"): "PERSID",
    ord("Q"): "BINPERSID",
}

# Harmless, but no snapshot has them.
NEVER_IN_SNAPSHOTS = {
    0x8F: "a set",
    0x90: "a set",
    0x91: "a frozenset",
    0x96: "a bytearray",
    0x97: "a buffer kept outside the file",
    0x98: "a buffer kept outside the file",
}

MAX_PROTOCOL = 5


def _protocol(machine: Machine) -> None:
    version = machine.data[machine.at]
    machine.at += 1
    if version > MAX_PROTOCOL:
        raise Refused(f"is a pickle of protocol {version}; protocols up to {MAX_PROTOCOL} are known")


def _frame(machine: Machine) -> None:
    # Frames only tell a reader how much to fetch at once; the opcodes inside are read one by one all the same.
    U8.unpack_from(machine.data, machine.at)
    machine.at += 8


def _stop(machine: Machine) -> None:
    machine.done = True


def unknown(machine: Machine) -> None:
    """A byte that is no opcode."""
    place = machine.at - 1
    if place == 0:
        raise Refused("is no pickle")
    raise Refused(f"is damaged, or no pickle: byte {place} is no opcode")


def _never(what: str) -> Handler:
    def handler(_machine: Machine) -> None:
        raise Refused(f"holds {what}, which no snapshot has")

    return handler


def _runs_code(opcode: str) -> Handler:
    def handler(machine: Machine) -> None:
        place = machine.at - 1
        named = _named(machine, opcode)
        what = f"names `{named}` for the reader to import" if named else "asks the reader to call something"
        raise Refused(
            f"{what} (opcode {opcode} at byte {place}); a memory snapshot is plain data, so it was not read, and "
            "nothing was run"
        )

    return handler


def _named(machine: Machine, opcode: str) -> str:
    """The global that an opcode names, as far as it can be shown."""
    parts: list[object] = []
    if opcode in ("GLOBAL", "INST"):
        parts = [
            each.decode("ascii", "replace")
            for each in machine.data[machine.at : machine.at + 200].split(b"\n")[:2]
        ]
    elif opcode == "STACK_GLOBAL":
        parts = machine.stack[-2:]
    if len(parts) != 2 or not all(type(each) is str and 0 < len(each) <= 80 for each in parts):
        return ""
    name = ".".join(str(each) for each in parts)
    return name if name.isprintable() else ""


OTHERS: dict[int, Handler] = {
    0x80: _protocol,
    0x95: _frame,
    ord("."): _stop,
    **{code: _runs_code(name) for code, name in RUNS_CODE.items()},
    **{code: _never(what) for code, what in NEVER_IN_SNAPSHOTS.items()},
}
