"""Who holds the memory at a moment: live bytes by category and by the code that asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distdoctor.oom.facts.snapshot import Stack
from distdoctor.oom.snapshots.at_oom import Live
from distdoctor.oom.snapshots.categories import Category, Known, category_of
from distdoctor.oom.snapshots.stack_text import stack_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Allocations that belong together."""

    label: str
    category: Category
    num_bytes: int
    count: int
    largest: int
    baseline_bytes: int = 0
    """Of these, allocated before the recorded history begins."""
    stack: Stack | None = None
    """One of the stacks, the one with most bytes."""


def by_category(live: Iterable[Live], known: Known) -> tuple[Holding, ...]:
    """Live bytes of each category, the largest first."""
    groups: dict[str, list[Live]] = {}
    for each in live:
        groups.setdefault(category_of(each.stack, known=known).value, []).append(each)
    return _sorted(_holding(label, Category(label), group) for label, group in groups.items())


def by_stack(live: Iterable[Live], known: Known) -> tuple[Holding, ...]:
    """Live bytes of each place in the code, the largest first. Places are told apart by category and shown frames."""
    texts: dict[int, str] = {}
    groups: dict[tuple[str, str], list[Live]] = {}
    for each in live:
        number = -1 if each.stack is None else each.stack.number
        if number not in texts:
            texts[number] = stack_text(each.stack)
        category = category_of(each.stack, known=known)
        groups.setdefault((category.value, texts[number]), []).append(each)
    return _sorted(_holding(text, Category(category), group) for (category, text), group in groups.items())


def share(part: int, whole: int) -> float:
    """`part` of `whole`, between 0 and 1; 0 of nothing."""
    return part / whole if whole else 0.0


def _holding(label: str, category: Category, group: list[Live]) -> Holding:
    by_number: dict[int, int] = {}
    stacks = {each.stack.number: each.stack for each in group if each.stack is not None}
    for each in group:
        if each.stack is not None:
            by_number[each.stack.number] = by_number.get(each.stack.number, 0) + each.size
    most = max(by_number, key=lambda number: (by_number[number], -number), default=None)
    return Holding(
        label=label,
        category=category,
        num_bytes=sum(each.size for each in group),
        count=len(group),
        largest=max(each.size for each in group),
        baseline_bytes=sum(each.size for each in group if each.born is None),
        stack=stacks[most] if most is not None else None,
    )


def _sorted(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    return tuple(sorted(holdings, key=lambda each: (-each.num_bytes, each.label)))
