"""Are there settings that exclude each other, in one file or between files?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.report.checking import Outcome, Passed

LOOKS = Looks(kinds=(Defect.CONFLICT,), cause_class="config:conflict")


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    found = findings(facts, LOOKS) or no_configuration(facts)
    if found:
        return found
    number = len(facts.configs)
    between = f", and between {number} files" if number > 1 else ""
    return [Passed(detail=f"no known contradiction among {_count(facts)} settings that were read{between}")]


def _count(facts: ConfigFacts) -> int:
    return sum(len(each.setting_keys) for each in facts.configs)


CHECK = ConfigCheck(id="oom-config-conflict", title="settings that exclude each other", run=_run)
