"""Checks of an estimate: outcomes over `EstimateFacts`."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Category, RoleEstimate
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.report import checking
from distdoctor.report.model import Evidence
from distdoctor.units import GIB, format_bytes

EstimateCheck = checking.Check[EstimateFacts]

SOURCE = "the formulas of docs/oom.md"


# Below it one decimal of a GiB says nothing.
_LITTLE = 0.1


def gib(num_bytes: float) -> str:
    """`12.3 GiB`; of little memory `4.9 MiB`."""
    value = num_bytes / GIB
    if 0 < value < _LITTLE:
        return format_bytes(round(num_bytes))
    return f"{value:,.0f} GiB" if value >= 99.5 else f"{value:.1f} GiB"


def peak_evidence(facts: EstimateFacts) -> tuple[Evidence, ...]:
    """The worst rank's peak, and its largest categories."""
    return peak_of_role(facts.estimate.worst)


def peak_of_role(worst: RoleEstimate) -> tuple[Evidence, ...]:
    """The peak of one kind of rank, and its largest categories."""
    peak = worst.peak
    largest = sorted(Category, key=peak.of, reverse=True)[:3]
    parts = ", ".join(f"{each.value} {gib(peak.of(each))}" for each in largest if peak.of(each))
    when = f"step {peak.step}, {peak.moment.value}" if peak.step else peak.moment.value
    return (
        Evidence(
            text=f"{worst.role}: {gib(peak.num_bytes)} allocated at the peak ({when}): {parts}",
            value=round(peak.num_bytes),
            unit="B",
            source=SOURCE,
        ),
    )
