"""Bytes of events as typed objects; arguments stay bytes until somebody needs them.

Kineto prints floats as C++ does, so `"memory bandwidth (GB/s)": inf` occurs, which is no JSON: it is read as null.
A broken event costs itself, not its block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import nan
from typing import Annotated, TypeVar

import msgspec

# Beyond this no id of a device, stream or launch is one.
_MAX_ID = 1 << 62
_Id = Annotated[int, msgspec.Meta(ge=-1, le=_MAX_ID)]

_NO_ARGS = msgspec.Raw(b"{}")
_NOTHING = msgspec.Raw(b"[]")


class Event(msgspec.Struct, gc=False):
    """One event of a trace. `ts` and `dur` are microseconds."""

    name: str = ""
    cat: str = ""
    ts: float = nan
    dur: float = nan
    args: msgspec.Raw = _NO_ARGS


class DeviceArgs(msgspec.Struct, gc=False):
    """Where an activity of the device ran, and which launch it belongs to; -1: not said."""

    device: _Id = -1
    stream: _Id = -1
    correlation: _Id = -1


class LaunchArgs(msgspec.Struct, gc=False):
    """Which activity a call of the runtime launched; -1: not said."""

    correlation: _Id = -1


_Scalar = int | float | str | None


class CollectiveArgs(msgspec.Struct, gc=False):
    """What torch (2.2 and later) writes beside a kernel of NCCL, from `record_param_comms`."""

    collective: _Scalar = msgspec.field(name="Collective name", default=None)
    in_elements: _Scalar = msgspec.field(name="In msg nelems", default=None)
    out_elements: _Scalar = msgspec.field(name="Out msg nelems", default=None)
    dtype: _Scalar = None
    group_size: _Scalar = msgspec.field(name="Group size", default=None)
    group_name: _Scalar = msgspec.field(name="Process Group Name", default=None)
    group_what: _Scalar = msgspec.field(name="Process Group Description", default=None)
    group_ranks: _Scalar = msgspec.field(name="Process Group Ranks", default=None)
    first_rank: _Scalar = msgspec.field(name="Global rank start", default=None)
    rank_stride: _Scalar = msgspec.field(name="Global rank stride", default=None)
    seq: _Scalar = msgspec.field(name="Seq", default=None)
    source: _Scalar = msgspec.field(name="Src Rank", default=None)
    destination: _Scalar = msgspec.field(name="Dst Rank", default=None)
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    input_type: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)


_EVENTS = msgspec.json.Decoder(list[Event])
_ANYTHING = msgspec.json.Decoder(list[msgspec.Raw])

# What msgspec raises for broken JSON, wrong types, broken UTF-8 and absurd nesting.
ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_NO_NUMBER = re.compile(rb"(:\s*)[-+]?(?:inf(?:inity)?|nan)(?=\s*[,}\]])", re.IGNORECASE)
_START = re.compile(rb'\{\s*"ph"\s*:')
_SEPARATORS = b" \t\r\n,"


def is_list(inside: bytes) -> bool:
    """Whether `inside` is a JSON list without its brackets."""
    for text in _readings(inside):
        try:
            _ANYTHING.decode(b"[%b]" % text)
        except ERRORS:
            continue
        return True
    return False


def decode_events(block: bytes) -> tuple[list[Event], int]:
    """The events of a block (a list without its brackets), and how many could not be read."""
    for text in _readings(block.strip(_SEPARATORS)):
        try:
            return _EVENTS.decode(b"[%b]" % text), 0
        except ERRORS:
            continue
    return _one_by_one(block)


_T = TypeVar("_T")


def decode_args(raws: Sequence[msgspec.Raw], kind: type[_T], default: _T) -> list[_T]:
    """Arguments of many events in one go; `default` for each that is not as expected."""
    try:
        return msgspec.json.decode(b"[%b]" % b",".join(raws), type=list[kind])  # type: ignore[valid-type]
    except ERRORS:
        return [_args(bytes(raw), kind, default) for raw in raws]


def _args(raw: bytes, kind: type[_T], default: _T) -> _T:
    for text in _readings(raw):
        try:
            return msgspec.json.decode(text, type=kind)
        except ERRORS:
            continue
    return default


def _readings(text: bytes) -> Iterator[bytes]:
    yield text
    repaired = _NO_NUMBER.sub(rb"\1null", text)
    if repaired != text:
        yield repaired


def _one_by_one(block: bytes) -> tuple[list[Event], int]:
    events: list[Event] = []
    lost = 0
    for piece in _pieces(block, (match.start() for match in _START.finditer(block))):
        for text in _readings(piece):
            try:
                # Metadata events, which begin with their name, follow in the same piece.
                events += _EVENTS.decode(b"[%b]" % text)
                break
            except ERRORS:
                continue
        else:
            lost += 1
    return events, lost


def _pieces(block: bytes, starts: Iterable[int]) -> Iterator[bytes]:
    """Single events; what precedes the first start is one piece."""
    begin = 0
    for start in (*starts, len(block)):
        piece = block[begin:start].strip(_SEPARATORS)
        if piece:
            yield piece
        begin = start
