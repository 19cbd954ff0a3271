"""GPUs that monitoring shows to be unlike their peers: clocks, power, temperature, throttling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdoctor.report.model import Confidence
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.base import Found, NotApplicable, Outcome, StragglerCheck
from distdoctor.straggler.checks.telemetry.findings import telemetry_outcomes


def check_telemetry(facts: Analysed) -> Sequence[Outcome]:
    """Outcomes over all exports together. Beside step times, which decide, none is surer than medium."""
    if not facts.reading.telemetry:
        return [NotApplicable(detail="no telemetry in the evidence")]
    outcomes = telemetry_outcomes(facts.reading.telemetry, around_s=facts.around_s)
    return [_less_sure(each) for each in outcomes] if facts.judged else outcomes


def _less_sure(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Found) and outcome.confidence is Confidence.HIGH:
        return replace(outcome, confidence=Confidence.MEDIUM)
    return outcome


CHECK = StragglerCheck(
    id="straggler-telemetry", title="GPUs unlike their peers in telemetry", run=check_telemetry
)
