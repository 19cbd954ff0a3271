"""Which of several like groups (hosts inside themselves, rails, groups of a mesh dimension) is slower than the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from distdoctor.nccl_bench.analysis.noise import is_noisy
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Row, Style
from distdoctor.units import MIB

# A group below this part of the others' median bandwidth is slow. Our own threshold; repeats of one healthy fabric
# differ by some 1 %, and the repeats must separate besides.
SLOW_PART = 0.8

# Below 1 MiB latency dominates and bandwidth says nothing about a link.
MIN_BYTES = MIB

# Groups that are needed to name one of them: of two, either may be the odd one.
MIN_GROUPS = 3

# Repeats that are needed before a difference counts as more than chance. Our own choice.
MIN_REPEATS = 3

_COMPARED = (GroupKind.HOST, GroupKind.RAIL, GroupKind.MESH)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowGroup:
    """One group that stays behind the others of its set."""

    group: Group
    row: Row
    """Where it stays behind most."""
    ratio: float
    """Median of the others' times over its time."""
    others_us: float
    num_groups: int
    """Groups compared, this one included."""
    num_rows: int
    """Rows (collectives and sizes) in which it stays behind, of `num_compared`."""
    num_compared: int
    concurrent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowTogether:
    """Groups that are fine alone and slow when all run at once."""

    set_label: str
    ratio: float
    """Time alone over time together, median over the groups."""
    alone_us: float
    together_us: float
    num_groups: int
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsCompared:
    """All sets of a run."""

    slow: tuple[SlowGroup, ...]
    together: tuple[SlowTogether, ...]
    compared: tuple[tuple[str, int], ...]
    """(set, number of groups) that could be compared."""
    lone: tuple[str, ...]
    """Sets with too few groups of one kind whose rows have repeats and are steady."""
    unsteady: tuple[str, ...] = ()
    """Groups of the other sets that were left out: their repeats differ too much, or there is one only."""


def compare_groups(facts: BenchFacts) -> GroupsCompared:
    """Slow groups and shared bottlenecks. Hosts of different GPU models or numbers of ranks are not compared."""
    sets: dict[tuple[str, bool, int, str], list[Row]] = {}
    for row in facts.rows:
        if row.group.kind in _COMPARED and row.size_bytes >= MIN_BYTES and row.style is Style.STREAMING:
            key = row.group.set_label, row.concurrent, len(row.group.ranks), _models(facts, row.group)
            sets.setdefault(key, []).append(row)
    slow: dict[str, list[SlowGroup]] = {}
    compared: dict[str, int] = {}
    seen: dict[str, None] = {}
    unsteady: dict[str, str] = {}
    for (label, _, _, _), rows in sets.items():
        seen[label] = None
        steady = {row.group.label for row in rows if _is_steady(facts, row)}
        unsteady |= {row.group.label: label for row in rows if row.group.label not in steady}
        found, number = _compare_set(facts, rows)
        if number:
            compared[label] = max(number, compared.get(label, 0))
        for each in found:
            slow.setdefault(each.group.label, []).append(each)
    together = [
        each
        for label in seen
        for each in _together([row for row in facts.rows if row.group.set_label == label])
    ]
    return GroupsCompared(
        slow=tuple(sorted((_alone_first(each) for each in slow.values()), key=lambda each: each.ratio)),
        together=tuple(together),
        compared=tuple(compared.items()),
        lone=tuple(label for label in seen if label not in compared),
        unsteady=tuple(group for group, label in unsteady.items() if label in compared),
    )


def _models(facts: BenchFacts, group: Group) -> str:
    models = sorted({place.gpu_model or "" for place in facts.places if place.rank in group.ranks})
    return ",".join(models)


def _is_steady(facts: BenchFacts, row: Row) -> bool:
    return len(row.repeats_us) >= MIN_REPEATS and is_noisy(facts, row) is None


