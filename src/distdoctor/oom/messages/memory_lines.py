"""Memory that step lines print, as a series: does it grow over the steps before memory was refused?

Formats: TorchTitan `memory: 38.11GiB(48.13%)`, Megatron `mem-allocated-bytes: …` and `memory (MB) | allocated: …`, DeepSpeed
`MA 10.2 GB Max_MA …` (memory_allocated), names of torch's own functions, `max mem: 7345` of torchvision and `memory: 11234`
of mmengine (both MB), `memory/max_mem_allocated(gib)` of axolotl, and plain `memory 41.2GiB`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from distdoctor.oom.facts.events import MemoryKind, MemoryTrend
from distdoctor.oom.messages.lines import LogLine, Origin
from distdoctor.units import GIB, KIB, MIB

_WORDS = ("mem", "Mem", "MEM", "MA ", "alloc")
_AT = re.compile(r"mem|alloc", re.IGNORECASE)
_NAME_BEFORE = re.compile(r"[A-Za-z_./ -]*\Z")
_CHARACTERS_BEFORE = 24
_NUMBER = r"(?P<number>\d{1,3}(?:,\d{3})+(?![\d.])|\d{1,15}(?:\.\d{1,9})?(?:[eE]\+?\d{1,2})?)"
_UNIT = r"(?P<unit>[KMGT]i?B|[kmgt]i?b|[MG](?![\w])|[Bb]ytes|B)?"
_REST = re.compile(
    r"(?P<name>[A-Za-z_./ -]{0,26}?(?:[(\[]\w{1,6}[)\]])?)['\"]?\s{0,4}[=:]?\s{0,4}"
    + _NUMBER
    + r"(?:\s?/\s?\d{1,9}(?:\.\d{1,6})?)?\s?"
    + _UNIT
    + r"(?![\w%]|\s?%)"
)
# DeepSpeed's see_memory_usage: allocated now, and its peak.
_DEEPSPEED = re.compile(r"(?<![\w-])MA (?P<number>\d{1,6}(?:\.\d{1,6})?) (?P<unit>[KMGT]i?B)\b")
_UNIT_IN_NAME = re.compile(r"(?:^|[^a-z])(bytes|[kmgt]i?b)[)\]]?$")
_FACTORS = {"k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB, "b": 1}

# Of the host, of what is left, or of something else that the line counts.
_NOT_HELD = re.compile(
    r"\b(?:cpu|host|virtual|vm|rss|ram|system|swap|free|avail\w*|total|limit|static|remaining|capacity|member\w*|step|iter\w*|epoch|rank"
    r"|batch|worker|retries|num\w*|count|bandwidth|util\w*|fraction|percent|pct|ratio)(?:\b|_)",
    re.IGNORECASE,
)
_PEAK = re.compile(r"max|peak|high", re.IGNORECASE)
_POOL = re.compile(r"reserv|cache|pool", re.IGNORECASE)
_STEP = re.compile(
    r"\b(?:global_?)?(?:[Ss]teps?|STEP|[Ii]ter(?:ation)?s?)\b\W{0,12}(\d{1,9})\b|\bafter (\d{1,9}) iterations|\[\s{0,6}(\d{1,9})/\d{1,9}\]|\|\s{0,4}(\d{1,9})/\d{1,9} \["
)
# Before the first of these, memory grows because the model and its states are being placed.
_BEGINS = re.compile(r"\bloss\b|\b(?:global_?)?(?:[Ss]tep|STEP|[Ii]ter(?:ation)?)\b\W{0,12}\d|Epoch\W{0,3}\d")
_OTHER_LINE = re.compile(r"[Ee]val|[Vv]alid|[Ll]oading|Tried to allocate")

# Readings of one series that are kept; of longer ones every second, every fourth and so on. Our own bound.
_MAX_READINGS = 2048

# Readings are put together into this many blocks, each as low as its lowest: what a step takes and gives back, and one long
# batch, do not count then. Our own choice.
_BLOCKS = 8

# Fewer readings show no trend. Our own threshold.
MIN_READINGS = 5

# Of all pairs of neighbouring blocks this many must rise, none may fall by much, and no single one may be most of the rise:
# a leak adds something in every step, a longer batch or a first evaluation once. Our own thresholds.
_RISING_SHARE = 0.75
_MOST_FALL = 0.1
_MOST_IN_ONE = 0.6

# Less than this between first and last is no growth: a few per cent come and go with the batch. Our own threshold.
GROWTH_SHARE = 0.05

# A number without a unit is taken for MB from here on; below it may be a share or a count. Our own threshold.
_MIN_PLAIN = 200


class _Value(NamedTuple):
    kind: MemoryKind
    num_bytes: float
    has_unit: bool


class _Reading(NamedTuple):
    at: int
    step: int | None
    value: float
    has_unit: bool


class _Series:
    """Readings at even distances, as many as are kept."""

    def __init__(self) -> None:
        self.readings: list[_Reading] = []
        self._stride = 1
        self._seen = 0

    def add(self, reading: _Reading) -> None:
        if self._seen % self._stride == 0:
            if len(self.readings) >= _MAX_READINGS:
                del self.readings[1::2]
                self._stride *= 2
            self.readings.append(reading)
        self._seen += 1


class MemoryLines:
    """The series of a log, by rank and by what they measure."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        series: dict[tuple[Origin, MemoryKind], _Series] = defaultdict(_Series)
        has_begun = False
        for index, line in enumerate(lines):
            text = line.text
            if not has_begun and _BEGINS.search(text) and not _OTHER_LINE.search(text):
                has_begun = True
            if not has_begun or not any(word in text for word in _WORDS):
                continue
            step = _step(text)
            # Without a step a line about memory may be of anything.
            if (step is None and "loss" not in text and "MA " not in text) or _OTHER_LINE.search(text):
                continue
            seen: set[MemoryKind] = set()
            for each in _values(text):
                if each.kind not in seen:
                    seen.add(each.kind)
                    series[line.origin, each.kind].add(_Reading(index, step, each.num_bytes, each.has_unit))
        self._series = {key: each.readings for key, each in series.items()}
        self._longest: dict[MemoryKind, list[_Reading]] = {}
        for (_, kind), readings in self._series.items():
            if len(readings) > len(self._longest.get(kind, ())):
                self._longest[kind] = readings
        self._known: dict[tuple[int, int], MemoryTrend | None] = {}

    def before(self, index: int, origin: Origin) -> MemoryTrend | None:
        """The trend before line `index`: of allocated bytes, else of others; of the same rank, else of the one that logs."""
        for kind in MemoryKind:
            for readings in (self._series.get((origin, kind), []), self._longest.get(kind, [])):
                trend = self._trend(kind, readings, index)
                if trend is not None:
                    return trend
        return None

    def _trend(self, kind: MemoryKind, readings: list[_Reading], index: int) -> MemoryTrend | None:
        place = bisect_left(readings, index, key=lambda each: each.at)
        key = (id(readings), place)
        if place < MIN_READINGS:
            return None
        if key not in self._known:
            self._known[key] = _trend(kind, readings[:place])
        return self._known[key]


