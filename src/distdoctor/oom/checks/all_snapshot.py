"""Checks of memory snapshots, in the order in which a reader wants them."""

from __future__ import annotations

from distdoctor.oom.checks import (
    snapshot_fragmentation,
    snapshot_held_by,
    snapshot_history,
    snapshot_leak,
    snapshot_other_pool,
    snapshot_outside,
    snapshot_request,
    snapshot_unsharded,
)
from distdoctor.oom.checks.snapshot_base import SnapshotCheck

SNAPSHOT_CHECKS: tuple[SnapshotCheck, ...] = (
    snapshot_request.CHECK,
    snapshot_fragmentation.CHECK,
    snapshot_other_pool.CHECK,
    snapshot_outside.CHECK,
    snapshot_leak.CHECK,
    snapshot_unsharded.CHECK,
    snapshot_held_by.CHECK,
    snapshot_history.CHECK,
)
