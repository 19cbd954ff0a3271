"""Which kinds of ranks could not be simulated, and what stood in the way?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.simulate.base import SOURCE, SimulationCheck
from distdoctor.oom.facts.simulated import ModelStates, SimulationFailure
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import format_bytes

_REPRODUCE = "`distdoctor oom reproduce` runs it with real tensors instead"
# A user's own module `oom reproduce` does not take.
_RECORD = "record a memory snapshot of a real step, and give it to `distdoctor oom explain`"


def _run(facts: SimulationFacts) -> Sequence[Outcome]:
    failures = facts.simulation.failures
    if not failures:
        return [Passed(detail=f"simulated: {', '.join(role.role for role in facts.simulation.roles)}")]
    by_reason: dict[tuple[str, str | None], list[SimulationFailure]] = {}
    for failure in failures:
        by_reason.setdefault((failure.reason, failure.op), []).append(failure)
    return [_found(facts, each) for each in by_reason.values()]


def _found(facts: SimulationFacts, failures: Sequence[SimulationFailure]) -> Found:
    first = failures[0]
    which = first.role if len(failures) == 1 else f"{len(failures)} kinds of ranks"
    title = f"{which}: not simulated"
    if first.op is not None:
        title = f"{which}: {first.op} cannot run under fake tensors"
    evidence = [Evidence(text=first.reason, source=SOURCE)]
    if first.module:
        evidence.append(Evidence(text=f"in {first.module}", source=SOURCE))
    if first.states is not None:
        evidence.append(_states(first.states))
    instead = "nothing is known of its memory"
    if facts.estimate is not None:
        instead = "the figures shown for it are estimated by formula"
    elif first.states is not None:
        instead = "its parameters are counted, nothing is known of its activations"
    return Found(
        title=title,
        evidence=tuple(evidence),
        explanation=f"Nothing was measured here; {instead}.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text=first.advice or (_RECORD if facts.job is None else _REPRODUCE),
            ),
        ),
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        key=first.role,
        fault=Fault.USER_CODE if facts.job is None else Fault.UNKNOWN,
    )


def _states(states: ModelStates) -> Evidence:
    """A floor for a module that could be built and not run."""
    parts = ", ".join(
        f"{category.value} {format_bytes(num_bytes)}" for category, num_bytes in states.by_category.items()
    )
    return Evidence(
        text=f"{states.num_params:,} parameters, at least {format_bytes(states.num_bytes)} on a rank without activations: {parts}",
        value=states.num_bytes,
        unit="B",
        source=states.how,
    )


CHECK = SimulationCheck(id="oom-simulation-failed", title="kinds of ranks that were simulated", run=_run)
