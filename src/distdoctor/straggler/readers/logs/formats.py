"""What a format of log lines is: substrings that give its lines away, and a parser that is fed with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.reading import Note
from distdoctor.straggler.facts.series import Extremes, JobSeries, ToolClaim
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.lines import NAN, Line
from distdoctor.straggler.readers.rank_rows import FileRows

RECORD = "record the times of every rank: `torchrun … -m distdoctor straggler record -- train.py`"
"""What to do when one rank printed for all."""


@dataclass(slots=True)
class Context:
    """What formats in one file tell one another."""

    path: str
    iteration: int | None = None
    """Of the last iteration line: timers and straggler reports follow it."""
    iteration_ms: float = NAN


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWall:
    """Wall times of steps that one rank printed; equal on all ranks of a synchronous job."""

    rank: int
    steps: NDArray[np.int64]
    times_ms: NDArray[np.float64]
    utc_s: NDArray[np.float64] | None = None
    """When each line was written or each step began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What one parser found in one file."""

    series: tuple[JobSeries, ...] = ()
    extremes: tuple[Extremes, ...] = ()
    claims: tuple[ToolClaim, ...] = ()
    steps: tuple[StepTimings, ...] = ()
    notes: tuple[Note, ...] = ()
    walls: tuple[RankWall, ...] = ()
    rows: tuple[FileRows, ...] = ()
    """Times of ranks that become a reading together with those of other files."""
    how: str | None = None
    """How to have all ranks in the log, when one rank printed for all."""

    @property
    def is_empty(self) -> bool:
        """Nothing was found, not even a limit worth telling."""
        return not (self.has_times or self.claims or self.notes)

    @property
    def has_times(self) -> bool:
        """There is something of how long steps took."""
        return bool(self.series or self.extremes or self.steps or self.walls or self.rows)


class LogFormat:
    """Parser of one format for one file. `feed` gets every line with a trigger, and all lines while `in_block`."""

    name: ClassVar[str]
    """In words, for reports: "Megatron-LM log"."""
    triggers: ClassVar[tuple[bytes, ...]]
    """Each line of the format holds one of them."""
    has_blocks: ClassVar[bool] = False
    """Some lines are known only by the header above them: `in_block` asks for all lines then."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.in_block = False

    def feed(self, line: Line) -> None:
        """One line; never raises, whatever it holds."""
        raise NotImplementedError

    def finish(self, options: ReadOptions) -> FileFacts:
        """All that the file told."""
        raise NotImplementedError


@dataclass(slots=True)
class ClaimDraft:
    """The same claim said again and again, as one."""

    text: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    line: int
    rule: str
    scores: dict[int, float] = field(default_factory=dict)
    times: int = 1


MAX_CLAIMS = 1000


class Claims:
    """Claims of one tool, folded: a report each minute would otherwise be thousands of equal ones."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.drafts: dict[tuple[str, tuple[int, ...]], ClaimDraft] = {}

    def say(
        self,
        text: str,
        *,
        ranks: tuple[int, ...],
        hosts: tuple[str, ...],
        line: int,
        rule: str,
        scores: Mapping[int, float] | None = None,
    ) -> ClaimDraft:
        """One claim; equal text and ranks count as one."""
        draft = self.drafts.get((text, ranks))
        if draft is None:
            draft = ClaimDraft(text=text, ranks=ranks, hosts=hosts, line=line, rule=rule)
            if len(self.drafts) < MAX_CLAIMS:
                self.drafts[text, ranks] = draft
        else:
            draft.times += 1
        draft.scores.update(scores or {})
        return draft

    def build(self, path: str) -> tuple[ToolClaim, ...]:
        """One claim for each; the line is that of the first time."""
        return tuple(
            ToolClaim(
                tool=self.tool,
                text=each.text if each.times == 1 else f"{each.text} ({each.times} times)",
                path=path,
                line=each.line,
                ranks=each.ranks,
                hosts=each.hosts,
                scores=each.scores,
                rule=each.rule,
            )
            for each in self.drafts.values()
        )
