"""What differs between two or more holders of facts, who is the odd one out, and what matters most.

Pure: holders are hosts, ranks or reports; which keys matter is told by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from distdoctor.report.model import Scalar, Severity

RESULTS = "results"
"""Topic of what came out: it differs because something else does, and nobody makes it the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance:
    """Why a difference in one key matters, and how much."""

    weight: int
    """Larger is told first; 0 and below is not told."""
    severity: Severity
    consequence: str
    """One sentence: what a job does when this differs."""
    topic: str
    """"versions", "variables", "hardware", "settings"; or `RESULTS`."""
    label: str | None = None
    """The fact's name for people, where the key is none."""
    absence_counts: bool = False
    """True where not having the fact is itself a value (a variable that is not set); elsewhere a holder
    without it was not read and does not take part."""
    right: Scalar = None
    """A value that is right whatever the majority says: torch found, its import ok."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key with more than one value among those that have it."""

    key: str
    relevance: Relevance
    groups: tuple[tuple[Scalar, tuple[str, ...]], ...]
    """(value, holders), the largest group first. None: the holder has no such value."""
    majority: Scalar
    """The value of more than half of the holders, or the one that is right; meaningless unless `has_majority`."""
    has_majority: bool

    @property
    def name(self) -> str:
        """What people call the fact."""
        return self.relevance.label or self.key

    @property
    def odd(self) -> tuple[str, ...]:
        """Holders outside the majority; all of them when there is none."""
        rest = self.groups[1:] if self.has_majority else self.groups
        return tuple(holder for _, holders in rest for holder in holders)


def find_differences(
    values: Mapping[str, Mapping[str, Scalar]],
    relevance: Callable[[str], Relevance | None],
) -> tuple[Difference, ...]:
    """Keys whose value is not the same for all holders, most relevant first.

    values: holder → key → value. Keys without relevance, or of weight 0, are left out.
    """
    holders = tuple(values)
    found = []
    for key in _keys(values.values()):
        matters = relevance(key)
        if matters is None or matters.weight <= 0:
            continue
        having = (
            holders if matters.absence_counts else [holder for holder in holders if key in values[holder]]
        )
        difference = _difference(key, matters, {holder: values[holder].get(key) for holder in having})
        if difference is not None:
            found.append(difference)
    return tuple(sorted(found, key=lambda each: (-each.relevance.weight, len(each.odd), each.key)))


def _keys(rows: Iterable[Mapping[str, Scalar]]) -> list[str]:
    seen: dict[str, None] = {}
    for row in rows:
        seen.update(dict.fromkeys(row))
    return list(seen)


def _difference(key: str, relevance: Relevance, by_holder: Mapping[str, Scalar]) -> Difference | None:
    groups: dict[str, tuple[Scalar, list[str]]] = {}
    for holder, value in by_holder.items():
        groups.setdefault(repr(value), (value, []))[1].append(holder)
    if len(groups) < 2:
        return None
    right = repr(relevance.right) if relevance.right is not None else None
    ordered = sorted(groups.values(), key=lambda group: (repr(group[0]) != right, -len(group[1])))
    has_majority = repr(ordered[0][0]) == right or len(ordered[0][1]) * 2 > len(by_holder)
    return Difference(
        key=key,
        relevance=relevance,
        groups=tuple((value, tuple(names)) for value, names in ordered),
        majority=ordered[0][0],
        has_majority=has_majority,
    )
