"""What the evidence holds, together with what is wrong with it and what it can never show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum

from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.collectives import CollectiveTimings
from distdoctor.straggler.facts.series import Extremes, JobSeries, ToolClaim
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.facts.telemetry import Telemetry


class NoteKind(str, Enum):
    """What is odd about the evidence. `report` says what it does to the verdict."""

    MISSING_RANKS = "missing ranks"
    DUPLICATE_RANKS = "duplicated ranks"
    RESTARTED = "restarts"
    WORLD_CHANGED = "world size changed"
    CLOCK_JUMP = "clock jump"
    CUT_SHORT = "cut short"
    UNREADABLE = "unreadable"
    DROPPED_VALUES = "values left out"
    MIXED_UNITS = "mixed units"
    MIXED_RUNS = "several runs"
    LEFT_ASIDE = "left aside"
    NOT_COLLECTIVE = "no collectives"
    LIMITED = "cannot show"
    """What this kind of evidence can never show: "one rank's log shows a change, not a rank"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One odd thing, in a sentence without a full stop that names numbers: "rank 3 is in two files; …"."""

    kind: NoteKind
    text: str
    how: str | None = None
    """What would mend it: a command, an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that was read. Every field is a tuple, so that readings add up (`join`)."""

    steps: tuple[StepTimings, ...] = ()
    collectives: tuple[CollectiveTimings, ...] = ()
    series: tuple[JobSeries, ...] = ()
    extremes: tuple[Extremes, ...] = ()
    telemetry: tuple[Telemetry, ...] = ()
    claims: tuple[ToolClaim, ...] = ()
    notes: tuple[Note, ...] = ()
    inputs: tuple[InputFile, ...] = ()


def join(readings: Iterable[Reading]) -> Reading:
    """Several readings as one, in their order."""
    all_readings = list(readings)
    return Reading(
        **{
            field.name: tuple(item for each in all_readings for item in getattr(each, field.name))
            for field in fields(Reading)
        }
    )
