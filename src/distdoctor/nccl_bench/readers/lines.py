"""Which lines of a text belong to a benchmark's table, whatever launcher, pod or ticket put before them?

A line is found by what it says and not by where it begins, so that any prefix is survived: `[1,0]<stdout>:` of
mpirun, `0: ` of srun, `pod-0 | ` of a container's log, timestamps, and NCCL's log on the same line. What stands
before it tells processes apart that print at the same time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from distdoctor.nccl_bench.readers.data_types import DATA_TYPES

# No tool prints longer lines of a table; what is behind this is not looked at.
MAX_LINE_CHARACTERS = 4096

# A prefix that is the same on this many lines of the table is one process' mark; a single one is chance.
LINES_OF_A_STREAM = 2


class Kind(str, Enum):
    """What a line is."""

    VERSION = "version"
    STARTING = "starting"
    SETTINGS = "settings"
    REDUCED = "reduced"
    DEVICES = "devices"
    DEVICE = "device"
    PLACES = "places"
    COLUMNS = "columns"
    ROW = "row"
    CYCLE = "cycle"
    BOUNDS = "bounds"
    AVERAGE = "average"
    CONCLUDED = "concluded"
    FAILURE = "failure"
    ENDING = "ending"
    ELLIPSIS = "ellipsis"
    LIBRARY = "library"
    COMMAND = "command"
    NUMBERS = "numbers"


# Lines that only a process of the benchmark prints: they say which streams hold a table.
OF_A_TABLE = frozenset(
    {
        Kind.STARTING,
        Kind.SETTINGS,
        Kind.DEVICES,
        Kind.DEVICE,
        Kind.COLUMNS,
        Kind.ROW,
        Kind.BOUNDS,
        Kind.AVERAGE,
        Kind.CONCLUDED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """One line that says something about a table."""

    number: int
    """1-based."""
    kind: Kind
    text: str
    """From the telling word to the line's end."""
    stream: str = ""
    """The mark of the process that printed it; empty when lines carry none."""
    after_gap: bool = False
    """Lines that say nothing stand between this one and the one before."""


_TYPES = "|".join(sorted(DATA_TYPES, key=len, reverse=True))
_ROW = re.compile(
    rf"(?<![\w.])\d{{1,19}}[ \t]{{1,60}}\d{{1,19}}[ \t]{{1,60}}(?:{_TYPES})(?![\w.:=-])[^\n]*", re.IGNORECASE
)

# In the order in which they are tried; the first that is found decides.
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    (Kind.SETTINGS, r"nThreads?\s+\d+\s+nGpus\s+\d+"),
    (Kind.REDUCED, r"Reducing maxBytes to\s+\d+"),
    (Kind.VERSION, r"nccl-tests version\s|rccl-tests:\s*Version\s"),
    (Kind.STARTING, r"Collective test starting:"),
    (Kind.CONCLUDED, r"Collective test concluded:"),
    (Kind.DEVICE, r"Rank\s+\d+\s+(?:Group\s+\d+\s+)?(?:Pid\s+\d+\s+)?on\s+\S+(?: \S+){0,2}\s+device\s+\d+"),
    (Kind.DEVICES, r"Using devices\b"),
    (Kind.BOUNDS, r"Out of bounds values\s*:"),
    (Kind.AVERAGE, r"Avg bus bandwidth\s*:"),
    (Kind.CYCLE, r"Testing \d+ cycle"),
    (Kind.FAILURE, r"Test (?:CUDA|HIP|NCCL|CU|MPI) failure\b|Test failure\s|Test timeout\b"),
    (Kind.FAILURE, r"Invalid number of GPUs:|number of requested GPUs \(\d+\) is greater"),
    (
        Kind.ENDING,
        r"CANCELLED AT |DUE TO TIME LIMIT|exited on signal \d+|BAD TERMINATION OF ONE OF YOUR APPLICATION|"
        r"MPI_ABORT was invoked|Segmentation fault|Bus error|\bOOMKilled\b|oom-kill event|srun: error: .{0,200}(?:Killed|Aborted)|"
        r"^\s*(?:Killed|Terminated|Aborted)(?:\s*\(core dumped\))?\s*$|\^C",
    ),
    (Kind.LIBRARY, r"\bN?R?CCL version\s*:?\s*\d+\.\d+"),
)
_TELLING = re.compile("|".join(f"(?P<k{number}>{pattern})" for number, (_, pattern) in enumerate(_PATTERNS)))
_SIZE = re.compile(r"\b(?:size|bytes)\b")
_PLACES = re.compile(
    r"(?:out-of-place|in-place)(?:\s+\(\+ per-iteration\))?(?:\s+in-place(?:\s+\(\+ per-iteration\))?)?[\s|]*"
)
_COMMAND = re.compile(
    r"\b(?:all_reduce|all_gather|reduce_scatter|broadcast|reduce|gather|scatter|alltoallv?|sendrecv|hypercube)"
    r"_perf(?:_mpi)?\b|(?<![\w$])N?R?CCL_[A-Z0-9_]+=|-g?env\s+N?R?CCL_"
)
_ELLIPSIS = re.compile(r"(?:\. ?){2,}\.?|…+|(?:snip|truncated|omitted|cut)\.*", re.IGNORECASE)
_AROUND_ELLIPSIS = " \t#|>[](){}<"
_MAX_ELLIPSIS_CHARACTERS = 24

