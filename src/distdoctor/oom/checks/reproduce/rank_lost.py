"""Did the run end before its plan because a rank was lost?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.reproduce.base import ReproduceCheck
from distdoctor.oom.facts.reproduced import Outcome, ReproduceFacts
from distdoctor.ranks.blame import Blame, Cause, blame
from distdoctor.ranks.lost import Stopped
from distdoctor.ranks.lost_found import error_evidence, lost_found, store_lost_found, waiting_evidence
from distdoctor.report.checking import Found, Passed
from distdoctor.report.checking import Outcome as CheckOutcome
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team


def _run(facts: ReproduceFacts) -> Sequence[CheckOutcome]:
    stopped = facts.stopped
    if stopped is None:
        return [Passed(detail="every step ended in time")]
    told = blame(stopped)
    if told.cause is Cause.RAISED and _is_explained(facts, told):
        return [Passed(detail="the ranks that ended the run said why")]
    match told.cause:
        case Cause.BY_USER | Cause.ENDED:
            return [_ended(stopped, told)]
        case Cause.STUCK | Cause.BROKEN:
            return [_stuck(stopped, told)]
        case Cause.STORE_LOST:
            return [store_lost_found(stopped, told, facts.places)]
        case _:
            return [lost_found(stopped, told, facts.places)]


def _is_explained(facts: ReproduceFacts, told: Blame) -> bool:
    """Whether the errors of these ranks stand in findings of their own."""
    known = {
        part.rank
        for combination in facts.combinations
        for part in (
            *combination.own_failures,
            *(part for part in combination.parts if part.outcome is Outcome.OUT_OF_MEMORY),
        )
    }
    return all(each.rank in known for each in told.culprits)


def _stuck(stopped: Stopped, told: Blame) -> Found:
    broken = told.cause is Cause.BROKEN
    return Found(
        key="broken" if broken else "stuck",
        title=(
            "a connection between ranks broke, though all of them run"
            if broken
            else "all ranks are in one step and none comes out of it"
        ),
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=(*error_evidence(told), waiting_evidence(stopped, told)),
        explanation=(
            "No rank is missing and all processes run. Either data does not get from one rank to another, or the step "
            "needs longer than it was given: a large model on a busy host does."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="repeat it with more time for a step",
                command="distdoctor oom reproduce --timeout 5m --time-limit 30m   # with the same options",
            ),
            Action(
                team=Team.NETWORK,
                text="whether ranks reach one another at all, and how fast",
                command="distdoctor nccl-bench --launch 2",
            ),
        ),
        cause_class="network:unreachable_peer" if broken else "comm_stuck",
        fault=Fault.UNKNOWN,
    )


def _ended(stopped: Stopped, told: Blame) -> Found:
    by_user = told.cause is Cause.BY_USER
    return Found(
        key="ended",
        title=(
            "somebody ended the run before its plan"
            if by_user
            else "the launcher ended the run; no rank was found at fault"
        ),
        severity=Severity.INFO,
        confidence=Confidence.HIGH if by_user else Confidence.MEDIUM,
        evidence=(waiting_evidence(stopped, told),),
        explanation="What was measured until then is in the report.",
        actions=(),
        fault=Fault.UNKNOWN,
    )


CHECK = ReproduceCheck(id="oom-reproduce-rank-lost", title="whether every step ended", run=_run)
