"""The picture of a simulation: allocated bytes by category, from initialisation through two steps."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import TimelinePoint
from distdoctor.oom.fit import gpu_words
from distdoctor.oom.memory.spans import spans_of
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report.model import Series
from distdoctor.units import GIB


def simulation_series(facts: SimulationFacts) -> tuple[Series, ...]:
    """Areas over time for the worst rank, and bars for each kind of rank at its peak."""
    worst = facts.simulation.worst
    if worst is None:
        return ()
    series = [_timeline(facts, worst.timeline, worst.role)]
    if len(facts.simulation.roles) > 1:
        series.append(_roles(facts))
    return tuple(series)


def _timeline(facts: SimulationFacts, points: tuple[TimelinePoint, ...], role: str) -> Series:
    categories = [each for each in Category if any(point.by_category.get(each) for point in points)]
    return Series(
        name="oom-timeline",
        title=f"Allocated over two steps: {role} (simulated)",
        kind="areas",
        x_label="allocations and frees, in their order",
        y_label="GiB",
        x=tuple(point.event for point in points),
        names=tuple(each.value for each in categories),
        values=tuple(
            tuple(round(point.by_category.get(each, 0) / GIB, 3) for point in points) for each in categories
        ),
        limit=facts.cluster.type.total_bytes / GIB if facts.cluster else None,
        limit_label=_limit_words(facts),
        marks=spans_of([(point.step, point.phase) for point in points]),
    )


def _roles(facts: SimulationFacts) -> Series:
    roles = facts.simulation.roles
    categories = [each for each in Category if any(role.peak.by_category.get(each) for role in roles)]
    return Series(
        name="oom-simulated-ranks",
        title="Allocated at the peak of each kind of rank (simulated)",
        kind="stacked",
        y_label="GiB",
        x=tuple(role.role for role in roles),
        names=tuple(each.value for each in categories),
        values=tuple(
            tuple(round(role.peak.by_category.get(each, 0) / GIB, 3) for role in roles) for each in categories
        ),
        limit=facts.cluster.type.total_bytes / GIB if facts.cluster else None,
        limit_label=_limit_words(facts),
    )


def _limit_words(facts: SimulationFacts) -> str:
    if facts.cluster is None:
        return ""
    return f"{gpu_words(facts.cluster.type)}: {facts.cluster.type.total_bytes / GIB:.1f} GiB"
