"""From evidence to what it shows: collectives become waiting, ranks are judged, series get their shape. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysed import Analysed, CollectiveFacts, Judged, ShapedSeries
from distdoctor.straggler.analysis.collectives.arrivals import arrivals_of
from distdoctor.straggler.analysis.collectives.group_kinds import kinds_of
from distdoctor.straggler.analysis.collectives.late_groups import late_groups
from distdoctor.straggler.analysis.collectives.links import slow_links
from distdoctor.straggler.analysis.collectives.match import match
from distdoctor.straggler.analysis.collectives.wait_matrix import WaitMatrix, wait_matrix
from distdoctor.straggler.analysis.peers import WAITING_SET
from distdoctor.straggler.analysis.ranks.judge import judge
from distdoctor.straggler.checks.series.findings import analysed, primary_series
from distdoctor.straggler.column_medians import column_medians
from distdoctor.straggler.facts.collectives import CollectiveTimings
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.series import JobSeries, SeriesKind
from distdoctor.straggler.facts.steps import StepTimings, Times
from distdoctor.straggler.holes import with_holes

# The name of the step times that stand for all ranks.
JOB_STEPS = "step time of the job"


def analyse(reading: Reading, *, around_s: float | None = None, num_gpus: int | None = None) -> Analysed:
    """Everything that can be worked out. Timings of steps and of collectives of one source are taken together."""
    reading = with_holes(reading)
    waits: list[tuple[CollectiveTimings, WaitMatrix]] = []
    collectives = []
    notes = list(reading.notes)
    for timings in reading.collectives:
        matched = match(timings)
        if matched is None:
            continue
        kinds = kinds_of(matched)
        waiting = wait_matrix(timings, matched=matched, kinds=kinds)
        collectives.append(
            CollectiveFacts(
                source=timings.source,
                arrivals=arrivals_of(matched, kinds),
                links=slow_links(matched, kinds),
                late_groups=late_groups(waiting, matched) if waiting is not None else (),
            )
        )
        if waiting is not None:
            waits.append((timings, waiting))
            notes += [Note(kind=NoteKind.DROPPED_VALUES, text=text) for text in waiting.notes]
    judged = [_judged(each, around_s=around_s) for each in _with_waits(reading.steps, waits)]
    judged += [
        _judged(*_of_waits(timings, waiting), around_s=around_s)
        for timings, waiting in _alone(reading.steps, waits)
    ]
    done = _labelled([each for each in judged if each is not None])
    series = [_shaped(each, reading.series, around_s=around_s) for each in primary_series(reading.series)]
    series += [
        _shaped(each, (), around_s=around_s, of_ranks=True)
        for each in map(_job_series, done)
        if each is not None
    ]
    notes += [note for each in done for note in _damaged(each)]
    if around_s is not None and not _tells_time(reading):
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text="the evidence tells no times of day, so `--around` says nothing here",
            )
        )
    return Analysed(
        reading=replace(reading, notes=tuple(notes)),
        judged=done,
        collectives=tuple(collectives),
        series=tuple(series),
        around_s=around_s,
        num_gpus=num_gpus,
    )


def _judged(timings: StepTimings, unit: str = "step", *, around_s: float | None) -> Judged | None:
    judgement = judge(timings)
    if judgement is None:
        return None
    return Judged(timings=timings, judgement=judgement, around_s=around_s, unit=unit)


def _labelled(judged: Sequence[Judged]) -> tuple[Judged, ...]:
    """Several runs are told apart by where they were read from."""
    if len(judged) < 2:
        return tuple(judged)
    sources = [each.timings.source for each in judged]
    return tuple(
        replace(each, label=source if sources.count(source) == 1 else f"{source}, run {number + 1}")
        for number, (each, source) in enumerate(zip(judged, sources, strict=True))
    )


def _tells_time(reading: Reading) -> bool:
    clocks = [each.started_s for each in reading.steps] + [each.utc_s for each in reading.series]
    return bool(reading.telemetry) or any(clock is not None for clock in clocks)


def _damaged(judged: Judged) -> list[Note]:
    """Files that turned out to be broken while their sections were read; their ranks have no values."""
    damaged: Mapping[str, str] = getattr(judged.timings.sections, "damaged", {})
    return [
        Note(kind=NoteKind.UNREADABLE, text=f"`{path}`: {reason}; its ranks are not judged")
        for path, reason in damaged.items()
    ]


def _with_waits(
    steps: Sequence[StepTimings], waits: Sequence[tuple[CollectiveTimings, WaitMatrix]]
) -> list[StepTimings]:
    """Step timings of a source with the waiting that its collectives show, where they tell the step."""
    found = []
    for timings in steps:
        beside = next((each for of, each in waits if of.source == timings.source and each.steps_known), None)
        if beside is None or Section.WAIT in timings.sections:
            found.append(timings)
            continue
        sections = {**timings.sections, Section.WAIT: _aligned(timings, beside)}
        found.append(replace(timings, sections=sections))
    return found


def _alone(
    steps: Sequence[StepTimings], waits: Sequence[tuple[CollectiveTimings, WaitMatrix]]
) -> list[tuple[CollectiveTimings, WaitMatrix]]:
    sources = {timings.source for timings in steps}
    return [(of, each) for of, each in waits if of.source not in sources or not each.steps_known]


def _aligned(timings: StepTimings, waiting: WaitMatrix) -> Times:
    """Waiting in the rows and columns of `timings`; NaN where the collectives tell nothing."""
    array = np.full((timings.num_ranks, timings.num_steps), np.nan, dtype=np.float32)
    rows = {rank: row for row, rank in enumerate(waiting.ranks)}
    columns = {int(step): column for column, step in enumerate(waiting.steps)}
    pairs = [
        (column, columns[int(step)]) for column, step in enumerate(timings.steps) if int(step) in columns
    ]
    if not pairs:
        return array
    here, there = (np.array(each, dtype=np.intp) for each in zip(*pairs, strict=True))
    for row, rank in enumerate(timings.ranks):
        if rank in rows:
            array[row, here] = waiting.wait_ms[rows[rank], there]
    return array


def _of_waits(timings: CollectiveTimings, waiting: WaitMatrix) -> tuple[StepTimings, str]:
    """Waiting alone as step timings: who waits least is last."""
    places = {place.rank: place for place in timings.places}
    several = len(waiting.joined) > 1
    set_of = {int(row): number for number, rows in enumerate(waiting.joined) for row in rows}
    named = []
    for row, rank in enumerate(waiting.ranks):
        place = places.get(rank, Place(rank=rank))
        if several:
            # Ranks that never wait for one another cannot be compared.
            place = replace(place, coords={**place.coords, WAITING_SET: set_of.get(row, -1)})
        named.append(place)
    unit = "step" if waiting.steps_known else "window"
    return (
        StepTimings(
            source=timings.source,
            places=tuple(named),
            steps=waiting.steps,
            sections={Section.COMM: waiting.comm_ms},
            world_size=timings.world_size,
        ),
        unit,
    )


def _shaped(
    series: JobSeries, all_series: Sequence[JobSeries], *, around_s: float | None, of_ranks: bool = False
) -> ShapedSeries:
    beside = [each for each in all_series if each.path == series.path and each is not series]
    shape, told = analysed(series, around_s=around_s, beside=beside)
    told = replace(told, one_rank=not of_ranks)
    return ShapedSeries(series=series, shape=shape, told=told, of_ranks=of_ranks)


def _job_series(judged: Judged) -> JobSeries | None:
    """The job's step time over all ranks: the wall clock where it is told, else what the median rank took."""
    timings = judged.timings
    if judged.unit != "step" or timings.num_steps < 2:
        return None
    values = _job_steps(timings.sections)
    if values is None:
        return None
    return JobSeries(
        name=JOB_STEPS,
        kind=SeriesKind.TIME,
        unit="ms",
        source=timings.source,
        path="",
        steps=timings.steps,
        values=values,
        utc_s=timings.started_s,
        zone_known=True,
        steps_per_value=1,
        printed_by="all ranks",
    )


def _job_steps(sections: Mapping[Section, Times]) -> NDArray[np.float64] | None:
    if Section.STEP not in sections:
        return None
    walls = sections[Section.STEP]
    sample = walls[:: max(1, len(walls) // 64)]
    return column_medians(sample).astype(np.float64)
