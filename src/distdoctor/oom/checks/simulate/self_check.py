"""Is the simulation right on this torch?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.simulate.base import SimulationCheck
from distdoctor.oom.facts.simulated import MAX_DIFFERENCE
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team


def _run(facts: SimulationFacts) -> Sequence[Outcome]:
    check = facts.simulation.self_check
    if check is None:
        return [NotApplicable(detail="the self-check was not asked for")]
    if check.simulated_bytes is None or check.measured_bytes is None:
        reason = check.reason or "this torch does not tell what its allocator counted"
        return [NotSeen(unread=Unread(cause=SkipCause.FAILED, reason=f"self-check: {reason}"))]
    off = abs(check.simulated_bytes - check.measured_bytes) / check.measured_bytes
    words = f"a tiny model: simulated {check.simulated_bytes:,} bytes, the allocator counted {check.measured_bytes:,}"
    if check.agrees:
        return [Passed(detail=words)]
    return [
        Found(
            title=f"simulation is {off:.1%} off on this torch: trust the estimate instead",
            evidence=(
                Evidence(
                    text=words,
                    value=check.simulated_bytes,
                    unit="B",
                    expected=f"within {MAX_DIFFERENCE:.1%} of {check.measured_bytes:,}",
                    expected_source="torch's CPU allocator, by its profiler",
                    source="self-check",
                ),
            ),
            explanation="Both ran the same code, so the difference is an error of the simulation on this torch.",
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="report it with this report as JSON: torch's private parts changed",
                ),
            ),
            severity=Severity.WARNING,
            confidence=Confidence.HIGH,
            fault=Fault.SOFTWARE,
        )
    ]


CHECK = SimulationCheck(id="oom-self-check", title="simulation against the real allocator", run=_run)
