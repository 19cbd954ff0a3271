"""Is this torch within the range that distdoctor was tried with?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.torch_view import torch_version
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.versions import parse_version
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# The torch that the test suite runs with, and the oldest that the optional dependency admits (pyproject.toml).
NEWEST_TESTED = "2.13"
OLDEST_SUPPORTED = "2.4"


def check_torch_tested(facts: EnvFacts) -> Sequence[Outcome]:
    """An info, never more: newer tables and private APIs may differ from what the rules know."""
    if facts.torch is not None and facts.torch.found is False:
        return [NotApplicable(detail="no torch in this Python")]
    known = torch_version(facts)
    version = parse_version(known.text) if known else None
    newest, oldest = parse_version(NEWEST_TESTED), parse_version(OLDEST_SUPPORTED)
    if known is None or version is None or newest is None or oldest is None:
        return [missing(facts, "torch.version")]
    if version[:2] > newest:
        return [_outside(known.text, known.source, "newer")]
    if version[:2] < oldest and facts.is_live:
        return [_outside(known.text, known.source, "older")]
    return [Passed(detail=f"torch {known.text}")]


def _outside(version: str, source: str | None, side: str) -> Found:
    return Found(
        key=side,
        title=f"torch {version[:24]} is {side} than what distdoctor was tested with",
        severity=Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"torch {version}",
                value=version,
                expected=f"{OLDEST_SUPPORTED} to {NEWEST_TESTED}",
                expected_source="distdoctor's own test suite",
                source=source,
            ),
        ),
        explanation="Checks that read torch's own files or messages may miss something; none of them fails because of it.",
        actions=(Action(team=Team.PLATFORM, text="Look for a newer distdoctor"),),
        cause_class=None,
        fault=Fault.UNKNOWN,
    )


CHECK = Check(
    id="torch-newer-than-tested",
    title="torch against the tested range",
    run=check_torch_tested,
    preflight=True,
)
