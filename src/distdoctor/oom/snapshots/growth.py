"""Does memory stay behind from step to step? Allocations that outlive the steps they were made in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from distdoctor.oom.facts.snapshot import EventKind, Events
from distdoctor.oom.snapshots.at_oom import Live, Moment
from distdoctor.oom.snapshots.categories import Category, Known, category_of
from distdoctor.oom.snapshots.stack_text import stack_text

# Steps between which growth must be seen; two points make any line. Our own choice.
MIN_STEPS = 3

# Of the steps, as many must have left something behind. Our own choice: a list that is cleared now and then leaks too.
MIN_STEP_SHARE = 0.8

_OPTIMIZER = (Category.OPTIMIZER_STEP, Category.OPTIMIZER_STATE)
_FORWARD = (Category.ACTIVATIONS, Category.ATTENTION, Category.LOGITS)

# Made late on purpose: an expert's state when it is first routed to, a cache that is meant to grow.
_MAY_COME_LATE = (
    Category.OPTIMIZER_STATE,
    Category.PARAMETERS,
    Category.KV_CACHE,
    Category.WORKSPACE,
    Category.GRAPHS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One place in the code whose allocations stay."""

    label: str
    category: Category
    num_bytes: int
    """Left behind by all complete steps."""
    bytes_per_step: int
    """The median of the steps."""
    num_steps: int
    """Complete steps that left something behind."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the history shows of the training loop."""

    ends: tuple[int, ...]
    """Events with which an optimizer step begins, each after a forward pass."""
    growths: tuple[Growth, ...] = ()
    """The largest first."""

    @property
    def num_complete(self) -> int:
        """Steps of which beginning and end are recorded."""
        return max(0, len(self.ends) - 1)


def steps_of(events: Events | None, moment: Moment, known: Known) -> Steps:
    """Steps in the history up to the moment, and what they left behind.

    A step ends where the optimizer first allocates or frees after a forward pass; so a pipeline's or an
    accumulation's many micro-batches are one step, and what they hold until its end is no growth.
    """
    if events is None:
        return Steps(ends=())
    ends = _step_ends(events, moment.oom.index if moment.oom is not None else len(events), known)
    if len(ends) <= MIN_STEPS:
        return Steps(ends=ends)
    groups: dict[tuple[Category, str], list[tuple[int, Live]]] = {}
    texts: dict[int, str] = {}
    for each in moment.live:
        if each.born is None or each.stack is None or not ends[0] <= each.born < ends[-1]:
            continue
        category = category_of(each.stack, known=known)
        if category in _MAY_COME_LATE:
            continue
        text = texts.setdefault(each.stack.number, "") or stack_text(each.stack)
        texts[each.stack.number] = text
        groups.setdefault((category, text), []).append((bisect_left(ends, each.born + 1), each))
    found = [
        growth
        for (category, text), members in groups.items()
        if (growth := _growth(text, category, members, len(ends) - 1)) is not None
    ]
    return Steps(ends=ends, growths=tuple(sorted(found, key=lambda each: -each.num_bytes)))


def _step_ends(events: Events, end: int, known: Known) -> tuple[int, ...]:
    ends: list[int] = []
    seen_forward = False
    kinds, numbers = events.kinds, events.stack_numbers
    for index in range(end):
        if not numbers[index] or kinds[index] not in (EventKind.ALLOC, EventKind.FREE_REQUESTED):
            continue
        category = category_of(events.stack(index), known=known)
        if category in _FORWARD and kinds[index] == EventKind.ALLOC:
            seen_forward = True
        elif category in _OPTIMIZER and seen_forward:
            ends.append(index)
            seen_forward = False
    return tuple(ends)


def _growth(
    label: str, category: Category, members: Sequence[tuple[int, Live]], num_steps: int
) -> Growth | None:
    by_step: dict[int, int] = {}
    for step, each in members:
        by_step[step] = by_step.get(step, 0) + each.size
    if len(by_step) < max(MIN_STEPS, MIN_STEP_SHARE * num_steps):
        return None
    return Growth(
        label=label,
        category=category,
        num_bytes=sum(by_step.values()),
        bytes_per_step=int(median(by_step.values())),
        num_steps=len(by_step),
        count=len(members),
    )
