"""A stacked series bar by bar: its parts, its total, and by how much it is beyond the limit."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from distdoctor.report.model import Series
from distdoctor.report.names import scalar_text

# Bars that a sentence names before it counts.
MAX_NAMED = 3
# Sums that differ by less are equal: the parts are rounded on their way here.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One bar of a stacked series."""

    label: str
    parts: tuple[float | None, ...]
    """One for each of `part_names`; None is not known."""
    total: float | None
    """Of the parts that are known; None when none is."""
    is_complete: bool
    """Every part is known; otherwise `total` is the least that it can be."""
    excess: float = 0.0
    """By how much the total is beyond the series' limit; 0 when it is not, or when there is no limit."""
    hot: bool = False
    """Beyond the limit, or accused by the series."""


def part_names(series: Series) -> list[str]:
    """The parts of every bar, from the bar's beginning to its end."""
    names = series.names[: len(series.values)]
    return [*names, *(f"part {number + 1}" for number in range(len(names), len(series.values)))]


def stacks(series: Series) -> list[Stack]:
    """The bars of a stacked series, as many as it has labels or values."""
    num_bars = max(len(series.x), *(len(row) for row in series.values), 0)
    return [_stack(series, index) for index in range(num_bars)]


def _stack(series: Series, index: int) -> Stack:
    parts = tuple(row[index] if index < len(row) else None for row in series.values)
    known = [part for part in parts if part is not None]
    # A sum of the largest numbers there are is not one of them.
    total = min(sum(known), sys.float_info.max) if known else None
    excess = 0.0
    if (
        series.limit is not None
        and total is not None
        and total - series.limit > abs(series.limit) * _ROUNDING
    ):
        excess = total - series.limit
    return Stack(
        label=scalar_text(series.x[index]) if index < len(series.x) else "",
        parts=parts,
        total=total,
        is_complete=len(known) == len(parts),
        excess=excess,
        hot=excess > 0 or index in series.hot,
    )


def edges(stack: Stack) -> list[tuple[float, float]]:
    """Where each part begins and ends when the bar is drawn from zero; what is not known or negative has no length."""
    places: list[tuple[float, float]] = []
    begin = 0.0
    for part in stack.parts:
        end = min(begin + max(part or 0.0, 0.0), sys.float_info.max)
        places.append((begin, end))
        begin = end
    return places


def length(stack: Stack) -> float:
    """The length of the bar that is drawn."""
    return edges(stack)[-1][1] if stack.parts else 0.0


def total_text(stack: Stack) -> str:
    """`41.2`; `≥ 41.2` when a part is not known; `-` when none is."""
    if stack.total is None:
        return "-"
    return scalar_text(stack.total) if stack.is_complete else f"≥ {scalar_text(stack.total)}"


def limit_text(series: Series) -> str:
    """The caption of the limit, `limit 79.1 GiB` when it has none; empty when there is no limit."""
    if series.limit is None:
        return ""
    return series.limit_label or f"limit {scalar_text(series.limit)} {series.y_label}".rstrip()


def limit_note(series: Series) -> str:
    """`capacity 79.1 GiB; beyond it: DDP (by 12.3)`; empty when there is no limit."""
    if series.limit is None or series.kind != "stacked":
        return ""
    bars = stacks(series)
    beyond = [stack for stack in bars if stack.excess > 0]
    if not beyond:
        known = "" if all(stack.is_complete for stack in bars) else "known to be "
        return f"{limit_text(series)}; no bar is {known}beyond it"
    named = ", ".join(f"{stack.label} (by {scalar_text(stack.excess)})" for stack in beyond[:MAX_NAMED])
    more = f" and {len(beyond) - MAX_NAMED} more" if len(beyond) > MAX_NAMED else ""
    return f"{limit_text(series)}; beyond it: {named}{more}"
