"""Are options or variables used that nobody gives a value?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.report.checking import Outcome, Passed

LOOKS = Looks(kinds=(Defect.EMPTY_VALUE, Defect.UNSET_VARIABLE), cause_class="config:unset")


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    found = findings(facts, LOOKS) or no_configuration(facts)
    return found or [Passed(detail="no option without a value, no variable that is never set")]


CHECK = ConfigCheck(id="oom-config-unset", title="options and variables without a value", run=_run)
