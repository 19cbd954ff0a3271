"""Do formula and simulation agree?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.estimate.base import gib
from distdoctor.oom.checks.simulate.base import SOURCE, SimulationCheck
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report.checking import Found, NotApplicable, Outcome, Passed
from distdoctor.report.model import Confidence, Evidence, Severity

# What the formulas are held to (docs/measurements).
AGREES = 0.10


def _run(facts: SimulationFacts) -> Sequence[Outcome]:
    if facts.estimate is None or not facts.estimate.is_whole or not facts.simulation.roles:
        return [NotApplicable(detail="there is no estimate of the whole need to compare with")]
    by_rank = {role.rank: role for role in facts.simulation.roles}
    worst = max(by_rank.values(), key=lambda role: role.peak.num_bytes)
    estimated = facts.estimate.worst.peak.num_bytes
    off = estimated / worst.peak.num_bytes - 1
    words = f"estimated {gib(estimated)}, simulated {gib(worst.peak.num_bytes)} allocated on the worst rank"
    if abs(off) <= AGREES:
        return [Passed(detail=f"{words}: {off:+.0%}")]
    return [
        Found(
            title=f"the formula says {abs(off):.0%} {'more' if off > 0 else 'less'}: {gib(estimated)}, simulated {gib(worst.peak.num_bytes)}",
            evidence=(
                Evidence(
                    text=words,
                    value=round(estimated),
                    unit="B",
                    expected=f"within {AGREES:.0%}",
                    source=SOURCE,
                ),
            ),
            explanation="The simulation ran torch's own code for this job; take its number.",
            actions=(),
            severity=Severity.INFO,
            confidence=Confidence.HIGH,
        )
    ]


CHECK = SimulationCheck(id="oom-simulated-estimate", title="formula against simulation", run=_run)
