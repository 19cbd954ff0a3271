"""What the message of a failure says of its card: others on it, a limit, idle memory in torch's pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdoctor.oom.checks.fit.base import FitCheck, gib
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.failed import Failure
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team
from distdoctor.units import MIB

# A context that another process merely has open; what is less says nothing. Our own choice.
MIN_OTHERS = 512 * MIB


def _run(facts: FitFacts) -> Sequence[Outcome]:
    failure = facts.failure
    if failure is None:
        return [NotApplicable(detail="no report of a failure was given")]
    found = list(_found(failure, has_proposals=facts.outcome is not None))
    if found:
        return found
    if failure.others_bytes is None and failure.idle_bytes is None:
        reason = "its message does not tell what other processes hold, nor what was idle in torch's pool"
        return [NotSeen(unread=Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason=reason, how=None))]
    return [Passed(detail="the card was the job's own, and little was idle in torch's pool")]


def _found(failure: Failure, *, has_proposals: bool) -> Iterator[Found]:
    others, short = failure.others_bytes or 0, _short(failure)
    if others >= MIN_OTHERS:
        enough = f"; without them {gib(short)} would have been there" if short and others >= short else ""
        yield _finding(
            failure,
            key="others",
            title=f"other processes hold {gib(others)} of the card",
            text=f"{gib(others)} of {_total(failure)} are held by other processes{enough}",
            value=others,
            why="Ending them may be all that is needed."
            + (" The proposals leave that room to them." if has_proposals else ""),
            action="find what else runs on that GPU and move or end it",
            command="nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv",
            cause="other-process",
            is_enough=bool(short) and others >= short,
        )
    if failure.is_fragmented and failure.idle_bytes is not None:
        yield _finding(
            failure,
            key="idle",
            title=f"{gib(failure.idle_bytes)} lay idle in torch's pool when {gib(failure.requested_bytes)} failed",
            text=f"{gib(failure.idle_bytes)} reserved but not allocated, {gib(failure.requested_bytes)} asked for",
            value=failure.idle_bytes,
            why="The pool held enough, in pieces that were too small. Try this first: it changes nothing else.",
            action="let the allocator grow its segments, then run the job as it is",
            command="export PYTORCH_ALLOC_CONF=expandable_segments:True "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            cause="fragmentation",
            is_enough=True,
        )
    allowed = failure.allowed_bytes
    if allowed is not None and failure.total_bytes is not None and allowed < failure.total_bytes:
        rest = failure.total_bytes - allowed
        yield _finding(
            failure,
            key="allowed",
            title=f"the process may use {gib(allowed)} of {_total(failure)} only",
            text=f"{gib(allowed)} allowed of {_total(failure)}",
            value=allowed,
            why=f"A limit in the job keeps {gib(rest)} from it{'; the proposals respect it' if has_proposals else ''}.",
            action="raise or remove set_per_process_memory_fraction (or per_process_memory_fraction in the allocator's "
            "configuration)",
            command=None,
            cause="process-cap",
            is_enough=bool(short) and rest >= short,
        )


def _finding(
    failure: Failure,
    *,
    key: str,
    title: str,
    text: str,
    value: int,
    why: str,
    action: str,
    command: str | None,
    cause: str,
    is_enough: bool,
) -> Found:
    return Found(
        title=title[:80],
        evidence=(Evidence(text=text, value=value, unit="B", source=failure.path),),
        explanation=why,
        actions=(Action(team=Team.JOB_OWNER, text=action, command=command),),
        severity=Severity.CRITICAL if is_enough else Severity.WARNING,
        confidence=Confidence.MEDIUM,
        key=key,
        cause_class=cause,
        fault=Fault.CONFIG if key != "others" else Fault.SCHEDULER,
    )


def _short(failure: Failure) -> int:
    """What was missing; 0 where the message does not tell."""
    if failure.free_bytes is None:
        return 0
    return max(0, failure.requested_bytes - failure.free_bytes)


def _total(failure: Failure) -> str:
    return gib(failure.total_bytes) if failure.total_bytes else "the card"


CHECK = FitCheck(id="oom-fit-card", title="who else has the card, and what lies idle", run=_run)
