"""Where nothing makes it fit: the smallest need that can be reached, what it consists of, and what would do."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.catalog.gpus import GpuType, gpu_names, gpu_type
from distdoctor.oom.facts.estimate import STATES, Category
from distdoctor.oom.search.catalog import DEAR, SETTINGS
from distdoctor.oom.search.change import Axis
from distdoctor.oom.search.find import need, strongest_settings
from distdoctor.oom.search.trial import Trial, Trials

_WORDS = {
    Category.GATHERED: "parameters and gradients of one layer, gathered whole",
    Category.ACTIVATIONS: "activations of one micro-batch",
    Category.LOGITS: "logits of one micro-batch",
    Category.COMMUNICATION: "communication buffers",
    Category.TEMPORARIES: "what passes through one layer",
}
_HOST_AXES = (Axis.OFFLOAD, Axis.ACTIVATION_OFFLOAD)
# So many times today's GPUs are looked at. Our own choice.
MAX_SCALE = 1024
# Steps between the last doubling and the fewest. Our own choice.
_BISECTIONS = 4
# Rounds of trying each kind of change once more; the second one rarely finds anything. Our own choice.
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least that this number of GPUs can need. Bytes."""

    smallest: Trial
    missing: float
    """How much more a card must hold for it, when it needs least; 0 where it then fits."""
    missing_high: float
    """When it needs most."""
    what: str
    """The largest part, in words."""
    what_bytes: float
    gpus: int | None
    """The fewest GPUs that are enough with every change that asks no memory of the host; None: none that were tried."""
    cards: tuple[GpuType, ...]
    """The smallest cards of the catalog that hold the smallest need at its most."""


def floor_of(trials: Trials) -> Floor:
    """The smallest need without more GPUs: every kind of change in turn, as long as one lowers it."""
    smallest = _descended(trials, trials.start, (*DEAR, *SETTINGS))
    what, num_bytes = _largest(smallest)
    return Floor(
        smallest=smallest,
        missing=max(0.0, smallest.fit.need_low - trials.room.usable),
        missing_high=max(0.0, need(smallest) - trials.room.usable),
        what=what,
        what_bytes=num_bytes,
        gpus=_fewest_gpus(trials),
        cards=_cards(max(need(smallest) + trials.room.held_by_others, trials.room.capacity + 1)),
    )


def _descended(trials: Trials, trial: Trial, axes: tuple[Axis, ...]) -> Trial:
    """`trial` with each kind of change in turn, as long as one lowers its need."""
    for _ in range(_ROUNDS):
        before = trial
        for axis in axes:
            if axis is Axis.GPUS:
                continue
            tried = (trials.with_change(trial, change) for change in trials.options(trial, axis))
            best = min((each for each in tried if each is not None), key=need, default=trial)
            if need(best) < need(trial):
                trial = best
        if trial is before:
            break
    return trial


def _largest(trial: Trial) -> tuple[str, float]:
    peak = trial.estimate.worst.peak
    parts = {words: peak.of(category) for category, words in _WORDS.items()}
    parts["model states on one rank"] = sum(peak.of(category) for category in STATES)
    parts["CUDA context and NCCL"] = sum(each.high_bytes for each in trial.estimate.outside)
    what = max(parts, key=lambda each: parts[each])
    return what, parts[what]


def _fewest_gpus(trials: Trials) -> int | None:
    """Doubled until it is enough, then by bisection: more ranks share more, and can be cut in more ways."""
    high = 2
    while not _is_enough(trials, high):
        high *= 2
        if high > MAX_SCALE:
            return None
    low = high // 2
    for _ in range(_BISECTIONS):
        if high - low <= max(1, low // 16):
            break
        middle = (low + high) // 2
        if _is_enough(trials, middle):
            high = middle
        else:
            low = middle
    return trials.start.job.mesh.num_ranks * high


def _is_enough(trials: Trials, times: int) -> bool:
    """With every change that asks no memory of the host. What a single GPU does not share, several must."""
    found = trials.scaled(trials.start, times)
    if found is None:
        shared = _descended(trials, trials.start, (Axis.STRATEGY,))
        found = trials.scaled(shared, times)
    if found is None:
        return False
    axes = tuple(axis for axis in (*DEAR, *SETTINGS) if axis not in _HOST_AXES)
    return trials.is_goal(strongest_settings(trials, _descended(trials, found, axes)))


def _cards(num_bytes: float) -> tuple[GpuType, ...]:
    """Up to two types, the smallest that are large enough."""
    types = sorted((gpu_type(name) for name in gpu_names()), key=lambda each: each.total_bytes)
    return tuple(each for each in types if each.total_bytes >= num_bytes)[:2]
