"""Do the numbers of nodes, ranks, devices and degrees fit each other?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration, not_said
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.report.checking import Outcome, Passed

LOOKS = Looks(
    kinds=(Defect.MORE_RANKS_THAN_DEVICES, Defect.MESH_DOES_NOT_DIVIDE),
    cause_class="config:ranks",
)


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    found = findings(facts, LOOKS) or no_configuration(facts)
    if found:
        return found
    joined = facts.joined
    if joined.world_size is None:
        return [
            not_said("no file says how many ranks run", how="give `--gpus N`, or the launcher's file too")
        ]
    degrees = {
        name: size
        for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp")
        if (size := getattr(joined, name)) and size > 1
    }
    shown = " x ".join(f"{name} {size}" for name, size in degrees.items())
    nodes = f" on {joined.num_nodes} node{'s' if joined.num_nodes != 1 else ''}" if joined.num_nodes else ""
    return [Passed(detail=f"{joined.world_size} ranks{nodes}{f', {shown}' if shown else ''}")]


CHECK = ConfigCheck(id="oom-config-world", title="ranks, devices and degrees in the configuration", run=_run)
