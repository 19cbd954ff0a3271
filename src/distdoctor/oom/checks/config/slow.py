"""Are there settings that slow the job down, on purpose or left over?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.report.checking import Outcome, Passed
from distdoctor.report.model import Severity

LOOKS = Looks(kinds=(Defect.SLOW_BY_DESIGN,), cause_class="config:slow", unsure=Severity.INFO)


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    found = findings(facts, LOOKS) or no_configuration(facts)
    return found or [Passed(detail="no setting known to slow a job down")]


CHECK = ConfigCheck(id="oom-config-slow", title="settings that slow the job down", run=_run)
