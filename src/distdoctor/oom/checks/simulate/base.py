"""Checks of a simulation: outcomes over `SimulationFacts`."""

from __future__ import annotations

from distdoctor.oom.checks.estimate.base import gib
from distdoctor.oom.facts.simulated import PhasePeak, RoleSimulation
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report import checking
from distdoctor.report.model import Evidence

SimulationCheck = checking.Check[SimulationFacts]

SOURCE = "simulated: torch's own code under fake tensors"


def place_words(peak: PhasePeak) -> str:
    """`step 2, backward, in layers.3.feed_forward, at aten.mm`."""
    parts = [f"step {peak.step}, {peak.phase.value}" if peak.step else peak.phase.value]
    if peak.place.module:
        parts.append(f"in {peak.place.module}")
    if peak.place.op:
        parts.append(f"at {peak.place.op.removesuffix('.default')}")
    return ", ".join(parts)


def peak_evidence(role: RoleSimulation) -> tuple[Evidence, ...]:
    """The peak of a kind of rank, where it was, and its largest parts."""
    peak = role.peak
    largest = sorted(peak.by_category.items(), key=lambda each: -each[1])[:3]
    parts = ", ".join(f"{category.value} {gib(num_bytes)}" for category, num_bytes in largest)
    return (
        Evidence(
            text=f"{role.role}: {gib(peak.num_bytes)} allocated at the peak ({place_words(peak)}): {parts}",
            value=peak.num_bytes,
            unit="B",
            source=SOURCE,
        ),
    )