def _step(text: str) -> int | None:
    match = _STEP.search(text)
    return int(next(each for each in match.groups() if each is not None)) if match else None


def _values(text: str) -> Iterator[_Value]:
    if match := _DEEPSPEED.search(text):
        yield _Value(MemoryKind.ALLOCATED, float(match["number"]) * _FACTORS[match["unit"][0].lower()], True)
        return
    end = 0
    for at in _AT.finditer(text):
        if at.start() < end:
            continue
        rest = _REST.match(text, at.end())
        if rest is None:
            continue
        end = rest.end()
        before = _NAME_BEFORE.search(text[max(0, at.start() - _CHARACTERS_BEFORE) : at.start()])
        name = f"{before.group() if before else ''}{at.group()}{rest['name']}".strip()
        unit = (rest["unit"] or _inner_unit(name)).lower()
        number = float(rest["number"].replace(",", ""))
        if _NOT_HELD.search(name.replace("_", " ")) or number <= 0 or (not unit and number < _MIN_PLAIN):
            continue
        yield _Value(_kind(name), number * _FACTORS[unit[:1] or "m"], bool(unit))


def _inner_unit(name: str) -> str:
    match = _UNIT_IN_NAME.search(name.lower())
    return match[1] if match else ""


def _kind(name: str) -> MemoryKind:
    if _POOL.search(name):
        return MemoryKind.RESERVED
    if _PEAK.search(name):
        return MemoryKind.PEAK
    return MemoryKind.ALLOCATED if "alloc" in name.lower() else MemoryKind.NOT_SAID


def _trend(kind: MemoryKind, readings: Sequence[_Reading]) -> MemoryTrend | None:
    # The first reading is from before the optimizer's states are there.
    settled = readings[1:] if len(readings) > MIN_READINGS else readings
    if len(settled) < MIN_READINGS:
        return None
    number = min(_BLOCKS, len(settled))
    edges = [round(each * len(settled) / number) for each in range(number + 1)]
    blocks = [min(each.value for each in settled[low:high]) for low, high in pairwise(edges)]
    rises = [after - before for before, after in pairwise(blocks)]
    growth = blocks[-1] - blocks[0]
    is_grown = growth >= GROWTH_SHARE * blocks[0]
    return MemoryTrend(
        kind=kind,
        num_readings=len(settled),
        first_step=settled[0].step,
        last_step=settled[-1].step,
        first_bytes=round(blocks[0]),
        last_bytes=round(blocks[-1]),
        has_unit=all(each.has_unit for each in settled),
        is_grown=is_grown,
        is_steady=is_grown
        and sum(each > 0 for each in rises) >= _RISING_SHARE * len(rises)
        and min(rises) >= -_MOST_FALL * growth
        and max(rises) <= _MOST_IN_ONE * growth,
    )
