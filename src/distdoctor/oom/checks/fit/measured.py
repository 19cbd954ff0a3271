"""Does the failure agree with the settings that were searched from?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.fit.base import SOURCE, FitCheck, gib
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team


def _run(facts: FitFacts) -> Sequence[Outcome]:
    failure, measured = facts.failure, facts.measured
    if failure is None:
        return [NotApplicable(detail="no report of a failure was given")]
    if measured is None:
        reason = "the settings are not known" if facts.outcome is None else "the estimate holds states only"
        how = "give --model NAME and what else is known, or --config FILE"
        return [NotSeen(unread=Unread(cause=SkipCause.NOT_ASKED, reason=reason, how=how))]
    told = f"the job wanted at least {gib(measured.wanted)}, the estimate's peak is {gib(measured.estimated)}"
    if not measured.is_other_job:
        stretched = (
            f"; estimates are multiplied by {measured.factor:.2f}"
            if measured.factor > 1
            else "; it covers that"
        )
        return [Passed(detail=f"{told}{stretched}")]
    return [
        Found(
            title=f"the job wanted {gib(measured.wanted)}, these settings should need {gib(measured.estimated)}",
            evidence=(
                Evidence(
                    text=f"{gib(failure.allocated_bytes)} were allocated and {gib(failure.requested_bytes)} "
                    f"asked for when it failed ({failure.phase})",
                    value=failure.wanted_bytes,
                    unit="B",
                    expected=f"a peak of {gib(measured.estimated)}",
                    expected_source=SOURCE,
                    source=failure.path,
                ),
            ),
            explanation="The proposals are for the settings that were given, and the job that failed ran with others, or "
            "something in it is not sharded as intended: they may not be enough.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="compare what the job logged as its settings with those given here, then search again",
                ),
            ),
            severity=Severity.WARNING,
            confidence=Confidence.LOW,
            cause_class="sharding-ineffective",
            fault=Fault.CONFIG,
        )
    ]


CHECK = FitCheck(id="oom-fit-measured", title="the failure beside the estimate", run=_run)
