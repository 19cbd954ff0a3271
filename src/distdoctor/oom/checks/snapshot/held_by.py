"""Who holds the memory: live bytes by what they are for and by the code that asked."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.catalog.gpus import gpu_names, gpu_type
from distdoctor.oom.checks.snapshot.advice import advice_for
from distdoctor.oom.checks.snapshot.base import (
    SnapshotCheck,
    evidence,
    not_seen,
    percent,
    place_of,
    request_evidence,
    scope,
    severity_for,
)
from distdoctor.oom.snapshots.categories import NOT_TOLD, Category
from distdoctor.oom.snapshots.cause import Cause, cause_of, is_unexplained
from distdoctor.oom.snapshots.holders import Holding, share
from distdoctor.oom.snapshots.stack_text import NO_STACK, stack_text
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.checking import Found, NotApplicable, Outcome
from distdoctor.report.model import Confidence, Evidence, Fault, Severity
from distdoctor.units import format_bytes

MAX_CATEGORIES = 4
MAX_STACKS = 3

# A category gives the cause its name from this share of live memory on. Our own threshold.
NAMING_SHARE = 0.4

# Beyond this share without a name, the split by category says little. Our own threshold.
UNTOLD_SHARE = 0.5

# Of a GPU that one process has to itself, torch and the driver account for more than this; the rest is its context,
# libraries and NCCL. Our own threshold.
CLOSE_TO_CARD = 0.9

_DETAIL = {
    Category.LOGITS: "capacity:logits",
    Category.ACTIVATIONS: "capacity:activations",
    Category.ATTENTION: "capacity:activations",
    Category.RECOMPUTED: "capacity:activations",
    Category.OPTIMIZER_STATE: "capacity:optimizer-state",
    Category.PARAMETERS: "capacity:parameters",
    Category.UNSHARDED: "capacity:parameters",
    Category.KV_CACHE: "capacity:kv-cache",
    Category.WORKSPACE: "capacity:cublas-workspace",
}


def check_held_by(view: SnapshotView) -> Sequence[Outcome]:
    """A finding that names the holders; the critical one when the memory was simply in use."""
    live = view.moment.live_bytes
    if not live:
        return [NotApplicable(detail="nothing was allocated")]
    if not view.snapshot.has_stacks:
        return [not_seen("no stacks were recorded", how="docs/memory-snapshots.md says how to record them")]
    is_cause = cause_of(view) is Cause.CAPACITY
    top = view.categories[0]
    return [
        Found(
            key="held-by",
            title=_title(view, top, live),
            severity=severity_for(view, Cause.CAPACITY, otherwise=Severity.INFO),
            confidence=_confidence(view),
            evidence=(*request_evidence(view), *_asked(view), *_categories(view), *_stacks(view)),
            explanation=_explanation(view),
            actions=advice_for(view),
            scope=scope(view),
            cause_class=_class(view) if is_cause else None,
            fault=Fault.CONFIG if is_cause else Fault.UNKNOWN,
        )
    ]


def _class(view: SnapshotView) -> str:
    """Where others may hold the rest of the GPU, who holds most of this process's part is not why it was full."""
    return "capacity" if _may_be_shared(view) else cause_class(view)


def cause_class(view: SnapshotView) -> str:
    """The documented class of a failure for want of capacity: by who asked, else by who holds most."""
    stack = view.moment.oom.stack if view.moment.oom is not None else None
    if view.asked in (Category.OPTIMIZER_STEP, Category.OPTIMIZER_STATE):
        names = " ".join(each.name for each in stack.frames) if stack is not None else ""
        return (
            "optimizer-step:foreach" if "_multi_tensor" in names or "_foreach" in names else "optimizer-step"
        )
    if view.asked is Category.LOGITS:
        return "capacity:logits"
    for each in view.categories:
        if (
            each.category in _DETAIL
            and share(_of_class(view, each.category), view.moment.live_bytes) >= NAMING_SHARE
        ):
            return _DETAIL[each.category]
    return "capacity"


