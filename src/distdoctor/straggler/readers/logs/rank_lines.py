"""Lines that training scripts print on every rank in words of their own: a rank, a step, and times with units.

    [rank 5] step 3 loss 2.31 step_time 2.4s fwd 0.78s bwd 1.1s data 0.05s
    rank=5 step=3 forward_ms=781 backward_ms=1104
    2026-11-30 12:00:01 [Rank 5] iter 3: data 0.05 s | fwd 0.78 s | bwd 1.10 s

The rank stands in the line or in torch's prefix `[rank5]:`. A number is a time only when it or its name has a unit and
the name is one that a column of a table could have. What a name says of waiting is judged as for tables.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distdoctor.errors import InputError
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.series import JobSeries, SeriesKind
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.columns import MAX_RANKS, MS_IN, UNIT_WORDS, Role, column_of
from distdoctor.straggler.readers.logs.formats import RECORD, Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import Line, rank_in
from distdoctor.straggler.readers.rank_rows import FileRows, rows_of_table
from distdoctor.straggler.readers.raw_table import RawTable
from distdoctor.straggler.readers.tables import reading_of_files

SOURCE = "log lines of ranks"

# A line of times is short; the rest of a longer one is not looked at. Our own bound.
_MAX_CHARACTERS = 2000

# Fewer lines are no log of steps. Our own bound.
_MIN_LINES = 2

# Ranks whose last step is open for a further line, names of times, and rows that become columns at once.
_MAX_OPEN = 65_536
_MAX_NAMES = 64
_BATCH = 16_384

_UNIT = "|".join(sorted(map(re.escape, UNIT_WORDS), key=len, reverse=True))
_RANK = re.compile(
    r"(?<![\w./-])(?:global[ _-])?rank(?:\"?[=:] ?|[ _#])?(\d{1,7})(?![\w])(?!\.\d)", re.IGNORECASE
)
_STEP = re.compile(
    r"(?<![\w.-])(?:global[ _-]?|train(?:ing)?[ _-])?(?:step|iteration|iter)\"?\s{0,2}[=:#]?\s{0,4}\[?\s{0,4}(\d{1,15})"
    rf"(?!\w)(?!\.\d)(?!\s?(?:{_UNIT})\b)",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"(?<![\w.-])epoch\"?\s?[=:#]?\s{0,2}\[?(\d{1,9})(?![\w.])", re.IGNORECASE)
_TIME = re.compile(
    r"(?<![\w./-])(?P<name>[A-Za-z][\w./-]{0,40}(?: [A-Za-z][\w./-]{0,40}){0,2})\"?"
    rf"(?:\s?[(\[](?P<bracket>{_UNIT})[)\]])?\s{{0,4}}[=:]?\s{{0,8}}"
    r"(?P<number>(?:\d{1,3}(?:,\d{3}){1,3}|\d{1,12})(?:\.\d{1,12})?(?:[eE][-+]?\d{1,3})?)"
    rf"(?:\s?(?P<unit>{_UNIT}))?(?![\w/%])(?!\.\d)"
)
# Steps of another kind than those that train.
_NO_TRAINING = re.compile(
    r"(?<![A-Za-z])(?:eval|evaluation|val|valid|validation|validate|test|warmup)(?![A-Za-z])", re.I
)
# A word before "rank 5" that says whom the line is about instead of who prints it.
_ABOUT = re.compile(
    r"(?i)\b(?:local|node|group|slowest|fastest|slow|fast|worst|best|straggler|max|min|peer|src|dst|source|root|from|to|"
    r"of|on|by|for|at|and|waiting|missing|than|dp|tp|pp|cp|ep|shard|data|tensor|pipeline|parallel)[ _:=-]{0,2}$"
)
# Words before a name that make another number of it: a mean, a running total.
_OTHER_NUMBER = frozenset(
    [
        "max",
        "min",
        "avg",
        "average",
        "mean",
        "median",
        "total",
        "sum",
        "cumulative",
        "p50",
        "p90",
        "p95",
        "p99",
        "std",
        "eta",
        "remaining",
        "elapsed",
        "expected",
        "running",
        "slowest",
        "fastest",
        "since",
        "without",
        "non",
        "no",
        "ema",
        "smoothed",
        "all",
    ]
)


class RankLines(LogFormat):
    """Lines of one file, gathered as a table with a row for each rank and step."""

    name = SOURCE
    triggers = (b"rank", b"Rank", b"RANK")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._table = RawTable(context.path)
        self._batch: list[dict[str, float]] = []
        self._open: dict[int, _Open] = {}
        self._names: set[str] = set()
        self._num_lines = 0
        self._failed: InputError | None = None

    def feed(self, line: Line) -> None:
        """One line; it counts when it tells a rank, a step and a time."""
        text = line.text[:_MAX_CHARACTERS]
        if text.lstrip()[:1] == "{" or self._failed is not None:
            return
        step = _STEP.search(text)
        if step is None or _NO_TRAINING.search(text):
            return
        rank = _rank_of(line, text)
        if rank is None:
            return
        times = self._times(text)
        if times:
            self._num_lines += 1
            epoch = _EPOCH.search(text)
            self._keep(rank, int(step[1]), int(epoch[1]) if epoch else 0, times)

    def _times(self, text: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for match in _TIME.finditer(text):
            told = match["bracket"] or match["unit"]
            name = _name_of(match["name"], UNIT_WORDS[told] if told else None)
            if name is None or name in found:
                continue
            if name not in self._names:
                if len(self._names) >= _MAX_NAMES:
                    continue
                self._names.add(name)
            scale = MS_IN[UNIT_WORDS[told]] if told and not _has_unit(match["name"]) else 1.0
            found[name] = float(match["number"].replace(",", "")) * scale
        return found

    def _keep(self, rank: int, step: int, epoch: int, times: dict[str, float]) -> None:
        row = self._open.get(rank)
        if row is None:
            if len(self._open) >= _MAX_OPEN:
                return
            row = self._open[rank] = _Open(step=step, epoch=epoch, times={})
        elif step != row.step or epoch != row.epoch or row.times.keys() & times.keys():
            self._commit(rank, row)
            if epoch > row.epoch and step <= row.step:
                # Steps begin anew in each epoch: they are counted on.
                row.offset += row.step + 1
            row.step, row.epoch, row.times = step, epoch, {}
        row.times.update(times)

    def _commit(self, rank: int, row: _Open) -> None:
        self._batch.append({"rank": rank, "step": row.offset + row.step, **row.times})
        if len(self._batch) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        names = dict.fromkeys(name for row in batch for name in row)
        try:
            self._table.add(len(batch), {name: [row.get(name) for row in batch] for name in names})
        except InputError as error:
            self._failed = error

    def finish(self, options: ReadOptions) -> FileFacts:
        """The rows of all ranks; what cannot be understood as times of steps is told in a note."""
        for rank, row in self._open.items():
            self._commit(rank, row)
        self._flush()
        if self._num_lines < _MIN_LINES:
            return FileFacts()
        try:
            if self._failed is not None:
                raise self._failed
            rows = rows_of_table(self._table, options)
        except InputError as error:
            note = Note(
                kind=NoteKind.UNREADABLE, text=f"`{self.context.path}`: {error.message}", how=error.hint
            )
            return FileFacts(notes=(note,))
        return FileFacts(rows=(rows,) if rows.ranks else ())


@dataclass(slots=True)
class _Open:
    """The last step of a rank: a further line may tell more of it."""

    step: int
    epoch: int
    times: dict[str, float]
    offset: int = 0


def _rank_of(line: Line, text: str) -> int | None:
    """The rank that prints the line; None when it does not say, or only whom it is about."""
    for match in _RANK.finditer(text):
        if not _ABOUT.search(text, max(0, match.start() - 16), match.start()):
            return int(match[1]) if int(match[1]) < MAX_RANKS else None
        return None
    return rank_in(line.who) if line.who and line.who.startswith("rank ") else None


def _name_of(words: str, unit: str | None) -> str | None:
    """The column that the name stands for, in its own unit or else in ms; None when it is no time of a step."""
    parts = words.split(" ")
    for start in range(len(parts)):
        if start and parts[start - 1].lower() in _OTHER_NUMBER:
            return None
        name = " ".join(parts[start:])
        if name.lower() in ("elapsed", "total"):
            return None
        own = column_of(name)
        if own is not None and own.unit is not None:
            is_time = own.role is Role.TIME or own.section is not None
            return name if is_time and own.rank is None and unit in (None, own.unit) else None
        if unit is None:
            continue
        column = column_of(f"{name}_ms")
        if column is not None and (column.role is Role.TIME or column.section is not None):
            return f"{name}_ms" if column.rank is None else None
    return None


def _has_unit(words: str) -> bool:
    column = column_of(words.rpartition(" ")[2])
    return column is not None and column.unit is not None


def reading_of_ranks(files: Sequence[FileRows]) -> Reading:
    """All logs together: times of ranks, or of a single rank a series. Raises InputError when they do not fit."""
    if not files:
        return Reading()
    reading = reading_of_files(files, SOURCE)
    lonely = [timings for timings in reading.steps if timings.num_ranks == 1]
    series = [_series(timings, files) for timings in lonely if Section.STEP in timings.sections]
    if not lonely:
        return reading
    note = Note(
        kind=NoteKind.LIMITED,
        text=f"log `{files[0].path}`: only rank {lonely[0].ranks[0]} prints, so a change over time can be seen, a slow "
        "rank cannot",
        how=f"print the same line on every rank, or {RECORD}",
    )
    return replace(
        reading,
        steps=tuple(
            each for each in reading.steps if each.num_ranks > 1 or Section.STEP not in each.sections
        ),
        series=(*reading.series, *series),
        notes=(*reading.notes, note),
    )


def _series(timings: StepTimings, files: Sequence[FileRows]) -> JobSeries:
    rank = timings.ranks[0]
    return JobSeries(
        name="step time",
        kind=SeriesKind.TIME,
        unit="ms",
        source=timings.source,
        path=next(file.path for file in files if any(rows.rank == rank for rows in file.ranks)),
        steps=timings.steps,
        values=timings.sections[Section.STEP][0].astype("float64"),
        printed_by=f"rank {rank}",
        splits={
            section.value: times[0].astype("float64")
            for section, times in timings.sections.items()
            if section is not Section.STEP
        },
    )
