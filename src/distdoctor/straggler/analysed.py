"""Evidence with everything that was worked out from it: what the checks see."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.report.assemble import clip_title
from distdoctor.straggler.analysis.collectives.arrivals import Arrivals
from distdoctor.straggler.analysis.collectives.late_groups import LateGroup
from distdoctor.straggler.analysis.collectives.links import Links
from distdoctor.straggler.analysis.ranks.judgement import Judgement
from distdoctor.straggler.analysis.series.regimes import SeriesShape
from distdoctor.straggler.checks.series.words import Told
from distdoctor.straggler.facts.reading import Reading
from distdoctor.straggler.facts.series import JobSeries
from distdoctor.straggler.facts.steps import StepTimings


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Times of ranks and what they show."""

    timings: StepTimings
    judgement: Judgement
    around_s: float | None = None
    """When it got slow, as the user says; seconds since 1970 UTC."""
    unit: str = "step"
    """What a column is: "step", or "window" (of so many collectives) where steps are not known."""

    label: str = ""
    """Which of several runs it is; empty when there is only one."""

    @property
    def source(self) -> str:
        """Where it was read from, in words."""
        return self.label or self.timings.source

    def titled(self, text: str) -> str:
        """A title of a finding, with the run before it where there are several."""
        return clip_title(f"{self.label}: {text}" if self.label else text)

    @property
    def units(self) -> str:
        """ "200 steps"."""
        num = self.judgement.num_steps
        return f"{num:,} {self.unit}{'s' if num != 1 else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFacts:
    """What collectives show beside the waiting that went into a judgement."""

    source: str
    arrivals: Arrivals
    links: Links
    late_groups: tuple[LateGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedSeries:
    """One series of the whole job, and its shape."""

    series: JobSeries
    shape: SeriesShape
    told: Told
    """What else its log tells, for words."""
    of_ranks: bool = False
    """The step time over all ranks of a recording, not one rank's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """All of it."""

    reading: Reading
    judged: tuple[Judged, ...] = ()
    collectives: tuple[CollectiveFacts, ...] = ()
    series: tuple[ShapedSeries, ...] = ()
    around_s: float | None = None
    """When it got slow, as the user says; seconds since 1970 UTC."""
    num_gpus: int | None = None
    """In the job, as the user says."""
