"""Checks of memory snapshots, in the order in which a reader wants them."""

from __future__ import annotations

from distdoctor.oom.checks.snapshot import (
    fragmentation,
    held_by,
    history,
    leak,
    other_pool,
    outside,
    request,
    unsharded,
)
from distdoctor.oom.checks.snapshot.base import SnapshotCheck

SNAPSHOT_CHECKS: tuple[SnapshotCheck, ...] = (
    request.CHECK,
    fragmentation.CHECK,
    other_pool.CHECK,
    outside.CHECK,
    leak.CHECK,
    unsharded.CHECK,
    held_by.CHECK,
    history.CHECK,
)
