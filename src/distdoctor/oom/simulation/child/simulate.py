"""One kind of rank, simulated: build the program under fake tensors, step it twice, look at the log."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from distdoctor.oom.allocator.options import AllocatorOptions
from distdoctor.oom.allocator.replay import replay
from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import Capped, PhasePeak, Reserved, RoleSimulation
from distdoctor.oom.job import DEEPSPEED, Job, resolve
from distdoctor.oom.memory.categories import categories_of
from distdoctor.oom.memory.log import MemoryLog
from distdoctor.oom.memory.modules import bytes_by_module
from distdoctor.oom.memory.peaks import Peak, Peaks, as_allocated, peaks_of
from distdoctor.oom.memory.timeline import timeline_of
from distdoctor.oom.memory.unroll import IrregularError, unroll
from distdoctor.oom.simulation.child.fake_world import fake_world
from distdoctor.oom.simulation.eager import as_eager, eager_words
from distdoctor.oom.simulation.folding import Fold, fold_of
from distdoctor.oom.simulation.roles import Role
from distdoctor.oom.tracking.tracker import Tracker
from distdoctor.oom.training.base import CannotRunError, Kernels, Observer, Program, World
from distdoctor.oom.training.build import build_program
from distdoctor.oom.training.zero import OWN

# Optimizer states appear in the first step, so that the second is the first whole one.
NUM_STEPS = 2
ENOUGH_MICRO_BATCHES = 3
"""From the third micro-batch of an accumulation on every one finds the same memory in use. The second is not enough:
with HSDP, FSDP2 then still holds the summed gradients of the micro-batch before beside those of the last one."""

Build = Callable[[World, Observer], Program]
"""Makes a rank's program; its parameters are on the device and labelled."""


def simulate_role(
    job: Job,
    role: Role,
    *,
    fold: bool = True,
    capacities_bytes: Sequence[int] = (),
    build: Build = build_program,
    tolerance_bytes: int = 0,
) -> RoleSimulation:
    """What this kind of rank needs. `tolerance_bytes`: by how much few layers may miss more of them and still stand for
    all. Raises CannotRunError, and whatever torch raises for a program that fake tensors cannot run."""
    began = time.process_time()
    notes = [f"ZeRO: {OWN}"] if job.strategy in DEEPSPEED else []
    caveats = (caveat,) if (caveat := eager_words(job)) else ()
    job = as_eager(job)
    if fold:
        log, how = _log(job, role, notes, build, tolerance_bytes)
    else:
        log, how = _run(job, role, role.chunks, build), _all(role)
    found = told(log, role, how, notes, capacities_bytes=capacities_bytes, began=began)
    return replace(found, caveats=caveats)


def told(
    log: MemoryLog,
    role: Role,
    how: str,
    notes: Sequence[str],
    *,
    capacities_bytes: Sequence[int] = (),
    began: float,
) -> RoleSimulation:
    """What a log says about a kind of rank; `began`: the process time when work on it began, in seconds. Raises
    CannotRunError for an empty log."""
    categories = categories_of(log)
    first = next((n for n, each in enumerate(log.events) if log.places[each.place].step > 0), 0)
    peaks = peaks_of(log, categories, counted=as_allocated)
    if peaks is None:
        raise CannotRunError("the program allocated nothing")
    training = peaks_of(log, categories, counted=as_allocated, first_event=first) or peaks
    return RoleSimulation(
        role=role.words,
        rank=role.rank,
        num_ranks=role.num_ranks,
        peaks=tuple(_phase_peak(peak) for peak in _in_order(peaks)),
        reserved=tuple(_reserved(log, expandable=expandable) for expandable in (False, True)),
        capped=tuple(
            _capped(log, capacity, expandable=expandable)
            for capacity in capacities_bytes
            for expandable in (False, True)
        ),
        timeline=timeline_of(log, categories, counted=as_allocated),
        modules=bytes_by_module(log, categories, training.overall.event, counted=as_allocated),
        how=how,
        notes=tuple(notes),
        num_events=len(log.events),
        cpu_seconds=time.process_time() - began,
        max_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        torch_version=str(torch.__version__),
    )


