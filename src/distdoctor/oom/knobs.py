"""What would make an estimate smaller: only what its own numbers support, with the bytes that each would save.

The changes and their combinations are those of `oom fit` (oom/search); here the few that an estimate names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distdoctor.oom.catalog.gpus import GpuType
from distdoctor.oom.facts.estimate import Estimate
from distdoctor.oom.fit import Fits
from distdoctor.oom.job import Job
from distdoctor.oom.search.change import Axis, Effort
from distdoctor.oom.search.costs import cost_words, costs_of
from distdoctor.oom.search.find import find, is_within
from distdoctor.oom.search.room import Room
from distdoctor.oom.search.search import chosen
from distdoctor.oom.search.trial import Trial, Trials

# A change that saves less than this share of the peak is no answer. Our own choice.
MIN_SHARE = 0.03
# An estimate names a few ways and answers at once; `oom fit` looks further. Our own choice.
MAX_ESTIMATES = 300

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
    num_changes: int


def knobs_of(job: Job, now: Estimate, gpu: GpuType) -> tuple[Knob, ...]:
    """What lowers the worst rank's peak: what fits then comes first, of that what asks least, then the largest saving;
    single changes that are not enough alone come behind."""
    trials = Trials(job, Room(capacity=float(gpu.total_bytes)))
    fitting = chosen(find(trials, most=MAX_ESTIMATES))
    scales = any(trial.axes == {Axis.GPUS} for trial in fitting)
    others = [
        each
        for each in _single(trials)
        if not any(is_within(one, each) for one in fitting) and not (scales and each.axes == {Axis.GPUS})
    ]
    found = [_knob(trials, now, trial) for trial in (*fitting, *others)]
    least = MIN_SHARE * now.worst.peak.num_bytes
    return tuple(sorted((each for each in found if each.saves_bytes >= least), key=_order))


def _order(knob: Knob) -> tuple[int, int, int, float]:
    rank = _RANK.get(knob.answer, _NOT_ENOUGH)
    if rank == _NOT_ENOUGH:
        return rank, 0, 0, -knob.saves_bytes
    return rank, knob.effort, knob.num_changes, -knob.saves_bytes


def _single(trials: Trials) -> Iterator[Trial]:
    """Of each kind the strongest change; of more GPUs twice as many."""
    for axis in Axis:
        options = trials.options(trials.start, axis)
        if not options:
            continue
        trial = trials.with_change(trials.start, options[0 if axis is Axis.GPUS else -1])
        if trial is not None:
            yield trial


def _knob(trials: Trials, now: Estimate, trial: Trial) -> Knob:
    together = len(trial.changes) > 1
    return Knob(
        text=f"together: {', '.join(each.short for each in trial.changes)}"
        if together
        else trial.changes[0].text,
        cost=cost_words(costs_of(trials.start, trial)),
        estimate=trial.estimate,
        saves_bytes=now.worst.peak.num_bytes - trial.estimate.worst.peak.num_bytes,
        answer=trial.fit.answer,
        effort=trial.effort,
        num_changes=len(trial.changes),
    )
