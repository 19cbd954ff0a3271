"""Are there keys that nobody reads, or names that disagree with the sizes?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.report.checking import Outcome, Passed

LOOKS = Looks(kinds=(Defect.UNKNOWN_KEY, Defect.NAME_DISAGREES), cause_class="config:names")


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    found = findings(facts, LOOKS) or no_configuration(facts)
    return found or [Passed(detail="no key that looks like a slip of a known one")]


CHECK = ConfigCheck(id="oom-config-names", title="keys that nobody reads, names that disagree", run=_run)
