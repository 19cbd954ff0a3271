"""Steps and phases as spans that people can follow: few enough to be drawn side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from distdoctor.oom.memory.log import Phase

# More names do not fit over a picture. Our own choice.
MAX_SPANS = 16
_PARTS = {Phase.DATA: Phase.FORWARD, Phase.RECOMPUTATION: Phase.BACKWARD}
_Moment = tuple[int, Phase]


def spans_of(moments: Sequence[_Moment], *, most: int = MAX_SPANS) -> tuple[tuple[int, str], ...]:
    """Where each span begins in `moments` (steps and phases, in the order of time), and what it is called.

    Recomputation is inside the backward pass that asks for it, and the batch belongs to the forward pass. Where there are more than `most` spans, because
    micro-batches or an optimizer step inside the backward pass take turns, forward and backward become one, and then
    everything of a step. What comes again within a step is numbered: `step 1: forward 2`.
    """
    found: tuple[tuple[int, str], ...] = ()
    for words in (_phase_words, _pass_words, _step_words):
        found = _runs(moments, words)
        if len(found) <= most:
            break
    return _numbered(found)


def _runs(moments: Sequence[_Moment], words: Callable[[_Moment], str]) -> tuple[tuple[int, str], ...]:
    runs: list[tuple[int, str]] = []
    for moment, alike in groupby(enumerate(moments), key=lambda each: each[1]):
        first = next(alike)[0]
        if not runs or runs[-1][1] != words(moment):
            runs.append((first, words(moment)))
    return tuple(runs)


def _numbered(runs: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    counts: Counter[str] = Counter()
    numbered = []
    for first, words in runs:
        counts[words] += 1
        numbered.append((first, words if counts[words] == 1 else f"{words} {counts[words]}"))
    return tuple(numbered)


def _phase_words(moment: _Moment) -> str:
    step, phase = moment
    whole = _PARTS.get(phase, phase)
    return f"step {step}: {whole.value}" if step else Phase.INITIALISATION.value


def _pass_words(moment: _Moment) -> str:
    step, phase = moment
    if not step or phase is Phase.OPTIMIZER_STEP:
        return _phase_words(moment)
    return f"step {step}: forward and backward"


def _step_words(moment: _Moment) -> str:
    return f"step {moment[0]}" if moment[0] else Phase.INITIALISATION.value
