"""What each word of a row is: the layouts of nccl-tests and rccl-tests since 2016, with or without a header.

    size count type [redop] [root] time algbw busbw check [i_min i_max i_p99 i_cv%] [algo proto channels]  twice
Old versions have no redop or root column, or leave redop blank; rccl-tests may run one half only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.readers.data_types import REDUCTIONS
from distdoctor.nccl_bench.readers.numbers import Printed, is_number, parse_count, parse_number

_NAMES = {
    "size": "size",
    "bytes": "size",
    "count": "count",
    "n": "count",
    "elements": "count",
    "type": "type",
    "redop": "redop",
    "op": "redop",
    "root": "root",
    "time": "time",
    "cputime": "cputime",
    "algbw": "algbw",
    "busbw": "busbw",
    "#wrong": "wrong",
    "wrong": "wrong",
    "error": "error",
    "res": "error",
    "delta": "error",
    "i_min": "i_min",
    "i_max": "i_max",
    "i_p99": "i_p99",
    "i_cv%": "i_cv",
    "algo": "algorithm",
    "algorithm": "algorithm",
    "proto": "protocol",
    "protocol": "protocol",
    "nchannels": "channels",
    "channels": "channels",
    "nch": "channels",
}

_TIMESTAMP = re.compile(r"\s+\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*\s*$")
_NO_CHECK = ("n/a", "na", "-")

_PLAIN = ("time", "algbw", "busbw", "check")
_WITH_ITERATIONS = (*_PLAIN, "i_min", "i_max", "i_p99", "i_cv")
_WITH_ALGORITHM = (*_PLAIN, "algorithm", "protocol", "channels")

# A header is made of column names; a sentence that mentions them is not. Our own choice.
MIN_KNOWN_SHARE = 0.7

# Time and size give algbw; printed with few digits they agree within this share. Our own choice.
AGREES_WITHIN = 0.06


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns as a header names them."""

    has_redop: bool
    has_root: bool
    half: tuple[str, ...]
    """Names within one half: "time", "algbw", "busbw", "wrong" …"""
    num_halves: int

    @property
    def counts_wrong(self) -> bool | None:
        """The check column counts wrong elements; False: it holds the largest error; None: it is not named."""
        return True if "wrong" in self.half else False if "error" in self.half else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Out-of-place or in-place part of a row."""

    in_place: bool | None
    time: Printed
    algbw: Printed | None
    busbw: Printed | None
    check: str
    """As printed; empty when the column is not there."""
    is_cpu_time: bool = False
    iterations: tuple[Printed | None, ...] = ()
    """i_min, i_max, i_p99."""
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row as printed."""

    line: int
    size: int
    count: int
    data_type: str
    op: str | None
    root: int | None
    halves: tuple[Half, ...]
    num_expected: int
    """Halves that a whole row has."""
    counts_wrong: bool | None = None

    @property
    def is_whole(self) -> bool:
        """Nothing of it is missing."""
        return len(self.halves) >= self.num_expected


def parse_columns(text: str) -> Layout | None:
    """The layout that a header line names; None when it is no header."""
    names = [_NAMES.get(word.lower().strip("|,"), "") for word in _TIMESTAMP.sub("", text).split()]
    if sum(map(bool, names)) < MIN_KNOWN_SHARE * len(names):
        return None
    starts = [index for index, name in enumerate(names) if name in ("time", "cputime")]
    if not starts or "size" not in names[: starts[0]] or "busbw" not in names:
        return None
    end = starts[1] if len(starts) > 1 else len(names)
    half = tuple(name for name in names[starts[0] : end] if name)
    head = names[: starts[0]]
    return Layout("redop" in head, "root" in head, half, min(2, len(starts)))


def parse_row(text: str, line: int, layout: Layout | None, only: bool | None = None) -> TableRow | None:
    """The row in `text`; None when it is none.

    `only`: the half that the table has, where its header shows a single one (True: in place).
    """
    words = _TIMESTAMP.sub("", text).split()
    if len(words) < 3:
        return None
    size, count = parse_count(words[0]), parse_count(words[1])
    if size is None or count is None or size < 0 or count < 0:
        return None
    rest = words[3:]
    op = rest.pop(0).lower() if rest and rest[0][:1].isalpha() and not _is_check(rest[0]) else None
    if op not in (None, "none", *REDUCTIONS):
        return None
    root, halves, expected = _split(rest, layout, size, only)
    counts = layout.counts_wrong if layout is not None else None
    return TableRow(
        line=line,
        size=size,
        count=count,
        data_type=words[2].lower(),
        op=None if op == "none" else op,
        root=root,
        halves=halves,
        num_expected=expected,
        counts_wrong=counts,
    )