def _log(job: Job, role: Role, notes: list[str], build: Build, tolerance_bytes: int) -> tuple[MemoryLog, str]:
    """The log of all layers, from a few of them where that is proven to be the same."""
    job = _fewer_micro_batches(job, notes)
    fold = fold_of(job, role.chunks)
    if fold.is_whole:
        return _run(job, role, role.chunks, build), _all(role)
    more = fold_of(job, role.chunks, more=1)
    few = _run(job, role, fold.chunks, build)
    try:
        checked = unroll(few, _steps_between(fold, more))
        agrees = _same(checked, _run(job, role, more.chunks, build), tolerance_bytes)
        if agrees:
            how = (
                f"{fold.num_built} of {fold.num_layers} layers, the middle one repeated; "
                f"{more.num_built} layers gave the same bytes"
            )
            return unroll(few, fold.extra), how
        notes.append("few layers did not stand for all, so all were simulated")
    except IrregularError as error:
        notes.append(f"few layers do not stand for all ({error}), so all were simulated")
    return _run(job, role, role.chunks, build), _all(role)


def _steps_between(fold: Fold, more: Fold) -> dict[int, int]:
    """How often the templates of `fold` are repeated to give `more`."""
    # A run that `more` builds whole is one layer longer there as well.
    return dict.fromkeys(fold.extra, 1) if more.num_built > fold.num_built else {}


def _same(left: MemoryLog, right: MemoryLog, tolerance_bytes: int) -> bool:
    """Whether two logs have the same peaks in all phases, by category."""
    found = [peaks_of(log, categories_of(log)) for log in (left, right)]
    if found[0] is None or found[1] is None or found[0].by_phase.keys() != found[1].by_phase.keys():
        return False
    return all(
        abs(peak.by_category.get(category, 0) - found[1].by_phase[key].by_category.get(category, 0))
        <= tolerance_bytes
        for key, peak in found[0].by_phase.items()
        for category in Category
    )


def _fewer_micro_batches(job: Job, notes: list[str]) -> Job:
    """Of an accumulation the first three micro-batches: every later one finds what the third found."""
    if job.mesh.pp > 1 or job.num_micro_batches <= ENOUGH_MICRO_BATCHES:
        return job
    notes.append(
        f"{ENOUGH_MICRO_BATCHES} of {job.num_micro_batches} micro-batches: the later ones find what the third finds"
    )
    said = replace(job.said, accumulation_steps=ENOUGH_MICRO_BATCHES, global_batch=None)
    return resolve(said)


def _run(job: Job, role: Role, chunks: Sequence[Sequence[int]], build: Build) -> MemoryLog:
    """Two steps under fake tensors."""
    built = tuple(tuple(chunk) for chunk in chunks)
    gc.collect()
    with fake_world(job, role.rank, kernels=Kernels.LIKE_CUDA, chunks=built) as world, Tracker() as tracker:
        program = build(world, tracker)
        try:
            for number in range(1, NUM_STEPS + 1):
                program.step(number, tracker)
            # What dies with the program, when this function is left, is no part of the story.
            return replace(tracker.log, events=list(tracker.log.events))
        finally:
            program.close()


def _all(role: Role) -> str:
    count = sum(len(chunk) for chunk in role.chunks)
    return f"all {count} layers" if count > 1 else "its layer"


def _in_order(peaks: Peaks) -> list[Peak]:
    return sorted(peaks.by_phase.values(), key=lambda peak: peak.event)


def _phase_peak(peak: Peak) -> PhasePeak:
    return PhasePeak(
        step=peak.place.step,
        phase=peak.place.phase,
        place=peak.place,
        num_bytes=peak.num_bytes,
        by_category=peak.by_category,
    )


def _reserved(log: MemoryLog, *, expandable: bool) -> Reserved:
    """The replay of the log; labels of the initialisation count as they came."""
    found = replay(log, options=AllocatorOptions(expandable_segments=expandable))
    return Reserved(
        expandable_segments=expandable,
        peak_bytes=found.peak_reserved_bytes,
        allocated_then_bytes=found.allocated_at_reserved_peak_bytes,
    )


def _capped(log: MemoryLog, capacity: int, *, expandable: bool) -> Capped:
    """Whether the log can be served with so many bytes."""
    found = replay(
        log, options=AllocatorOptions(expandable_segments=expandable), capacity_bytes=max(0, capacity)
    )
    failure = found.out_of_memory
    return Capped(
        expandable_segments=expandable,
        capacity_bytes=capacity,
        num_retries=found.num_retries,
        failed_at=log.places[log.events[failure.event].place] if failure is not None else None,
        requested_bytes=failure.requested_bytes if failure is not None else 0,
        allocated_bytes=failure.allocated_bytes if failure is not None else 0,
    )
