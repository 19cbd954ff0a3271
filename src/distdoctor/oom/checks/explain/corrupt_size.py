"""Is the requested size itself impossible, so that memory is not the matter at all?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_corrupt_size(facts: Explained) -> Sequence[Outcome]:
    """Critical for requests that no machine can hold."""
    return outcomes(_TOPIC, facts)


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    return (
        Action(
            team=Team.JOB_OWNER,
            text="the first error of any rank, before this one: a timeout, a rank that died, collectives that do not match",
            command=f"grep -nE 'Watchdog|timeout|NCCL WARN|DistBackendError|Traceback' {_quoted(judged.event.path)} | head",
        ),
    )


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"


_TOPIC = Topic(
    causes=(Cause.CORRUPT_SIZE,),
    applies=lambda judged: judged.event.requested_bytes is not None or judged.event.is_absurd_size,
    decides=lambda _judged: True,
    passed=lambda told: f"every size is one that a tensor can have ({len(told)} messages)",
    not_applicable="no message holds a size",
    unread="",
    how="",
    explanation=lambda _judged: (
        "The size was read from a buffer that was never filled: of a size message that a failed or mismatched collective did not "
        "deliver, or of a damaged file. The memory error is a consequence."
    ),
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-corrupt-size", title="sizes that cannot be", run=check_corrupt_size)
