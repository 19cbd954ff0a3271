"""Opcodes of containers: lists, dicts, tuples, and what is remembered by number."""

from __future__ import annotations

import re

from distdoctor.oom.snapshots.machine import (
    DICT_BYTES,
    DICT_TABLE_BYTES,
    LIST_BYTES,
    MAX_DEPTH,
    MEMO_BYTES,
    NUMBER_BYTES,
    TUPLE_BYTES,
    U4,
    Dict,
    Handler,
    List,
    Machine,
    Refused,
    new_dict,
    new_list,
    number_bytes,
)

# A stack as pickles hold it the second time its frames are met: a list filled with remembered objects. `h` is followed
# by one byte of number, `j` by four. Python writes lists in batches of 1000.
_REMEMBERED = re.compile(rb"(?:\x94|q(.)|r(.{4}))?\(((?:h.|j.{4}){1,1000})e(?!\()", re.DOTALL)

_MEMOIZE, _BINGET = 0x94, ord("h")


def _memoize(machine: Machine) -> None:
    # The commonest opcode of all, so `remember` is written out.
    value = machine.stack[-1]
    if isinstance(value, Dict | List):
        value.memo_at = len(machine.memo)
    machine.memo.append(value)
    machine.spent += MEMO_BYTES + number_bytes(value)


def _recall_1(machine: Machine) -> None:
    number = machine.data[machine.at]
    machine.at += 1
    machine.recall(number)


def _recall_4(machine: Machine) -> None:
    (number,) = U4.unpack_from(machine.data, machine.at)
    machine.at += 4
    machine.recall(number)


def _remember_1(machine: Machine) -> None:
    number = machine.data[machine.at]
    machine.at += 1
    machine.remember(number)


def _remember_4(machine: Machine) -> None:
    (number,) = U4.unpack_from(machine.data, machine.at)
    machine.at += 4
    machine.remember(number)


def _mark(machine: Machine) -> None:
    machine.marks.append(len(machine.stack))
    if len(machine.marks) > MAX_DEPTH:
        raise Refused(f"is nested deeper than {MAX_DEPTH}, which no snapshot is")


def _empty_dict(machine: Machine) -> None:
    machine.push(new_dict(), DICT_BYTES)


def _empty_list(machine: Machine) -> None:
    match = _REMEMBERED.match(machine.data, machine.at)
    if match is not None:
        _remembered_list(machine, match)
        return
    machine.push(new_list(), LIST_BYTES)


def _remembered_list(machine: Machine, match: re.Match[bytes]) -> None:
    """A list whose items are all remembered: a stack, nearly always met before."""
    raw = match.group(3)
    value = machine.seen.get(raw)
    machine.at = match.end()
    if value is not None:
        machine.stack.append(value)
    else:
        items = [_recalled(machine, number) for number in _numbers(raw)]
        packed = machine.packer.stack(items)
        if packed is None:
            # A list may grow later and must not be shared.
            machine.push(new_list(), LIST_BYTES)
            machine.extend(items)
        else:
            value, num_bytes = packed
            machine.seen[raw] = value
            machine.push(value, num_bytes + len(raw) + DICT_TABLE_BYTES)
    if machine.data[match.start()] == _MEMOIZE:
        _memoize(machine)
    elif match.group(1) is not None:
        machine.remember(match.group(1)[0])
    elif match.group(2) is not None:
        machine.remember(U4.unpack(match.group(2))[0])


def _recalled(machine: Machine, number: int) -> object:
    if number >= len(machine.memo):
        raise Refused(f"is damaged: it recalls object {number} of {len(machine.memo)}")
    return machine.memo[number]


def _numbers(raw: bytes) -> list[int]:
    """The numbers in a run of `h` and `j` opcodes."""
    numbers = []
    at, end = 0, len(raw)
    while at < end:
        if raw[at] == _BINGET:
            numbers.append(raw[at + 1])
            at += 2
        else:
            numbers.append(U4.unpack_from(raw, at + 1)[0])
            at += 5
    return numbers


def _append(machine: Machine) -> None:
    item = machine.stack.pop()
    machine.extend([item])


def _appends(machine: Machine) -> None:
    machine.extend(machine.above_mark())


def _set_item(machine: Machine) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    machine.set_items([key, value])


def _set_items(machine: Machine) -> None:
    machine.set_items(machine.above_mark())


def _list_above_mark(machine: Machine) -> None:
    items = machine.above_mark()
    machine.push(new_list(), LIST_BYTES)
    machine.extend(items)


def _dict_above_mark(machine: Machine) -> None:
    items = machine.above_mark()
    _empty_dict(machine)
    machine.set_items(items)


def _tuple_above_mark(machine: Machine) -> None:
    items = tuple(machine.above_mark())
    machine.push(items, TUPLE_BYTES + (8 + NUMBER_BYTES) * len(items))


def _tuple_of(count: int) -> Handler:
    def handler(machine: Machine) -> None:
        if len(machine.stack) < count:
            raise IndexError
        items = tuple(machine.stack[-count:])
        del machine.stack[-count:]
        machine.push(items, TUPLE_BYTES + sum(8 + number_bytes(each) for each in items))

    return handler


def _number_line(machine: Machine) -> int:
    raw = machine.line()
    if not re.fullmatch(rb"[0-9]{1,20}", raw):
        raise Refused("is damaged, or no pickle: it numbers an object by what is no number")
    return int(raw)


def _recall_line(machine: Machine) -> None:
    machine.recall(_number_line(machine))


def _remember_line(machine: Machine) -> None:
    machine.remember(_number_line(machine))


def _pop(machine: Machine) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.stack.pop()


def _pop_mark(machine: Machine) -> None:
    machine.above_mark()


def _duplicate(machine: Machine) -> None:
    machine.push(machine.stack[-1], 0)


CONTAINERS: dict[int, Handler] = {
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): _pop_mark,
    ord("2"): _duplicate,
    ord("}"): _empty_dict,
    ord("d"): _dict_above_mark,
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord("]"): _empty_list,
    ord("l"): _list_above_mark,
    ord("a"): _append,
    ord("e"): _appends,
    ord("t"): _tuple_above_mark,
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("h"): _recall_1,
    ord("j"): _recall_4,
    ord("g"): _recall_line,
    ord("q"): _remember_1,
    ord("r"): _remember_4,
    ord("p"): _remember_line,
    0x94: _memoize,
}