# The rest of a row that a narrow terminal broke in two.
_NUMBERS = re.compile(
    r"^[\s|]*(?:(?:[-+]?\d[\d.]*(?:e[-+]?\d+)?|N/A|nan|inf)[\s|]+)*(?:[-+]?\d[\d.]*(?:e[-+]?\d+)?|N/A)\s*$"
)

_HINTS = (
    "#",
    "_perf",
    "CCL_",
    "Test",
    "CCL version",
    "nThread",
    "Rank",
    "algbw",
    "bus",
    "bound",
    "Collective",
)

_TIME = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?\]?|"
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\s+)?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2}\b|"
    r"\b[IWEF]\d{4}\s|\[?\b\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?:\s+\d{4}\b)?|\[\s*\d+\.\d{3,6}\]"
)
_OUTPUT_NAME = re.compile(r"<?\b(?:stdout|stderr|stdin)\b>?", re.IGNORECASE)
_MAX_PREFIX_CHARACTERS = 200
_MAX_NAME_CHARACTERS = 120
# A launcher that marks whatever one write brought: nccl-tests prints a row in several.
_LEADING_TAG = re.compile(r"\s*(\[(?:[\w.@-]+,\s*)?\d+\](?:<\w+>:?)?)")
_RANK_TAG = re.compile(r"\s*(?:\[[\w.@-]*?,?\s*\d+,\s*\d+\]|\[\d+\](?=\s)|\d+:(?=\s))")


def table_lines(text: str) -> Iterator[TableLine]:
    """The telling lines of `text` (as `pasted.clean_pasted` leaves it), each with the mark of its process."""
    found = list(_classified(text))
    counts = Counter(line.stream for line in found if line.stream)
    for line in found:
        known = line.stream if counts[line.stream] >= LINES_OF_A_STREAM else ""
        yield line if known == line.stream else replace(line, stream=known)


def _classified(text: str) -> Iterator[TableLine]:
    gap = False
    for number, whole in enumerate(text.split("\n"), start=1):
        line = whole[:MAX_LINE_CHARACTERS]
        if line.count("|") > 5:  # a row made into a Markdown table
            line = line.replace("|", " ")
        line = _without_repeated_tags(line)
        found = _classify(line)
        if found is None:
            gap = gap or bool(line.strip(" \t#|>"))
            continue
        kind, start = found
        yield TableLine(
            number=number,
            kind=kind,
            # Whom a failure is about stands before it: " .. host-a pid 7: Test failure".
            text=(line if kind in (Kind.FAILURE, Kind.ENDING) else line[start:]).strip(" \t."),
            stream=_stream(line[:start]),
            after_gap=gap,
        )
        gap = False


def _without_repeated_tags(line: str) -> str:
    """The line with its leading mark once: "[0]  1024 … -1[0]  12.5 …" has it before each part of a row."""
    tag = _LEADING_TAG.match(line)
    if tag is None or line.find(tag[1], tag.end()) < 0 or "CCL" in line:
        return line
    return line[: tag.end()] + line[tag.end() :].replace(tag[1], " ")


def _classify(line: str) -> tuple[Kind, int] | None:
    """What the line is, and where that begins."""
    row = _ROW.search(line)
    if row is not None:
        return Kind.ROW, row.start()
    if "NCCL INFO" in line:  # most lines of most logs: nothing else of a table stands on them
        version = line.find("CCL version")
        return (Kind.LIBRARY, max(0, version - 2)) if version >= 0 else None
    if any(hint in line for hint in _HINTS) or not line[:1].isspace():
        telling = _TELLING.search(line)
        if telling is not None and telling.lastgroup is not None:
            return _PATTERNS[int(telling.lastgroup[1:])][0], telling.start()
    if "algbw" in line and "busbw" in line and "time" in line:
        size = _SIZE.search(line)
        if size is not None:
            return Kind.COLUMNS, size.start()
    if "-place" in line:
        places = re.search(r"(?:out-of|in)-place", line)
        if places is not None and _PLACES.fullmatch(line, places.start()):
            return Kind.PLACES, places.start()
    if ("_perf" in line or "CCL_" in line) and _COMMAND.search(line):
        return Kind.COMMAND, 0
    core = line.strip(_AROUND_ELLIPSIS)
    if 0 < len(core) <= _MAX_ELLIPSIS_CHARACTERS and _ELLIPSIS.fullmatch(core):
        return Kind.ELLIPSIS, 0
    if "." in line and len(line) < 300 and _NUMBERS.match(line):
        return Kind.NUMBERS, len(line) - len(line.lstrip(" \t|"))
    return None


def _stream(prefix: str) -> str:
    """What of a line's prefix names the process: without timestamps and the name of the output."""
    if not prefix.strip(" \t#|>"):
        return ""
    text = _OUTPUT_NAME.sub("", _TIME.sub("", prefix[:_MAX_PREFIX_CHARACTERS]))
    tag = _RANK_TAG.match(text)
    if tag is not None:
        return tag.group().strip(" \t:")
    name = text.strip(" \t#|>:-")
    return "" if "NCCL" in name or len(name) > _MAX_NAME_CHARACTERS else name
