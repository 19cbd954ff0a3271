"""Was recorded what is needed to explain a failure: a history, stacks, and the failure itself?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.snapshot.base import RECORD, SnapshotCheck, evidence, place_of, scope
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team

_DUMP = 'torch.cuda.memory._dump_snapshot(f"snapshot_rank{rank}.pickle")'


def check_history(view: SnapshotView) -> Sequence[Outcome]:
    """A finding that says what to record next time; silent when history, stacks and the failure are there."""
    lacking = _lacking(view)
    if not lacking:
        return [Passed(detail=f"{len(view.state.events or ()):,} events with stacks, the failure among them")]
    only_failure = lacking == ["the failure"]
    return [
        Found(
            key="-".join(lacking).replace(" ", "-"),
            title=f"{place_of(view)}: the snapshot does not hold {_joined(lacking)}",
            severity=Severity.INFO,
            confidence=Confidence.HIGH,
            evidence=(
                evidence(
                    view,
                    "the file is cut off after its segments"
                    if view.snapshot.is_cut
                    else f"{len(view.state.events or ()):,} events, {'some' if view.snapshot.has_stacks else 'no'} stacks, "
                    f"{view.moment.num_ooms} out-of-memory errors",
                ),
            ),
            explanation=(
                "Without the failure the state when the snapshot was taken is shown; when the exception was caught first, "
                "half of the memory may be free again by then."
                if only_failure
                else "Without a history nobody can tell what was live at the failure; without stacks nobody can tell who asked."
            ),
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="record at the program's start, costs some 2 us an allocation",
                    command=RECORD,
                ),
                Action(
                    team=Team.JOB_OWNER,
                    text="dump where the error is caught: `except torch.OutOfMemoryError:`, then raise it again",
                    command=_DUMP,
                ),
            ),
            scope=scope(view),
            fault=Fault.USER_CODE,
        )
    ]


def _lacking(view: SnapshotView) -> list[str]:
    lacking = []
    if view.state.events is None:
        lacking.append("a history")
    if not view.snapshot.has_stacks:
        lacking.append("stacks")
    if view.moment.oom is None:
        lacking.append("the failure")
    return lacking


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


CHECK = SnapshotCheck(id="oom-snapshot-no-history", title="what the snapshot recorded", run=check_history)
