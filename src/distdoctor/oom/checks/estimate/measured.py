"""Does a failure that happened agree with the estimate of its configuration?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.estimate.base import SOURCE, EstimateCheck, gib
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

# Formulas are good to some 10 to 15 %; only what is well beyond it tells of another configuration. Our own choice.
BEYOND = 1.3


def _run(facts: EstimateFacts) -> Sequence[Outcome]:
    failure = facts.failure
    if failure is None:
        return [NotApplicable(detail="no report of a failure was given (--explained)")]
    if not facts.estimate.is_whole:
        reason = "the estimate holds model states only"
        return [
            NotSeen(unread=Unread(cause=SkipCause.NOT_ASKED, reason=reason, how="give the model's shape"))
        ]
    peak = facts.estimate.worst.peak.num_bytes
    wanted = gib(failure.wanted_bytes)
    if failure.wanted_bytes <= BEYOND * peak:
        return [Passed(detail=f"the job wanted at least {wanted}; the estimate's peak is {gib(peak)}")]
    return [
        Found(
            title=f"the job wanted at least {wanted}, this configuration should need {gib(peak)}",
            evidence=(
                Evidence(
                    text=f"{gib(failure.allocated_bytes)} were allocated and {gib(failure.requested_bytes)} "
                    f"asked for when it failed ({failure.phase})",
                    value=failure.wanted_bytes,
                    unit="B",
                    expected=f"a peak of {gib(peak)}",
                    expected_source=SOURCE,
                    source=failure.path,
                ),
            ),
            explanation="Either the job runs with other settings than these, or something is not sharded as intended.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="compare what the job logged as its settings with these, and count the parameters on one rank",
                    command="distdoctor oom explain SNAPSHOT.pickle",
                ),
            ),
            severity=Severity.WARNING,
            confidence=Confidence.LOW,
            cause_class="sharding-ineffective",
            fault=Fault.CONFIG,
        )
    ]


CHECK = EstimateCheck(id="oom-estimate-measured", title="a failure beside its estimate", run=_run)
