"""Are there settings that do nothing as they stand?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.report.checking import Outcome, Passed
from distdoctor.report.model import Severity

LOOKS = Looks(kinds=(Defect.INEFFECTIVE,), cause_class="config:no_effect", unsure=Severity.INFO)


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    found = findings(facts, LOOKS) or no_configuration(facts)
    return found or [Passed(detail="no setting known to be without effect")]


CHECK = ConfigCheck(id="oom-config-ineffective", title="settings without effect", run=_run)