def _compare_set(facts: BenchFacts, rows: Iterable[Row]) -> tuple[list[SlowGroup], int]:
    """Slow groups of one set, and how many groups were compared at most."""
    cells: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        key = row.collective, row.size_bytes, row.dtype, row.op, row.in_place
        if _is_steady(facts, row):
            cells.setdefault(key, {})[row.group.label] = row
    behind: dict[str, list[SlowGroup]] = {}
    times: dict[str, int] = {}
    most = 0
    for cell in cells.values():
        if len(cell) < 2:
            continue
        most = max(most, len(cell))
        for label in cell:
            times[label] = times.get(label, 0) + 1
        for each in _behind(cell):
            behind.setdefault(each.group.label, []).append(each)
    return [
        _worst(found, times[label]) for label, found in behind.items() if 2 * len(found) > times[label]
    ], most


def _behind(cell: Mapping[str, Row]) -> list[SlowGroup]:
    """Groups whose best repeat is slower than the worst of the groups that keep up, by more than repeats differ."""
    medians = {label: median(row.repeats_us) for label, row in cell.items()}
    usual = median(medians.values()) if len(medians) > 2 else min(medians.values())
    slow = {label for label, time_us in medians.items() if time_us * SLOW_PART > usual}
    if not slow or 2 * len(slow) > len(cell):
        return []
    others = [row for label, row in cell.items() if label not in slow]
    others_us = median(medians[label] for label in cell if label not in slow)
    worst_us = max(max(row.repeats_us) for row in others)
    spread = max(math.log(max(row.repeats_us) / min(row.repeats_us)) for row in cell.values())
    found = []
    for label in slow:
        row = cell[label]
        if math.log(min(row.repeats_us) / worst_us) > spread and _best_is_slow(row, others):
            found.append(
                SlowGroup(
                    group=row.group,
                    row=row,
                    ratio=others_us / medians[label],
                    others_us=others_us,
                    num_groups=len(cell),
                    num_rows=1,
                    num_compared=1,
                    concurrent=row.concurrent,
                )
            )
    return found


def _best_is_slow(row: Row, others: Sequence[Row]) -> bool:
    """Whether not even its best iteration keeps up with the others' best: noise makes only slower, never all of them."""
    best = [each.min_us for each in others if each.min_us is not None]
    return row.min_us is None or not best or row.min_us * SLOW_PART > median(best)


def _worst(found: Sequence[SlowGroup], num_compared: int) -> SlowGroup:
    worst = min(found, key=lambda each: each.ratio)
    return SlowGroup(
        group=worst.group,
        row=worst.row,
        ratio=worst.ratio,
        others_us=worst.others_us,
        num_groups=worst.num_groups,
        num_rows=len(found),
        num_compared=num_compared,
        concurrent=worst.concurrent,
    )


def _alone_first(found: Sequence[SlowGroup]) -> SlowGroup:
    """What was measured alone tells more than what ran beside others."""
    return min(found, key=lambda each: (each.concurrent, each.ratio))


def _together(rows: Iterable[Row]) -> list[SlowTogether]:
    """A set that is slower together than alone in all its groups."""
    alone: dict[tuple[object, ...], dict[str, Row]] = {}
    at_once: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        if row.size_bytes < MIN_BYTES or row.style is not Style.STREAMING:
            continue
        key = row.collective, row.size_bytes, row.dtype, row.op, row.in_place
        (at_once if row.concurrent else alone).setdefault(key, {})[row.group.label] = row
    found = []
    for cell in alone.keys() & at_once.keys():
        both = [(alone[cell][label], at_once[cell][label]) for label in alone[cell] if label in at_once[cell]]
        if len(both) > 1 and all(_separate(one, all_of) for one, all_of in both):
            ratio = median(one.time_us / all_of.time_us for one, all_of in both)
            found.append(
                SlowTogether(
                    set_label=both[0][0].group.set_label,
                    ratio=ratio,
                    alone_us=median(one.time_us for one, _ in both),
                    together_us=median(all_of.time_us for _, all_of in both),
                    num_groups=len(both),
                    row=both[0][1],
                )
            )
    return [min(found, key=lambda each: each.ratio)] if found else []


def _separate(alone: Row, together: Row) -> bool:
    slower = median(alone.repeats_us) < SLOW_PART * median(together.repeats_us)
    return slower and max(alone.repeats_us) < min(together.repeats_us)
