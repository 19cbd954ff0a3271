"""Which combinations of changes make a job fit: branch and bound over estimates, nearest to today's job first.

Changes that ask more of people come first in a combination, settings after them. A combination is grown only by
changes that lower its need, and by settings only where all settings at their strongest would be enough: that is the
bound. What fits is not grown, and no combination that holds a fitting one is looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from distdoctor.oom.fit import Fits
from distdoctor.oom.search.catalog import DEAR, SETTINGS
from distdoctor.oom.search.change import Axis, Effort
from distdoctor.oom.search.trial import Key, Trial, Trials

# Nobody makes five changes at once and knows which one did it. Our own choice.
MAX_CHANGES = 4
# Some 0.5 ms each: about a second. Our own choice.
MAX_ESTIMATES = 1500
MIN_ESTIMATES = 60
# Of the deepest models that are trained. Our own choice.
USUAL_LAYERS = 128
# So many that fit are more than anybody reads; of them the best are shown. Our own choice.
MAX_FOUND = 16
# A change must lower the need by this share of the card to be one. Our own choice.
MIN_SAVING = 0.002

# What a step of each effort weighs against settings, so that three settings are tried before a second cut.
_WEIGHT = {Effort.SETTING: 2, Effort.OTHER: 7, Effort.HOST: 11, Effort.GPUS: 12}


def find(trials: Trials, *, most: int = MAX_ESTIMATES) -> list[Trial]:
    """Combinations that fit, none of which holds another one, in the order of `order`. At most `most` estimates."""
    if trials.is_goal(trials.start):
        return []
    shape = trials.start.job.shape
    # Each costs as many times more as there are layers.
    most = min(
        most, max(MIN_ESTIMATES, most * USUAL_LAYERS // max(USUAL_LAYERS, shape.num_layers if shape else 1))
    )
    found: list[Trial] = []
    seen: set[Key] = {trials.start.key}
    queue: list[tuple[int, int, Trial]] = [(0, 0, trials.start)]
    while queue and trials.num_made < most and len(found) < MAX_FOUND:
        trial = heapq.heappop(queue)[2]
        if trials.is_goal(trial):
            found.append(trial)
            continue
        for child in _children(trials, trial):
            if child.key not in seen and not any(one.key <= child.key for one in found):
                seen.add(child.key)
                heapq.heappush(queue, (_weight(child), len(seen), child))
    return undominated(trials, found)


def undominated(trials: Trials, found: list[Trial]) -> list[Trial]:
    """Each without what it does not need and as gentle as it can be; one of equals; none that holds another."""
    gentle: dict[Key, Trial] = {}
    for trial in found:
        one = gentlest(trials, trial)
        gentle.setdefault(one.key, one)
    kept = [
        one
        for one in gentle.values()
        if not any(is_within(other, one) for other in gentle.values() if other is not one)
    ]
    return sorted(kept, key=order)


def is_within(fewer: Trial, more: Trial) -> bool:
    """Whether `more` changes all that `fewer` does, and nothing of it less."""
    strengths = {change.axis: change.strength for change in more.changes}
    return all(strengths.get(change.axis, 0) >= change.strength for change in fewer.changes)


def gentlest(trials: Trials, trial: Trial) -> Trial:
    """`trial` without the changes that it fits without, the dearest tried first, and the rest as weak as they can be."""
    for change in sorted(trial.changes, key=lambda each: (-each.effort, -each.price)):
        fewer = trials.again(trial.key - {change.key})
        if fewer is not None and fewer.changes and trials.is_goal(fewer):
            return gentlest(trials, fewer)
    for change in trial.changes:
        rest = trial.key - {change.key}
        for strength in range(1, change.strength):
            weaker = trials.again(rest | {(int(change.axis), strength)})
            if weaker is not None and trials.is_goal(weaker):
                return gentlest(trials, weaker)
    return trial


def order(trial: Trial) -> tuple[int, int, int, int, float]:
    """Surely first; then what asks least, with the fewest changes, the cheapest, with most room."""
    rank = 1 if trial.fit.answer is Fits.TIGHT else 0
    return rank, trial.effort, len(trial.changes), trial.price, -trial.fit.headroom_low


def strongest_settings(trials: Trials, trial: Trial) -> Trial:
    """`trial` with every setting at its strongest; of those with and without a smaller micro-batch, which accumulates
    gradients, the one that needs less."""
    with_all = _pushed(trials, trial, SETTINGS)
    without = _pushed(trials, trial, tuple(axis for axis in SETTINGS if axis is not Axis.MICRO_BATCH))
    return min(with_all, without, key=need)


def need(trial: Trial) -> float:
    """The most that it needs, which decides."""
    return trial.fit.need_high


def _pushed(trials: Trials, trial: Trial, axes: tuple[Axis, ...]) -> Trial:
    for axis in axes:
        options = trials.options(trial, axis)
        best = trials.with_change(trial, options[-1]) if options else None
        if best is not None and need(best) <= need(trial):
            trial = best
    return trial


def _children(trials: Trials, trial: Trial) -> Iterator[Trial]:
    """One change more. Only the last one may be too little to be grown further."""
    if len(trial.changes) >= MAX_CHANGES:
        return
    has_settings = any(change.axis in SETTINGS for change in trial.changes)
    relaxed = None if has_settings else strongest_settings(trials, trial)
    if has_settings or (relaxed is not None and trials.is_goal(relaxed)):
        for axis in SETTINGS:
            yield from _grown(trials, trial, axis, base=trial)
    if not has_settings:
        last = max((int(change.axis) for change in trial.changes), default=-1)
        for axis in DEAR:
            if axis > last:
                yield from _grown(trials, trial, axis, base=trial, relaxed=relaxed)


def _grown(
    trials: Trials, trial: Trial, axis: Axis, *, base: Trial, relaxed: Trial | None = None
) -> Iterator[Trial]:
    """The gentlest change of `axis` that is enough; where none is, the one that needs least, to be grown further."""
    best: Trial | None = None
    for change in trials.options(trial, axis):
        child = trials.with_change(trial, change)
        if child is None:
            continue
        if trials.is_goal(child):
            yield child
            return
        if best is None or need(child) < need(best):
            best = child
    if best is None or len(best.changes) >= MAX_CHANGES:
        return
    least = MIN_SAVING * trials.room.capacity
    helps = need(base) - need(best) >= least
    if not helps and relaxed is not None:
        # What it saves may hide behind what settings would save.
        then = strongest_settings(trials, best)
        helps = need(relaxed) - need(then) >= least
    if helps:
        yield best


def _weight(trial: Trial) -> int:
    return sum(_WEIGHT[change.effort] + change.price for change in trial.changes)
