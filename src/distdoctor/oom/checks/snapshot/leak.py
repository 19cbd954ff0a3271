"""Does memory stay behind from training step to training step?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.snapshot.base import (
    RECORD,
    SnapshotCheck,
    evidence,
    not_seen,
    percent,
    place_of,
    scope,
    severity_for,
)
from distdoctor.oom.snapshots.cause import Cause
from distdoctor.oom.snapshots.growth import MIN_STEPS, Growth
from distdoctor.oom.snapshots.holders import share
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team
from distdoctor.units import MIB, format_bytes

# Growth is worth a warning from this share of live memory, or from this much a step. Our own thresholds.
WARN_SHARE = 0.02
WARN_PER_STEP = 64 * MIB

# Below this, growth is not worth a line. Our own threshold.
MIN_BYTES = MIB

MAX_STACKS = 3


def check_leak(view: SnapshotView) -> Sequence[Outcome]:
    """A finding when the same code left memory behind in nearly every step."""
    if view.state.events is None:
        return [not_seen("no history was recorded", how=f"at the program's start: `{RECORD}`")]
    steps = view.steps
    if steps.num_complete < MIN_STEPS:
        reason = (
            f"the history shows {steps.num_complete} complete training steps, {MIN_STEPS} are needed"
            if steps.ends
            else "the history shows no training step (a forward pass, then the optimizer)"
        )
        return [
            not_seen(
                reason, how="record more: a larger max_entries, stacks on, the snapshot a few steps later"
            )
        ]
    growths = [each for each in steps.growths if each.num_bytes >= MIN_BYTES]
    if not growths:
        return [Passed(detail=f"nothing stayed behind from step to step in {steps.num_complete} steps")]
    return [_found(view, growths)]


def _found(view: SnapshotView, growths: Sequence[Growth]) -> Found:
    live = view.moment.live_bytes
    total, per_step = sum(each.num_bytes for each in growths), sum(each.bytes_per_step for each in growths)
    serious = share(total, live) >= WARN_SHARE or per_step >= WARN_PER_STEP
    return Found(
        key="growth",
        title=f"{place_of(view)}: {format_bytes(per_step)} stay behind each step, {format_bytes(total)} so far",
        severity=severity_for(view, Cause.GROWN, otherwise=Severity.WARNING if serious else Severity.INFO),
        confidence=Confidence.HIGH if view.moment.is_exact else Confidence.MEDIUM,
        evidence=tuple(
            evidence(
                view,
                f"`{each.label}` left {format_bytes(each.bytes_per_step)} in each of {each.num_steps} of "
                f"{view.steps.num_complete} steps: {each.count} blocks, {format_bytes(each.num_bytes)}, "
                f"{percent(each.num_bytes, live)} of what is in use",
                each.num_bytes,
                expected="nothing that outlives the step",
                expected_source="the same code in earlier steps",
            )
            for each in growths[:MAX_STACKS]
        ),
        explanation=(
            "These blocks were allocated in earlier steps and are still referenced after the optimizer has stepped, "
            "once more in each step. Common causes: a loss or metric kept with its graph (`total += loss`), outputs "
            "appended to a list, a closure or hook that holds tensors, retain_graph."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="find what keeps the tensors of this line: `.item()` or `.detach()` what is kept, clear lists each step",
            ),
        ),
        scope=scope(view),
        cause_class="capacity:leak",
        fault=Fault.USER_CODE,
    )


CHECK = SnapshotCheck(id="oom-snapshot-leak", title="memory that grows from step to step", run=check_leak)
