"""Reads a pickle without running it: numbers, text, lists, dicts and tuples. Anything else is refused in words.

Python's own unpickler imports and calls whatever a file names, and it sizes its table of remembered objects after a
number in the file, so that nine bytes can take 64 GiB. This one has no code that imports or calls, so nothing can be
reached that does; it counts what it builds, and refuses a file that would grow beyond `max_bytes` or beyond
`MAX_GROWTH` times its size. There is no recursion: nesting costs a list entry.

A snapshot repeats its stacks a million times, so what is read is packed on the way (`Packer`): an event becomes a row
of numbers as soon as it is complete, and a stack that was met before costs one look-up.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.snapshots.container_opcodes import CONTAINERS
from distdoctor.oom.snapshots.machine import DEFAULT_MAX_BYTES, Cut, Machine, Packer, Refused
from distdoctor.oom.snapshots.other_opcodes import OTHERS, unknown
from distdoctor.oom.snapshots.scalar_opcodes import SCALARS

_KNOWN = {**CONTAINERS, **SCALARS, **OTHERS}
HANDLERS = tuple(_KNOWN.get(code, unknown) for code in range(256))
"""What each byte means where an opcode stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a pickle holds."""

    value: object
    is_cut: bool = False
    """The bytes end early: `value` is the outermost dict with its first entries, those that are whole."""
    trailing_bytes: int = 0
    """Bytes after the pickle's end; not looked at."""


def load_pickle(data: bytes, packer: Packer, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Loaded:
    """The value that `data` holds, with nothing imported, called or run.

    `max_bytes` bounds what is built, `data` included. Raises Refused with one line when the bytes are no pickle, are
    damaged, name something to import or call, or need more memory than `max_bytes` or `MAX_GROWTH` times their size.
    """
    machine = Machine(data, packer, max_bytes)
    try:
        machine.run(HANDLERS)
    except Cut:
        return Loaded(value=machine.complete_entries(), is_cut=True)
    if len(machine.stack) != 1:
        raise Refused("is damaged: its pickle ends with loose values")
    return Loaded(value=machine.stack[0], trailing_bytes=len(data) - machine.at)
