"""The search from one job to its outcome."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.fit import Fits
from distdoctor.oom.job import Job
from distdoctor.oom.search.change import Axis, Effort
from distdoctor.oom.search.confirm import Confirm, Confirmation, confirm_best, judged
from distdoctor.oom.search.costs import costs_of
from distdoctor.oom.search.find import MAX_ESTIMATES, find, gentlest, order
from distdoctor.oom.search.floor import floor_of
from distdoctor.oom.search.layers import least_layers
from distdoctor.oom.search.proposal import Outcome, Proposal
from distdoctor.oom.search.room import Room
from distdoctor.oom.search.trial import PERHAPS, Trial, Trials

# What the formulas are held to beside simulations (docs/measurements).
NEAR = 0.10
# So many of each effort: an answer shows ways, not all variants of one. Our own choice.
SHOWN = {Effort.SETTING: 4, Effort.OTHER: 3, Effort.HOST: 2, Effort.GPUS: 2}


def search(
    job: Job,
    room: Room,
    *,
    without: frozenset[tuple[int, int]] = frozenset(),
    confirm: Confirm | None = None,
    has_failed: bool = False,
) -> Outcome:
    """What makes `job` fit into `room`: proposals, best first; where nothing on these GPUs does, the floor.

    without: (axis, strength) of changes that this job's framework has no setting for. confirm: says what a
    configuration really allocates; the best proposals are given to it, and `job` itself where formulas are near the
    limit; not where it `has_failed`, for no simulation of what was said of it takes that back.
    """
    trials = Trials(job, room, without=without)
    found = find(trials)
    is_only_perhaps = not found and trials.start.fit.answer is Fits.NO
    if is_only_perhaps:
        trials.accepts = PERHAPS
        found = find(trials, most=trials.num_made + MAX_ESTIMATES)
    proposals = _proposals(trials, chosen(found))
    is_asked = not has_failed and is_near(trials.start, room)
    today = _today(trials, confirm) if confirm is not None and is_asked else None
    has_room = today is not None and today.confirmation is Confirmation.FITS
    floor = None
    if (
        not has_room
        and not trials.is_goal(trials.start)
        and not any(_is_on_same_gpus(each) for each in proposals)
    ):
        floor = floor_of(trials)
        if trials.is_goal(floor.smallest):
            # More changes than anybody likes to make at once, but no more GPUs.
            proposals = (*_proposals(trials, (gentlest(trials, floor.smallest),)), *proposals)
            floor = None
    if confirm is not None and proposals:
        proposals = confirm_best(proposals, room, confirm)
    return Outcome(
        start=trials.start,
        room=room,
        proposals=proposals,
        today=today,
        is_only_perhaps=is_only_perhaps and bool(proposals),
        floor=floor,
        num_estimates=trials.num_made,
    )


def _today(trials: Trials, confirm: Confirm) -> Proposal:
    """The job as it is, with what a simulation says of it."""
    start = Proposal(trial=trials.start, costs=costs_of(trials.start, trials.start))
    return judged(start, trials.room, confirm(trials.start.job.said))


def is_near(trial: Trial, room: Room) -> bool:
    """Whether the formulas say no, or perhaps, and could be wrong by so little."""
    if trial.fit.answer not in (Fits.NO, Fits.TIGHT):
        return False
    return trial.fit.need_low <= (1 + NEAR) * room.usable


def _proposals(trials: Trials, found: Sequence[Trial]) -> tuple[Proposal, ...]:
    """With what each costs."""
    return tuple(
        Proposal(
            trial=trial,
            costs=costs_of(trials.start, trial),
            least_layers=least_layers(trial, trials.room, trials.accepts),
        )
        for trial in found
    )


def _is_on_same_gpus(proposal: Proposal) -> bool:
    return proposal.trial.effort is not Effort.GPUS


def chosen(found: Sequence[Trial]) -> tuple[Trial, ...]:
    """A few of each effort, in order; of those with more GPUs also the one with the fewest."""
    taken: list[Trial] = []
    for effort in Effort:
        of_effort = [trial for trial in found if trial.effort is effort]
        if effort is Effort.GPUS and of_effort:
            fewest = min(of_effort, key=_num_gpus)
            of_effort = [fewest, *(each for each in of_effort if each is not fewest)]
        taken += of_effort[: SHOWN[effort]]
    # Of more GPUs the fewest come first; all else in its order.
    return tuple(sorted(taken, key=lambda each: order(each)[:2]))


def _num_gpus(trial: Trial) -> tuple[int, bool, tuple[float, ...]]:
    """The fewest first; of those that are as few, what asks no memory of the host."""
    on_host = bool({Axis.OFFLOAD, Axis.ACTIVATION_OFFLOAD} & trial.axes)
    return trial.job.mesh.num_ranks, on_host, order(trial)
