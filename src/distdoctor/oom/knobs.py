"""What would make an estimate smaller: only what its own numbers support, with the bytes that each would save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distdoctor.errors import UsageError
from distdoctor.oom.catalog.gpus import GpuType
from distdoctor.oom.changes import (
    Change,
    Effort,
    cheap_changes,
    dear_changes,
    more_gpus,
    offloading,
    smaller_states,
)
from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.estimate import Estimate
from distdoctor.oom.fit import Fits, fit_of
from distdoctor.oom.job import Job, resolve
from distdoctor.units import GIB

# A change that saves less than this share of the peak is no answer. Our own choice.
MIN_SHARE = 0.03

_RANK = {Fits.YES: 0, Fits.TIGHT: 1, Fits.UNKNOWN: 1}
_NOT_ENOUGH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One change or several together, in words and as an estimate."""

    text: str
    cost: str
    estimate: Estimate
    saves_bytes: float
    answer: Fits
    """Whether it fits then."""
    effort: Effort
    """That of the dearest of the changes."""


def knobs_of(job: Job, now: Estimate, gpu: GpuType) -> tuple[Knob, ...]:
    """What lowers the worst rank's peak: what fits then comes first, of that the cheapest, then the largest saving.
    Where no single change is enough, several together."""
    cheap, scale = tuple(cheap_changes(job)), more_gpus(job)
    single = [_knob(job, now, gpu, (change,)) for change in (*cheap, *dear_changes(job), *offloading(job))]
    found = [knob for knob in (*single, _fewest(job, now, gpu, scale)) if knob is not None]
    if all(knob.answer is not Fits.YES for knob in found):
        found += _together(job, now, gpu, cheap, scale)
    least = MIN_SHARE * now.worst.peak.num_bytes
    worth = [knob for knob in found if knob.saves_bytes >= least]
    return tuple(sorted(worth, key=_order))


def _order(knob: Knob) -> tuple[int, int, float]:
    rank = _RANK.get(knob.answer, _NOT_ENOUGH)
    return rank, knob.effort if rank < _NOT_ENOUGH else 0, -knob.saves_bytes


def _fewest(job: Job, now: Estimate, gpu: GpuType, scale: Sequence[Change]) -> Knob | None:
    """The first of ever more GPUs that fits; twice as many where none does."""
    first = None
    for change in scale:
        knob = _knob(job, now, gpu, (change,))
        first = first or knob
        if knob is not None and knob.answer is Fits.YES:
            return knob
    return first


def _together(
    job: Job, now: Estimate, gpu: GpuType, cheap: tuple[Change, ...], scale: Sequence[Change]
) -> Iterator[Knob]:
    """All changes of settings at once; where that is not enough, with a smaller kind of state, with offloading, and with
    more GPUs."""
    both = _knob(job, now, gpu, cheap) if len(cheap) > 1 else None
    if both is not None and both.answer is Fits.YES:
        yield _needed(job, now, gpu, cheap) or both
        return
    for extras in (tuple(smaller_states(job)), tuple(offloading(job)), scale):
        fitting = (_needed(job, now, gpu, (*cheap, change)) for change in extras)
        if (knob := next((each for each in fitting if each is not None), None)) is not None:
            yield knob


def _needed(job: Job, now: Estimate, gpu: GpuType, changes: tuple[Change, ...]) -> Knob | None:
    """Those of `changes` that it takes to fit; None where all of them are not enough."""
    knob = _knob(job, now, gpu, changes)
    if knob is None or knob.answer is not Fits.YES:
        return None
    for change in changes:
        fewer = tuple(each for each in changes if each is not change)
        without = _knob(job, now, gpu, fewer) if fewer else None
        if without is not None and without.answer is Fits.YES:
            return _needed(job, now, gpu, fewer)
    return knob if len(changes) > 1 else None


def _knob(job: Job, now: Estimate, gpu: GpuType, changes: tuple[Change, ...]) -> Knob | None:
    """The job with `changes`; None where it cannot be."""
    said: dict[str, Any] = {}
    for change in changes:
        said |= change.said
    try:
        changed = estimate(resolve(replace(job.said, **said)))
    except UsageError:
        return None
    costs = [changes[0].cost] if len(changes) == 1 else []
    if changed.worst.host_bytes > now.worst.host_bytes:
        costs.append(f"{changed.worst.host_bytes / GIB:.0f} GiB of host memory for each rank")
    return Knob(
        text=changes[0].text
        if len(changes) == 1
        else f"together: {', '.join(each.short for each in changes)}",
        cost="; ".join(costs),
        estimate=changed,
        saves_bytes=now.worst.peak.num_bytes - changed.worst.peak.num_bytes,
        answer=fit_of(changed, gpu).answer,
        effort=max(change.effort for change in changes),
    )
