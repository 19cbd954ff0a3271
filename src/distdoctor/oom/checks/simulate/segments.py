"""Would expandable segments help? Where the allocator holds much more than the program uses."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.estimate.base import gib
from distdoctor.oom.checks.simulate.base import SOURCE, SimulationCheck
from distdoctor.oom.fit import Fits
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report.checking import Found, NotApplicable, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# A smaller gain is no reason to change a job. Our own choice.
WORTH = 0.04


def _run(facts: SimulationFacts) -> Sequence[Outcome]:
    worst = facts.simulation.worst
    if worst is None or facts.expandable_segments:
        return [NotApplicable(detail="expandable segments are on, or nothing was simulated")]
    plain = {each.expandable_segments: each for each in worst.reserved}
    if True not in plain or False not in plain:
        return [NotApplicable(detail="reserved memory was not replayed")]
    saved = plain[False].peak_bytes - plain[True].peak_bytes
    share = saved / plain[False].peak_bytes
    fits = facts.fit is not None and facts.fit.answer is Fits.YES
    if facts.cluster is not None and worst.peak.num_bytes > facts.cluster.type.total_bytes:
        return [NotApplicable(detail="what is allocated is more than the GPU holds, however it is segmented")]
    if share < WORTH or fits:
        return [Passed(detail=f"expandable segments would save {share:.0%} of what is reserved")]
    return [
        Found(
            title=f"expandable segments would save {gib(saved)} of {gib(plain[False].peak_bytes)} reserved",
            evidence=(
                Evidence(
                    text=f"replayed: {gib(plain[False].peak_bytes)} reserved with fixed segments, "
                    f"{gib(plain[True].peak_bytes)} with expandable ones; {gib(worst.peak.num_bytes)} are allocated",
                    value=saved,
                    unit="B",
                    source=SOURCE,
                ),
            ),
            explanation="What is reserved and not allocated is lost to fragments that no request fits.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="turn expandable segments on for the job, and measure reserved memory again",
                    command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                ),
            ),
            severity=Severity.INFO,
            confidence=Confidence.MEDIUM,
            cause_class="fragmentation",
            fault=Fault.CONFIG,
        )
    ]


CHECK = SimulationCheck(id="oom-simulated-segments", title="gain of expandable segments", run=_run)
