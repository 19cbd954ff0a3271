"""GPUs that monitoring shows to be unlike their peers: clocks, power, temperature, throttling."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.base import NotApplicable, Outcome, StragglerCheck
from distdoctor.straggler.checks.telemetry.findings import telemetry_outcomes


def check_telemetry(facts: Analysed) -> Sequence[Outcome]:
    """Outcomes over all exports together."""
    if not facts.reading.telemetry:
        return [NotApplicable(detail="no telemetry in the evidence")]
    return telemetry_outcomes(facts.reading.telemetry, around_s=facts.around_s)


CHECK = StragglerCheck(
    id="straggler-telemetry", title="GPUs unlike their peers in telemetry", run=check_telemetry
)
