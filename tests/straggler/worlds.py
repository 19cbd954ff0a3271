"""Small synchronous jobs with or without somebody slow: every step lasts as long as its slowest rank.

Parts are drawn first, and what a rank waits follows from them, so that a slow rank makes all others wait. Nothing here
knows how the analysis works.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distdoctor.report.model import GpuRef, InputFile
from distdoctor.straggler.analyse import analyse
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.judge import judge
from distdoctor.straggler.analysis.ranks.judgement import Judgement
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings

# What a usual step consists of, ms.
PARTS = {
    Section.DATA: 4.0,
    Section.FORWARD: 100.0,
    Section.BACKWARD: 200.0,
    Section.OPTIMIZER: 6.0,
}
OWN_MS = sum(PARTS.values())
TRANSFER_MS = 30.0

# 2026-11-30T12:00:00Z.
NOON_S = 1796040000.0


@dataclass(frozen=True, kw_only=True)
class Slow:
    """Ranks that take longer in a part of their steps."""

    ranks: Sequence[int]
    ms: float
    """Added in each of the steps."""
    section: Section | None = Section.BACKWARD
    """None: in none of the timed parts."""
    start: int = 0
    end: int | None = None
    every: int = 1
    steps: Sequence[int] | None = None
    """Only in these, whatever `start`, `end` and `every` say."""

    def columns(self, num_steps: int) -> NDArray[np.intp]:
        if self.steps is not None:
            return np.asarray(self.steps, dtype=np.intp)
        return np.arange(num_steps, dtype=np.intp)[self.start : self.end : self.every]


def job(
    num_ranks: int = 8,
    num_steps: int = 120,
    *,
    slow: Sequence[Slow] = (),
    noise: float = 0.01,
    seed: int = 1,
    stages: Sequence[float] = (1.0,),
    tells_coordinates: bool = True,
    gpus_per_host: int | None = None,
    gpu_model: str | None = None,
    first_step: int = 0,
    started_s: float | None = None,
    world_size: int | None = None,
    more_parts: Mapping[Section, float] | None = None,
    common: NDArray[np.float64] | None = None,
) -> StepTimings:
    """A job with all parts, waiting and the whole step; `stages` weigh pipeline stages, outermost, split evenly.

    `common` (steps,) multiplies everybody's work; `more_parts` are sections beside the usual ones.
    """
    rng = np.random.default_rng(seed)
    stage_size = num_ranks // len(stages)
    weight = np.repeat(np.asarray(stages, dtype=np.float64), stage_size)[:, None]
    parts = {
        section: ms * weight * np.abs(1 + noise * rng.standard_normal((num_ranks, num_steps)))
        for section, ms in {**PARTS, **(more_parts or {})}.items()
    }
    outside = np.zeros((num_ranks, num_steps))
    for each in slow:
        rows, columns = np.asarray(each.ranks, dtype=np.intp), each.columns(num_steps)
        target = outside if each.section is None else parts.setdefault(each.section, np.zeros_like(outside))
        target[np.ix_(rows, columns)] += each.ms
    if common is not None:
        parts = {section: times * common for section, times in parts.items()}
    inside = (Section.GC, Section.IDLE)
    own = outside + sum(times for section, times in parts.items() if section not in inside)
    wait = own.max(axis=0) - own + TRANSFER_MS * (1 + 0.02 * rng.random((num_ranks, num_steps)))
    sections = {**parts, Section.WAIT: wait, Section.STEP: own + wait}
    clock = None
    if started_s is not None:
        clock = started_s + np.concatenate([[0], np.cumsum((own + wait)[0] / 1e3)[:-1]])
    return StepTimings(
        source="a recording",
        places=tuple(
            Place(
                rank=rank,
                host=None if gpus_per_host is None else f"host-{rank // gpus_per_host}",
                local_rank=None if gpus_per_host is None else rank % gpus_per_host,
                gpu=None if gpu_model is None else GpuRef(index=rank % (gpus_per_host or 8), model=gpu_model),
                coords={"pp": rank // stage_size, "dp": rank % stage_size} if tells_coordinates else {},
            )
            for rank in range(num_ranks)
        ),
        steps=np.arange(first_step, first_step + num_steps, dtype=np.int64),
        sections={section: times.astype(np.float32) for section, times in sections.items()},
        started_s=clock,
        world_size=world_size,
    )


def only(timings: StepTimings, *sections: Section) -> StepTimings:
    """The same with these sections alone."""
    return replace(timings, sections={section: timings.sections[section] for section in sections})


def own_and_wait(own: NDArray[np.float64], *, transfer_ms: float = TRANSFER_MS) -> StepTimings:
    """Own times (ranks, steps) as one section, and the waiting that follows."""
    wait = own.max(axis=0) - own + transfer_ms
    return StepTimings(
        source="a recording",
        places=tuple(Place(rank=rank, coords={"dp": rank}) for rank in range(len(own))),
        steps=np.arange(own.shape[1], dtype=np.int64),
        sections={
            Section.COMPUTE: own.astype(np.float32),
            Section.WAIT: wait.astype(np.float32),
            Section.STEP: (own + wait).astype(np.float32),
        },
    )


def judgement_of(timings: StepTimings) -> Judgement:
    judgement = judge(timings)
    assert judgement is not None
    return judgement


def accused_ranks(timings: StepTimings) -> list[int]:
    """Ranks that are accused, themselves or with their host."""
    judgement = judgement_of(timings)
    of_hosts = [timings.places[row].rank for host in judgement.hosts for row in host.rows]
    return sorted({each.rank for each in judgement.accused} | set(of_hosts))


def facts_of(*timings: StepTimings, notes: Sequence[Note] = (), **more: object) -> Analysed:
    """Evidence with these times of ranks, worked out; `more` are other fields of the reading."""
    reading = Reading(
        steps=timings,
        notes=tuple(notes),
        inputs=(InputFile(path="times.csv", kind="a table"),),
        **more,  # type: ignore[arg-type]
    )
    return analyse(reading)


def judged_of(timings: StepTimings) -> Judged:
    (judged,) = facts_of(timings).judged
    return judged


COLUMNS = {
    Section.DATA: "data_ms",
    Section.FORWARD: "forward_ms",
    Section.BACKWARD: "backward_ms",
    Section.OPTIMIZER: "optimizer_ms",
    Section.CHECKPOINT: "checkpoint_ms",
    Section.WAIT: "wait_ms",
    Section.STEP: "step_ms",
}


def write_csv(timings: StepTimings, path: Path, *, tells_hosts: bool = True) -> Path:
    """The times as a table with a row for each rank and step."""
    names = [COLUMNS[section] for section in timings.sections]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        hosts = ["host"] if tells_hosts and timings.places[0].host is not None else []
        coords = list(timings.places[0].coords)
        clock = ["started"] if timings.started_s is not None else []
        writer.writerow(["step", "rank", *hosts, *coords, *clock, *names])
        for column, step in enumerate(timings.steps):
            for row, place in enumerate(timings.places):
                writer.writerow(
                    [
                        int(step),
                        place.rank,
                        *([place.host] if hosts else []),
                        *(place.coords[name] for name in coords),
                        *([f"{timings.started_s[column]:.3f}"] if timings.started_s is not None else []),
                        *(f"{times[row, column]:.4f}" for times in timings.sections.values()),
                    ]
                )
    return path