def _split(
    words: list[str], layout: Layout | None, size: int, only: bool | None
) -> tuple[int | None, tuple[Half, ...], int]:
    """Root, halves, and how many halves there should be; the header's layout first, then whatever fits."""
    shapes = [*_named_shape(layout), *_shapes(layout.num_halves if layout is not None else None)]
    for has_root, names, num_halves in shapes:
        if len(words) != has_root + num_halves * len(names):
            continue
        halves = _halves(words[has_root:], names, num_halves, only)
        if len(halves) == num_halves and (not has_root or parse_count(words[0]) is not None):
            return (parse_count(words[0]) if has_root else None), halves, num_halves
    return _broken_off(words, layout, size, only)


def _named_shape(layout: Layout | None) -> Iterator[tuple[bool, tuple[str, ...], int]]:
    if layout is not None and {"algbw", "busbw"} <= set(layout.half):
        yield layout.has_root, layout.half, layout.num_halves


def _shapes(known: int | None) -> Iterator[tuple[bool, tuple[str, ...], int]]:
    """Shapes of rows without a header, the commonest first; `known`: halves that the header shows."""
    for num_halves in (2, 1) if known is None else (known,):
        for names in (_PLAIN, _WITH_ITERATIONS, _WITH_ALGORITHM):
            for has_root in (True, False):
                yield has_root, names, num_halves


def _broken_off(
    words: list[str], layout: Layout | None, size: int, only: bool | None
) -> tuple[int | None, tuple[Half, ...], int]:
    """A row that was begun and not finished: what is whole of it."""
    names = layout.half if layout is not None and layout.half else _PLAIN
    num_halves = layout.num_halves if layout is not None else 2
    best: tuple[int | None, tuple[Half, ...]] = (None, ())
    for has_root in (True, False) if layout is None else (layout.has_root,):
        if has_root and (not words or parse_count(words[0]) is None):
            continue
        root = parse_count(words[0]) if has_root else None
        halves = _halves(words[has_root : has_root + len(names)], names, 1, only)
        if halves and not _agrees(halves[0], size):
            halves = ()
        if len(halves) > len(best[1]) or (root is not None and best[0] is None and not best[1]):
            best = (root, halves)
    return best[0], best[1], num_halves


def _halves(
    words: Sequence[str], names: tuple[str, ...], num_halves: int, only: bool | None
) -> tuple[Half, ...]:
    halves = []
    for index in range(num_halves):
        in_place = bool(index) if num_halves > 1 else only
        half = _half(words[index * len(names) : (index + 1) * len(names)], names, in_place)
        if half is None:
            break
        halves.append(half)
    return tuple(halves)


def _half(words: Sequence[str], names: tuple[str, ...], in_place: bool | None) -> Half | None:
    if len(words) != len(names):
        return None
    cells = dict(zip(names, words, strict=True))
    time_word = cells.get("time", cells.get("cputime", ""))
    check = cells.get("wrong", cells.get("error", cells.get("check", "")))
    numeric = (time_word, cells.get("algbw", ""), cells.get("busbw", ""))
    time = parse_number(time_word)
    if time is None or not all(is_number(word) for word in numeric) or not _is_check(check):
        return None
    channels = parse_count(cells.get("channels", ""))
    return Half(
        in_place=in_place,
        time=time,
        algbw=parse_number(numeric[1]),
        busbw=parse_number(numeric[2]),
        check=check,
        is_cpu_time="cputime" in cells,
        iterations=tuple(parse_number(cells.get(name, "")) for name in ("i_min", "i_max", "i_p99")),
        algorithm=_word(cells.get("algorithm")),
        protocol=_word(cells.get("protocol")),
        channels=channels if channels is not None and channels > 0 else None,
    )


def _word(text: str | None) -> str | None:
    return text if text and text[:1].isalpha() and text.lower() not in _NO_CHECK else None


def _is_check(word: str) -> bool:
    return not word or word.lower() in _NO_CHECK or is_number(word.rstrip("*"))


def _agrees(half: Half, size: int) -> bool:
    """Size and time give the printed algbw; True where rounding leaves nothing to compare."""
    if half.algbw is None or half.time.value <= 0 or half.algbw.is_coarse:
        return half.algbw is not None
    return abs(size / half.time.value / 1e3 / half.algbw.value - 1) < AGREES_WITHIN
