"""Are parameters that should be sharded held whole?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.snapshot.base import (
    SnapshotCheck,
    at,
    evidence,
    not_seen,
    percent,
    place_of,
    scope,
    severity_for,
)
from distdoctor.oom.snapshots.categories import Category
from distdoctor.oom.snapshots.cause import UNSHARDED_SHARE, Cause
from distdoctor.oom.snapshots.holders import Holding, share
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.checking import Found, NotApplicable, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team
from distdoctor.units import format_bytes

# A unit whose gathered parameters are this part of all of them is as good as the whole model. Our own threshold.
ONE_UNIT_SHARE = 0.5

MAX_STACKS = 2


def check_unsharded(view: SnapshotView) -> Sequence[Outcome]:
    """A finding when gathered parameters are a large part of what is in use."""
    if not view.snapshot.has_stacks:
        return [not_seen("no stacks were recorded", how="docs/memory-snapshots.md says how to record them")]
    held = [each for each in view.categories if each.category is Category.UNSHARDED]
    if not held:
        return [NotApplicable(detail="no frame of FSDP or ZeRO-3 gathers parameters among what is in use")]
    live = view.moment.live_bytes
    seen = f"{format_bytes(held[0].num_bytes)} of gathered parameters, {percent(held[0].num_bytes, live)} of what is in use"
    if share(held[0].num_bytes, live) < UNSHARDED_SHARE:
        return [Passed(detail=seen)]
    return [_found(view, held[0])]


def _found(view: SnapshotView, held: Holding) -> Found:
    live = view.moment.live_bytes
    is_one_unit = held.largest >= ONE_UNIT_SHARE * held.num_bytes
    gathers = [each for each in view.stacks if each.category is Category.UNSHARDED][:MAX_STACKS]
    return Found(
        key="one-unit" if is_one_unit else "not-resharded",
        title=f"{place_of(view)}: {format_bytes(held.num_bytes)} of parameters are held whole, not sharded"[
            :80
        ],
        severity=severity_for(view, Cause.UNSHARDED, otherwise=Severity.WARNING),
        # Gathered on purpose (reshard_after_forward=False) looks the same.
        confidence=Confidence.MEDIUM,
        evidence=(
            evidence(
                view,
                f"{format_bytes(held.num_bytes)} in {held.count} blocks of gathered parameters, "
                f"{percent(held.num_bytes, live)} of what is in use, {at(view)}; the largest block {format_bytes(held.largest)}",
                held.num_bytes,
                expected=f"below {UNSHARDED_SHARE:.0%}: the unit that computes and the one fetched ahead",
                expected_source="our own threshold; FSDP frees a unit when its forward or backward is done",
            ),
            *(
                evidence(
                    view,
                    f"{format_bytes(each.num_bytes)} in {each.count} blocks by `{each.label}`",
                    each.num_bytes,
                )
                for each in gathers
            ),
        ),
        explanation=(
            "One gathered buffer makes up most of it: the model is wrapped as few large units, so that gathering one "
            "gathers nearly everything."
            if is_one_unit
            else "Many units are whole at once: parameters are not sharded again after forward "
            "(reshard_after_forward=False, SHARD_GRAD_OP, a large stage3_max_live_parameters), or a hook keeps them."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text=(
                    "wrap each transformer block: `for block in model.layers: fully_shard(block)`, then `fully_shard(model)`; "
                    "with accelerate fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"
                    if is_one_unit
                    else "`fully_shard(..., reshard_after_forward=True)`; FSDP1: FULL_SHARD; DeepSpeed: lower "
                    "stage3_max_live_parameters and stage3_prefetch_bucket_size"
                ),
            ),
        ),
        scope=scope(view),
        cause_class="sharding-ineffective",
        fault=Fault.CONFIG,
    )


CHECK = SnapshotCheck(
    id="oom-snapshot-unsharded", title="parameters held whole under FSDP or ZeRO-3", run=check_unsharded
)
