"""Values of one series as a log tells them, line by line: restarts, repeats and absurd numbers are sorted out."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.series import JobSeries, SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.lines import NAN

# Values kept of one series; 2 million lines of timing are some 200 MB of log. More are left out and named.
MAX_VALUES = 2_000_000
MAX_SERIES = 256
MAX_SPLITS = 48

# How `printed_by` begins where several print the same series.
SEVERAL = "each of"

# Beyond it a step number is a slip or a time stamp.
MAX_STEP = 10**15

# No step takes longer than 10 days: such a number is broken. Our own bound.
MAX_TIME_MS = 10 * 86_400_000.0


@dataclass(slots=True)
class Row:
    """One value of a series."""

    step: int
    value: float
    utc_s: float = NAN
    splits: dict[str, float] | None = None


@dataclass(slots=True)
class Draft:
    """Rows of one series in the order of the log.

    A job that was restarted from a checkpoint tells steps again. Every attempt becomes a series of its own, so that
    steps ascend in each and nothing is averaged or lost. One step told twice (two ranks write into one log, a line is
    tee'd twice) is a repeat; the first counts. The two are told apart by what follows: after a restart the steps go on
    rising from the earlier step.
    """

    name: str
    kind: SeriesKind
    unit: str
    zone_known: bool = False
    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    utc_s: array[float] = field(default_factory=lambda: array("d"))
    splits: dict[str, array[float]] = field(default_factory=dict)
    attempts: list[int] = field(default_factory=lambda: [0])
    """Where each attempt begins."""
    num_repeats: int = 0
    num_absurd: int = 0
    num_left_out: int = 0
    _pending: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """One more value; what is not finite, negative or absurd is counted and left out."""
        limit = MAX_TIME_MS if self.kind is SeriesKind.TIME else math.inf
        if not (math.isfinite(row.value) and 0 <= row.value <= limit and 0 <= row.step <= MAX_STEP):
            self.num_absurd += 1
            return
        last = self.steps[-1] if self.steps else -1
        if self._pending:
            earlier = self._pending[-1]
            if row.step > last:
                self.num_repeats += len(self._pending)
                self._pending.clear()
                self._keep(row)
            elif earlier.step < row.step < last:
                self.attempts.append(len(self.steps))
                for each in (*self._pending, row):
                    self._keep(each)
                self._pending.clear()
            else:
                self.num_repeats += 1
                if row.step < earlier.step:
                    self._pending = [row]
        elif row.step > last:
            self._keep(row)
        elif row.step == last:
            self.num_repeats += 1
        else:
            self._pending = [row]

    def _keep(self, row: Row) -> None:
        if len(self.steps) >= MAX_VALUES:
            self.num_left_out += 1
            return
        at = len(self.steps)
        self.steps.append(row.step)
        self.values.append(row.value)
        self.utc_s.append(row.utc_s)
        for name, value in (row.splits or {}).items():
            column = self.splits.get(name)
            if column is None:
                if len(self.splits) >= MAX_SPLITS:
                    continue
                column = self.splits[name] = array("d")
            column.extend([NAN] * (at - len(column)))
            column.append(value)

    def build(
        self,
        options: ReadOptions,
        *,
        source: str,
        path: str,
        printed_by: str | None,
        host: str | None,
        steps_per_value: int | None = None,
    ) -> tuple[JobSeries, ...]:
        """A series for each attempt that has values of the wanted steps."""
        if self._pending:
            self.num_repeats += len(self._pending)
            self._pending.clear()
        steps = np.array(self.steps, dtype=np.int64)
        values = np.array(self.values, dtype=np.float64)
        times = np.array(self.utc_s, dtype=np.float64)
        columns = {name: _padded(column, len(steps)) for name, column in self.splits.items()}
        built = []
        for index, (start, end) in enumerate(
            zip(self.attempts, [*self.attempts[1:], len(steps)], strict=True)
        ):
            kept = np.arange(start, end)[options.wants_each(steps[start:end])]
            if not len(kept):
                continue
            built.append(
                JobSeries(
                    name=self.name if not index else f"{self.name}, attempt {index + 1}",
                    kind=self.kind,
                    unit=self.unit,
                    source=source,
                    path=path,
                    steps=steps[kept],
                    values=values[kept],
                    utc_s=None if np.all(np.isnan(times[kept])) else times[kept],
                    zone_known=self.zone_known,
                    steps_per_value=steps_per_value or spacing(steps[kept]),
                    printed_by=printed_by,
                    host=host,
                    splits={name: column[kept] for name, column in columns.items()},
                )
            )
        return tuple(built)

    def notes(self, what: str) -> tuple[Note, ...]:
        """What is odd; `what` names the log."""
        found = []
        if len(self.attempts) > 1:
            where = self.attempts[1]
            found.append(
                Note(
                    kind=NoteKind.RESTARTED,
                    text=f"{what}: {self.name} goes back {len(self.attempts) - 1} "
                    f"time{'s' if len(self.attempts) > 2 else ''}, first from step {self.steps[where - 1]} to "
                    f"{self.steps[where]}, as after a restart; each attempt is a series of its own",
                )
            )
        if self.num_repeats:
            found.append(
                Note(
                    kind=NoteKind.DROPPED_VALUES,
                    text=f"{what}: {self.num_repeats} value{'s' if self.num_repeats > 1 else ''} of {self.name} "
                    "tell a step again; the first counts",
                )
            )
        if self.num_absurd:
            found.append(
                Note(
                    kind=NoteKind.DROPPED_VALUES,
                    text=f"{what}: {self.num_absurd} value{'s' if self.num_absurd > 1 else ''} of {self.name} "
                    "are no number, negative or implausible, and were left out",
                )
            )
        if self.num_left_out:
            found.append(
                Note(
                    kind=NoteKind.CUT_SHORT,
                    text=f"{what}: {self.name} has more than {MAX_VALUES:,} values; the last {self.num_left_out:,} "
                    "were left out",
                    how="give a range of steps: `--steps 1000:3000`, or the part of the log that matters",
                )
            )
        return tuple(found)


Source = tuple[str | None, str | None, str | None]


class DraftSet:
    """Drafts by name and by who printed them. When several print the same series, one is kept."""

    def __init__(self) -> None:
        self._drafts: dict[tuple[str, Source], Draft] = {}

    def draft(self, name: str, kind: SeriesKind, unit: str, source: Source) -> Draft:
        """The draft to add to; one that is thrown away when a log names absurdly many."""
        draft = self._drafts.get((name, source))
        if draft is None:
            draft = Draft(name=name, kind=kind, unit=unit)
            if len(self._drafts) < MAX_SERIES:
                self._drafts[name, source] = draft
        return draft

    def build(
        self,
        options: ReadOptions,
        *,
        source: str,
        path: str,
        what: str,
        printed_by: str | None,
        steps_per_value: Mapping[str, int] | None = None,
    ) -> tuple[tuple[JobSeries, ...], tuple[Note, ...]]:
        """Series and notes. `printed_by` is what is known of the tool when the lines do not say who printed them."""
        series: list[JobSeries] = []
        notes: list[Note] = []
        for name in dict.fromkeys(name for name, _ in self._drafts):
            tellers = {
                key: draft for (each, key), draft in self._drafts.items() if each == name and draft.steps
            }
            if not tellers:
                continue
            key, draft = max(tellers.items(), key=lambda item: (len(item[1].steps), _low_rank_first(item[0])))
            host, pod, who = key
            series += draft.build(
                options,
                source=source,
                path=path,
                printed_by=_each_of(tellers) if len(tellers) > 1 else who or printed_by,
                host=host,
                steps_per_value=(steps_per_value or {}).get(name),
            )
            notes += draft.notes(what)
            if len(tellers) > 1:
                shown = (
                    ", ".join(str(part) for part in (who, host or pod) if part) or "lines that name nobody"
                )
                notes.append(
                    Note(
                        kind=NoteKind.LIMITED,
                        text=f"{what}: {len(tellers)} processes print {name}; it is a number of the whole job, equal "
                        f"on all, so that of {shown} is kept and ranks are not compared by it",
                    )
                )
        return tuple(series), tuple(notes)


def spacing(steps: NDArray[np.int64]) -> int | None:
    """The commonest distance between steps; None for a single step."""
    if len(steps) < 2:
        return None
    distances, counts = np.unique(np.diff(steps), return_counts=True)
    return int(distances[np.argmax(counts)])


def _padded(column: Iterable[float], length: int) -> NDArray[np.float64]:
    values = np.full(length, np.nan)
    told = np.array(column, dtype=np.float64)
    values[: len(told)] = told
    return values


def _each_of(tellers: Iterable[Source]) -> str:
    """Who printed a series that several print: "each of 8 ranks"."""
    all_tellers = list(tellers)
    is_ranks = all(who is not None and who.startswith("rank ") for _, _, who in all_tellers)
    return f"{SEVERAL} {len(all_tellers)} {'ranks' if is_ranks else 'processes'}"


def _low_rank_first(source: Source) -> tuple[int, str]:
    who = source[2]
    rank = int(who.rsplit(" ", 1)[1]) if who else -1
    return -rank, str(source[0] or "")
