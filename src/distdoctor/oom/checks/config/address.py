"""Can ranks of several nodes find each other with what the configuration says?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration, not_said
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.report.checking import NotApplicable, Outcome, Passed
from distdoctor.report.model import Severity

LOOKS = Looks(
    kinds=(Defect.PLACEHOLDER_ADDRESS, Defect.SAME_ON_EVERY_NODE),
    cause_class="config:address",
    unsure=Severity.INFO,
)


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    found = findings(facts, LOOKS) or no_configuration(facts)
    if found:
        return found
    nodes = facts.joined.num_nodes
    if nodes is None:
        return [
            not_said(
                "no file says how many nodes there are", how="give the launcher's file or job script too"
            )
        ]
    if nodes == 1:
        return [NotApplicable(detail="one node: ranks meet on the host itself")]
    return [Passed(detail=f"{nodes} nodes; no placeholder among the addresses that the files hold")]


CHECK = ConfigCheck(
    id="oom-config-address", title="addresses and ranks of nodes in the configuration", run=_run
)
