"""What does a column name of a timing table mean, and in which unit is it? The same for all table formats."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers import column_names as names
from distdoctor.straggler.readers.column_names import Said

# Milliseconds in one of each unit.
MS_IN = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}

MAX_RANKS = 1_000_000


class Role(Enum):
    """What a column is for."""

    STEP_NUMBER = "number of the step"
    RANK = "rank"
    HOST = "host"
    POD = "pod"
    LOCAL_RANK = "local rank"
    GPU = "GPU index"
    GPU_UUID = "GPU UUID"
    GPU_PCI = "PCI address"
    GPU_MODEL = "GPU model"
    WORLD_SIZE = "world size"
    ATTEMPT = "attempt"
    COORD = "parallel coordinate"
    CLOCK = "time of day"
    TIME = "time of a section"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column whose name is understood."""

    name: str
    """As it is in the file."""
    role: Role
    section: Section | None = None
    """Of a time; of a step number or a clock: what it is when its values show that it is a time instead."""
    said: Said = Said.EXACTLY
    unit: str | None = None
    """"ns", "us", "ms" or "s"; None: the name has none."""
    is_part: bool = False
    is_weak: bool = False
    coord: str | None = None
    """Of a coordinate: "pp"."""
    rank: int | None = None
    """Of a time of one rank, where every rank has its own columns."""
    order: int = 0
    """The less, the likelier among columns of the same role."""


UNIT_WORDS = {
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanoseconds"), "ns"),
    **dict.fromkeys(("us", "µs", "μs", "usec", "usecs", "micros", "microseconds"), "us"),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
}
"""Units as people write them."""
_UNITS = "|".join(sorted(UNIT_WORDS, key=len, reverse=True))
_UNIT_IN_BRACKETS = re.compile(rf"[ _]*[(\[]\s*({_UNITS})\s*[)\]]\s*$", re.IGNORECASE)
_UNIT_BEHIND = re.compile(rf"^(.+?)[_ ]({_UNITS})$")
_UNIT_PER_STEP = re.compile(rf"^({_UNITS})_per_(step|iter|iteration|it)$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_WORD = re.compile(r"[^0-9a-zµμ]+")
_AROUND = re.compile(r"^(?:t_|time_)?(.+?)(?:_(?:time|duration|dur|elapsed|latency))?$")
_OF_ONE_RANK = re.compile(r"^(?:rank|r)_?(\d{1,7})(?:_(.+))?$")

# "rank3.jsonl", "rank-3.csv", "run_rank_00003.log", "trainer.global_rank_3.x"; not "local_rank3".
_RANK_IN_PATH = re.compile(
    r"(?:^|[^a-z])(?<!local[_\-.])(?<!node[_\-.])(?<!group[_\-.])rank[_\-=.]?0*(\d{1,7})(?!\d)", re.IGNORECASE
)

# A name longer than this is a text, not a name.
_MAX_NAME = 200


@lru_cache(maxsize=4096)
def column_of(name: str) -> Column | None:
    """What a column name means; None: nothing that is known here.

    Names are compared in lower case, without "time", "duration" or "t_" around them; of `train/fwd_ms` and of
    nested JSON the last part counts, and a unit that only the part before it has: `timings_ms.fwd`.
    """
    if not name or len(name) > _MAX_NAME:
        return None
    *parents, last = re.split(r"[/.]", name)
    words, unit = words_and_unit(last)
    if unit is None and parents:
        unit = words_and_unit(parents[-1])[1]
    per_step = _UNIT_PER_STEP.match(words)
    if per_step:
        return Column(name=name, role=Role.TIME, section=Section.STEP, unit=UNIT_WORDS[per_step[1]])
    return _no_time(name, words, unit) or _time(name, words, unit) or _of_one_rank(name, words, unit)


def rank_in_path(path: str) -> int | None:
    """The rank that a file's name tells, or else the folder it lies in: "rank3.jsonl", "rank_3/steps.csv"."""
    for part in reversed(path.replace("\\", "/").split("/")[-2:]):
        match = _RANK_IN_PATH.search(part)
        if match and int(match[1]) < MAX_RANKS:
            return int(match[1])
    return None


def words_and_unit(text: str) -> tuple[str, str | None]:
    """ "Step Time (ms)" → ("step_time", "ms")."""
    unit = None
    bracket = _UNIT_IN_BRACKETS.search(text)
    if bracket:
        unit = UNIT_WORDS[bracket[1].lower()]
        text = text[: bracket.start()]
    words = _NOT_WORD.sub("_", _CAMEL.sub("_", text.strip()).lower()).strip("_")
    behind = _UNIT_BEHIND.match(words)
    if behind and unit is None:
        return behind[1], UNIT_WORDS[behind[2]]
    return words, unit


def _no_time(name: str, words: str, unit: str | None) -> Column | None:
    if unit is None:
        if words in names.STEP_NUMBERS:
            section = Section.STEP if words in names.NUMBER_OR_TIME else None
            order = names.STEP_NUMBERS.index(words)
            return Column(name=name, role=Role.STEP_NUMBER, section=section, order=order)
        for role, known in _PLACES.items():
            if words in known:
                return Column(name=name, role=role)
        if words in names.COORDS:
            return Column(name=name, role=Role.COORD, coord=names.COORDS[words])
    if words in names.CLOCKS:
        return Column(name=name, role=Role.CLOCK, unit=unit)
    if words in names.CLOCK_OR_TIME:
        return Column(name=name, role=Role.CLOCK, unit=unit, section=Section.STEP, order=1)
    return None


_PLACES = {
    Role.RANK: names.RANKS,
    Role.HOST: names.HOSTS,
    Role.POD: names.PODS,
    Role.LOCAL_RANK: names.LOCAL_RANKS,
    Role.GPU: names.GPUS,
    Role.GPU_UUID: names.GPU_UUIDS,
    Role.GPU_PCI: names.GPU_PCIS,
    Role.GPU_MODEL: names.GPU_MODELS,
    Role.WORLD_SIZE: names.WORLD_SIZES,
    Role.ATTEMPT: names.ATTEMPTS,
}
_ORDER = {word: number for number, word in enumerate(names.TIMES)}


def _time(name: str, words: str, unit: str | None, *, rank: int | None = None) -> Column | None:
    word = words
    known = names.TIMES.get(word)
    bare = _AROUND.match(words)
    has_time = False
    if known is None and bare:
        word = bare[1]
        known = names.TIMES.get(word)
        has_time = word != words
    if known is None:
        return None
    return Column(
        name=name,
        role=Role.TIME,
        section=known.section,
        said=known.said,
        unit=unit,
        is_part=known.is_part,
        # "load" is a word, "load_time" and "load_ms" are times.
        is_weak=known.is_weak and unit is None and not has_time,
        rank=rank,
        order=_ORDER[word],
    )


def _of_one_rank(name: str, words: str, unit: str | None) -> Column | None:
    """`rank0_ms`, `r0`, `rank3_fwd_us`."""
    match = _OF_ONE_RANK.match(words)
    if match is None or int(match[1]) >= MAX_RANKS:
        return None
    if match[2] is None:
        return Column(name=name, role=Role.TIME, section=Section.STEP, unit=unit, rank=int(match[1]))
    return _time(name, match[2], unit, rank=int(match[1]))
