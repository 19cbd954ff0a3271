"""Is the start worse than training? A model that is built whole before it is sharded dies there."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.estimate.base import EstimateCheck, gib, peak_evidence
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.oom.strategies.all import shards_parameters
from distdoctor.report.checking import Found, NotApplicable, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team


def _run(facts: EstimateFacts) -> Sequence[Outcome]:
    if not shards_parameters(facts.job.strategy) or facts.job.mesh.shard_ranks == 1:
        return [NotApplicable(detail="parameters are not sharded")]
    worst = facts.estimate.worst
    start, trained = worst.peak_of_step(0), worst.peak_of_step(2)
    whole = 4 * worst.local_params
    if start.num_bytes <= trained.num_bytes:
        whole = start.num_bytes + 4 * worst.local_params
        other = (
            f"; {gib(whole)} if each rank built it whole in fp32 first"
            if facts.job.said.meta_init is None
            else ""
        )
        return [
            Passed(detail=f"{gib(start.num_bytes)} at the start, {gib(trained.num_bytes)} in training{other}")
        ]
    return [
        Found(
            title=f"the start needs more than training: {gib(start.num_bytes)} while the model is whole",
            evidence=peak_evidence(facts),
            explanation="Every rank builds the whole model on its GPU before it is sharded.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="build it on the meta device and initialise after sharding (fully_shard, then to_empty), "
                    "or under deepspeed.zero.Init",
                ),
            ),
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM,
            cause_class="not-sharded:parameters",
            fault=Fault.USER_CODE,
        )
    ]


CHECK = EstimateCheck(id="oom-estimate-init", title="memory at initialisation", run=_run)
