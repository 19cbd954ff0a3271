"""Is the global batch the product of micro-batch, accumulation and data-parallel ranks?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration, not_said
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.report.checking import NotApplicable, Outcome, Passed

LOOKS = Looks(kinds=(Defect.BATCH_DOES_NOT_DIVIDE,), cause_class="config:batch")


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    found = findings(facts, LOOKS) or no_configuration(facts)
    if found:
        return found
    joined = facts.joined
    if joined.micro_batch is None and joined.global_batch is None:
        return [
            not_said(
                "no file gives a batch size", how="give `--micro-batch N`, or the trainer's arguments too"
            )
        ]
    if joined.global_batch is None:
        return [NotApplicable(detail=f"micro-batch {joined.micro_batch}; no global batch to compare with")]
    if joined.micro_batch is None or joined.world_size is None:
        missing = "the micro-batch" if joined.micro_batch is None else "the number of ranks"
        return [
            not_said(
                f"the global batch is {joined.global_batch}, and {missing} is open", how="give `--gpus N`"
            )
        ]
    return [Passed(detail=f"global batch {joined.global_batch}, micro-batch {joined.micro_batch}")]


CHECK = ConfigCheck(id="oom-config-batch", title="batch sizes in the configuration", run=_run)
