"""Megatron-LM's timers across ranks: least and most of each, or (`--timing-log-option all`) the times of every rank.

    (min, max) time across ranks (ms):                       times across ranks (ms):
        forward-compute ....................: (10.1, 12.3)     forward-compute:
                                                                    rank  0: 10.12

What each timer holds, megatron_sections.py says.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.series import Extremes
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.drafts import MAX_VALUES, spacing
from distdoctor.straggler.readers.logs.formats import Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import NAN, Line, number
from distdoctor.straggler.readers.logs.megatron import ALL_RANKS
from distdoctor.straggler.readers.logs.megatron_args import MAX_RANKS, MegatronArguments
from distdoctor.straggler.readers.logs.megatron_sections import kind_of, sections_of
from distdoctor.straggler.readers.rows import StepRows

_MINMAX = re.compile(r"\s{0,12}([A-Za-z][\w /-]{0,63}?) ?\.{0,64}: \(([-+.\w]{1,32}), ([-+.\w]{1,32})\)\s*$")
_MAX = re.compile(r"\s{0,12}([A-Za-z][\w /-]{0,63}?) \.{1,64}: ([-+.\w]{1,32})\s*$")
_NAME = re.compile(r"\s{1,12}([A-Za-z][\w /-]{0,63}):\s*$")
_RANK = re.compile(r"\s{1,12}rank\s{1,8}(\d{1,9}): ([-+.\w]{1,32})\s*$")

_STAMP = re.compile(
    r"^\s{0,4}\[?(?:\d{4}-\d\d-\d\d[ T]|[A-Z][a-z]{2} [ \d]\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?\]?(?: ?[|:-](?= ))?(?= )"
)

# Lines of other processes may fall into a block; after so many in a row it is over.
_MAX_STRANGE_LINES = 8
_MAX_TIMERS = 128

# Values of one file in memory; 40 million float32 are 160 MB.
_MAX_RANK_VALUES = 40_000_000
# The same as an array of ranks × reports; ranks that report here and there would make it far larger.
_MAX_ARRAY_VALUES = 80_000_000


@dataclass(slots=True)
class _Timer:
    steps: array[int] = field(default_factory=lambda: array("q"))
    low: array[float] = field(default_factory=lambda: array("d"))
    high: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class _Block:
    """One report of all ranks: times by kind of timer and rank."""

    step: int
    step_ms: float
    values: dict[str, dict[int, float]] = field(default_factory=dict)


class MegatronTimers(LogFormat):
    """Blocks of timers, and the arguments that tell what the timers hold."""

    name = "Megatron-LM timers"
    has_blocks = True
    triggers = (
        b"across ranks (ms):",
        b"......",
        b"_parallel_size .",
        b"using world size:",
        b"elapsed time per iteration",
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.arguments = MegatronArguments()
        self._timers: dict[str, _Timer] = {}
        self._blocks: list[tuple[int, dict[str, tuple[NDArray[np.int32], NDArray[np.float32]]]]] = []
        self._num_values = 0
        self._num_left_out = 0
        self._num_absurd = 0
        self._block: _Block | None = None
        self._all_ranks = False
        self._timer: str | None = None
        self._strange = 0
        self._seen_forward_backward = False

    def feed(self, line: Line) -> None:
        """A header, a line of a block, or an argument."""
        # As `ts` and log collectors put it before each line of a block.
        text = _STAMP.sub("", line.text)
        if "across ranks (ms):" in text:
            self._close()
            self.in_block, self._strange, self._timer = True, 0, None
            self._all_ranks = "(min, max)" not in text and "max time" not in text
            step = self.context.iteration
            self._block = _Block(step=-1 if step is None else step, step_ms=self.context.iteration_ms)
            return
        if "elapsed time per iteration" in text:
            self._close()
            return
        if self.in_block and self._take(text):
            self._strange = 0
            return
        if self.arguments.take(text):
            return
        if self.in_block:
            self._strange += 1
            if self._strange > _MAX_STRANGE_LINES:
                self._close()

    def _take(self, text: str) -> bool:
        if not self._all_ranks:
            return self._take_extremes(text)
        match = _RANK.match(text)
        if match is not None:
            rank = int(match[1])
            if self._timer is not None and self._block is not None and rank < MAX_RANKS:
                self._block.values.setdefault(self._timer, {})[rank] = number(match[2])
            return True
        match = _NAME.match(text)
        if match is None:
            return False
        self._timer = match[1] if self._block and len(self._block.values) < _MAX_TIMERS else None
        return True

    def _take_extremes(self, text: str) -> bool:
        match = _MINMAX.match(text)
        low, high = NAN, NAN
        if match is not None:
            low, high = number(match[2]), number(match[3])
        else:
            match = _MAX.match(text)
            if match is None:
                return False
            high = number(match[2])
        if not 0 <= high < 1e12 or low > high:
            self._num_absurd += 1
            return True
        timer = self._timers.get(match[1])
        if timer is None:
            if len(self._timers) >= _MAX_TIMERS:
                return True
            timer = self._timers[match[1]] = _Timer()
        if len(timer.steps) < MAX_VALUES:
            timer.steps.append(self._block.step if self._block else -1)
            timer.low.append(low)
            timer.high.append(high)
        else:
            self._num_left_out += 1
        return True

    def _close(self) -> None:
        block, self._block, self.in_block = self._block, None, False
        if block is None or not block.values:
            return
        self._seen_forward_backward |= "forward-backward" in block.values
        sums: dict[str, dict[int, float]] = {}
        for name, by_rank in block.values.items():
            kind = kind_of(name)
            if kind is None:
                continue
            total = sums.setdefault(kind, {})
            for rank, value in by_rank.items():
                if 0 <= value < 1e12:
                    total[rank] = total.get(rank, 0.0) + value
                else:
                    self._num_absurd += 1
        if not sums:
            return
        if 0 <= block.step_ms < 1e12:
            sums["step"] = dict.fromkeys(sorted(set().union(*sums.values())), block.step_ms)
        count = sum(len(each) for each in sums.values())
        if self._num_values + count > _MAX_RANK_VALUES:
            self._num_left_out += count
            return
        self._num_values += count
        self._blocks.append(
            (
                block.step,
                {
                    kind: (
                        np.fromiter(by_rank, dtype=np.int32, count=len(by_rank)),
                        np.fromiter(by_rank.values(), dtype=np.float32, count=len(by_rank)),
                    )
                    for kind, by_rank in sums.items()
                },
            )
        )

    def finish(self, options: ReadOptions) -> FileFacts:
        """Extremes of `minmax` and `max`, times of every rank of `all`."""
        self._close()
        what = f"Megatron-LM log `{self.context.path}`"
        timings, notes = self._timings(options, what)
        if self._num_absurd:
            notes += (
                Note(
                    kind=NoteKind.DROPPED_VALUES,
                    text=f"{what}: {self._num_absurd} timer values are no number, negative or implausible, and were "
                    "left out",
                ),
            )
        if self._num_left_out:
            notes += (
                Note(
                    kind=NoteKind.CUT_SHORT,
                    text=f"{what}: more timer values than fit into memory; the last {self._num_left_out:,} were left out",
                    how="give a part of the log",
                ),
            )
        extremes = self._extremes(options)
        return FileFacts(
            how=ALL_RANKS if extremes else None,
            extremes=extremes,
            steps=(timings,) if timings is not None else (),
            notes=notes,
        )

    def _extremes(self, options: ReadOptions) -> tuple[Extremes, ...]:
        # Before the first iteration line there is set-up only; a log without any has reports, numbered as they come.
        numbered = any(max(timer.steps) >= 0 for timer in self._timers.values())
        forward_waits = self.arguments.waits_for_its_peers_inside()
        backward_waits = forward_waits or self.arguments.flag("overlap_grad_reduce") is True
        waiting = {"forward-compute": forward_waits, "backward-compute": backward_waits}
        found = []
        for name, timer in self._timers.items():
            steps = np.array(timer.steps, dtype=np.int64)
            if not numbered:
                steps = np.arange(1, len(steps) + 1, dtype=np.int64)
            kept = (steps >= 0) & options.wants_each(steps)
            if not kept.any():
                continue
            found.append(
                Extremes(
                    name=name,
                    source=self.name,
                    path=self.context.path,
                    unit="ms",
                    steps=steps[kept],
                    low=np.array(timer.low, dtype=np.float64)[kept],
                    high=np.array(timer.high, dtype=np.float64)[kept],
                    holds_waiting=waiting.get(name, False),
                )
            )
        return tuple(found)

    def _timings(self, options: ReadOptions, what: str) -> tuple[StepTimings | None, tuple[Note, ...]]:
        blocks = self._blocks
        if any(step >= 0 for step, _ in blocks):
            blocks = [(step, kinds) for step, kinds in blocks if step >= 0 and options.wants(step)]
        else:
            blocks = [
                (index + 1, kinds) for index, (_, kinds) in enumerate(blocks) if options.wants(index + 1)
            ]
        if not blocks:
            return None, ()
        ranks = np.unique(np.concatenate([each[0] for _, kinds in blocks for each in kinds.values()]))
        kinds = sorted({kind for _, each in blocks for kind in each})
        if len(ranks) * len(blocks) * len(kinds) > _MAX_ARRAY_VALUES:
            note = Note(
                kind=NoteKind.CUT_SHORT,
                text=f"{what}: timers of {len(ranks):,} ranks × {len(blocks):,} reports do not fit into memory; left out",
                how="give a range of steps: `--steps 1000:3000`",
            )
            return None, (note,)
        steps = np.array([step for step, _ in blocks], dtype=np.int64)
        times = {kind: np.full((len(ranks), len(blocks)), np.nan, dtype=np.float32) for kind in kinds}
        for column, (_, by_kind) in enumerate(blocks):
            for kind, (who, values) in by_kind.items():
                times[kind][np.searchsorted(ranks, who), column] = values
        sections, notes = sections_of(times, self.arguments, what)
        if self._seen_forward_backward and not {"forward", "backward"} & set(kinds):
            notes += (
                Note(
                    kind=NoteKind.LIMITED,
                    text=f"{what}: timers of level 1 hold waiting and work in one",
                    how="run with `--timing-log-level 2 --timing-log-option all`",
                ),
            )
        if not sections:
            return None, notes
        interval = spacing(np.unique(steps))
        if interval is not None and interval > 1:
            notes += (
                Note(
                    kind=NoteKind.LIMITED,
                    text=f"{what}: each time is a mean over {interval} iterations, in which a single slow one hardly shows",
                    how="run with `--log-interval 1`",
                ),
            )
        rows = StepRows()
        if self.arguments.world_size is not None:
            rows.world_sizes.append(self.arguments.world_size)
        for row, rank in enumerate(ranks.tolist()):
            rows.add(rank, steps, {section: values[row] for section, values in sections.items()})
            rows.place(self.arguments.place(rank))
        timings, odd = rows.build(self.name)
        return timings, notes + odd