def _of_class(view: SnapshotView, category: Category) -> int:
    return view.of(*(each for each, name in _DETAIL.items() if name == _DETAIL[category]))


def _title(view: SnapshotView, top: Holding, live: int) -> str:
    code = _one_place(view, top, live)
    if code is not None:
        return code
    # The largest that has a name; `unknown` in a title helps nobody.
    named = next((each for each in view.categories if each.category not in NOT_TOLD), top)
    of_held = f"{format_bytes(live)} of {format_bytes(view.moment.reserved)} held are in use"
    return f"{place_of(view)}: {of_held}; {named.label} {percent(named.num_bytes, live)}"[:80]


def _one_place(view: SnapshotView, top: Holding, live: int) -> str | None:
    """A title for memory without a name that one line of code holds most of."""
    first = next((each for each in view.stacks if each.label != NO_STACK), None)
    if top.category not in NOT_TOLD or first is None or share(first.num_bytes, live) < NAMING_SHARE:
        return None
    where = first.label.split(" < ", 1)[0]
    return f"{place_of(view)}: {percent(first.num_bytes, live)} of what is in use is held by `{where[:40]}`"[
        :80
    ]


def _confidence(view: SnapshotView) -> Confidence:
    if is_unexplained(view):
        return Confidence.LOW
    if _may_be_shared(view):
        return Confidence.LOW
    untold = share(view.of(*NOT_TOLD), view.moment.live_bytes)
    return Confidence.HIGH if untold < UNTOLD_SHARE and view.moment.is_exact else Confidence.MEDIUM


def _may_be_shared(view: SnapshotView) -> bool:
    """Whether what torch and the driver account for is far from the size of any GPU of our table."""
    if view.capacity_bytes is not None or view.reach is None or view.moment.oom is None:
        return False
    sizes = [gpu_type(name).total_bytes for name in gpu_names()]
    return not any(CLOSE_TO_CARD * size <= view.reach <= size for size in sizes)


def _asked(view: SnapshotView) -> tuple[Evidence, ...]:
    oom = view.moment.oom
    if oom is None or oom.stack is None or view.asked is None:
        return ()
    text = f"asked by `{stack_text(oom.stack)}` ({view.asked.value})"
    return (evidence(view, text),)


def _categories(view: SnapshotView) -> tuple[Evidence, ...]:
    live = view.moment.live_bytes
    return tuple(
        evidence(
            view,
            f"{each.label}: {format_bytes(each.num_bytes)}, {percent(each.num_bytes, live)} of what is in use",
            each.num_bytes,
        )
        for each in view.categories[:MAX_CATEGORIES]
    )


def _stacks(view: SnapshotView) -> tuple[Evidence, ...]:
    told = [each for each in view.stacks if each.label != NO_STACK]
    return tuple(
        evidence(
            view,
            f"{format_bytes(each.num_bytes)} in {each.count} blocks by `{each.label}`",
            each.num_bytes,
        )
        for each in told[:MAX_STACKS]
    )


def _explanation(view: SnapshotView) -> str:
    what = "A snapshot holds no purposes: what memory is for is inferred from the names in the stacks."
    if view.moment.oom is None:
        return f"No out-of-memory error is recorded, so this is the state when the snapshot was taken. {what}"
    if view.reach is not None and _may_be_shared(view):
        what += (
            f" Torch and the driver account for {format_bytes(view.reach)}, and no usual GPU is of that size: if this one is larger, "
            "something else held the rest. A snapshot does not hold the GPU's size; the message in the job's log does."
        )
    undone = view.moment.num_undone
    when = (
        f"The state at the error, with {undone:,} later events undone."
        if undone
        else "The state at the error."
    )
    return f"{when} {what}"


CHECK = SnapshotCheck(id="oom-snapshot-held-by", title="who holds the memory", run=check_held_by)
