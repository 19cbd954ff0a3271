"""Does the configuration move the limit into the hosts' memory?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration, not_said
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.oom.settings import DataParallel, Offload
from distdoctor.report.checking import NotApplicable, Outcome, Passed
from distdoctor.report.model import Severity, Team

LOOKS = Looks(
    kinds=(Defect.HOST_MEMORY,),
    cause_class="config:host_memory",
    severity=Severity.WARNING,
    unsure=Severity.INFO,
    team=Team.PLATFORM,
)


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    found = findings(facts, LOOKS) or no_configuration(facts)
    if found:
        return found
    joined = facts.joined
    if Offload.NVME in (joined.offload_params, joined.offload_optimizer):
        return [Passed(detail="offloaded to NVMe; host memory holds buffers only")]
    if joined.offload_optimizer is None and joined.strategy not in (DataParallel.DDP, DataParallel.NONE):
        if any(each.references for each in facts.configs):
            return [
                not_said(
                    "a file that may offload states is named and was not given", how="give it as another file"
                )
            ]
        if joined.strategy is None:
            return [not_said("no file says which strategy runs, and whether it offloads")]
    return [NotApplicable(detail="nothing is offloaded to host memory")]


CHECK = ConfigCheck(id="oom-config-host-memory", title="host memory that the configuration needs", run=_run)
