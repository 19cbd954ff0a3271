"""The allocator that writes snapshots for tests writes what torch's own viewer reads."""

from __future__ import annotations

import pytest

from oom.snapshot_world import GIB, MIB, SnapshotWorld


@pytest.mark.parametrize("expandable", [False, True])
def test_torchs_own_viewer_reads_it_and_counts_the_same(expandable: bool) -> None:
    viewer = pytest.importorskip(
        "torch.cuda._memory_viz", reason="torch, whose viewer this compares with, is absent"
    )
    world = SnapshotWorld(total=2 * GIB, outside=0, expandable=expandable)
    kept = [world.alloc(size * MIB, "/job/model.py:1:forward") for size in (1, 5, 30, 300)]
    world.free(kept[1] or 0)
    world.alloc(3 * GIB, "/job/model.py:2:forward")
    snapshot = world.snapshot()
    # It raises where the sizes of blocks and segments do not add up.
    summary = viewer.segsum(snapshot)
    assert f"total_allocated: {viewer.Bytes(world.allocated())}" in summary
    assert f"total_reserved: {viewer.Bytes(world.reserved())}" in summary
    assert "raise OutOfMemoryError # 3.0GiB requested" in viewer.trace(snapshot)
