"""What was live at the failure is found again from a snapshot that was taken later."""

from __future__ import annotations

import random

import pytest

from distdoctor.oom.snapshots.at_oom import Moment, moment_of
from distdoctor.oom.snapshots.pools import pool_uses
from distdoctor.oom.snapshots.ranges import Range, with_range, without
from distdoctor.oom.snapshots.read import snapshot_of
from distdoctor.oom.snapshots.timeline import live_over_time
from distdoctor.oom.snapshots.view import views_of
from oom.snapshot_world import GIB, MIB, SnapshotWorld


def moment(world: SnapshotWorld) -> Moment:
    return moment_of(snapshot_of(world.pickled(), path="x.pickle").devices[0])


def essence(found: Moment) -> tuple[object, ...]:
    """What two moments must share. Block sizes of what was freed later are rounded, so requests are compared."""
    live = sorted(
        (each.address, each.requested, each.stream, each.pool, each.is_awaiting_free) for each in found.live
    )
    return live, [(each.start, each.end, each.stream, each.pool) for each in found.ranges]


def run_until_oom(seed: int, *, expandable: bool = False, max_entries: int | None = None) -> SnapshotWorld:
    """Random allocations and frees in two streams and a private pool until memory is out."""
    rnd = random.Random(seed)
    world = SnapshotWorld(total=2 * GIB, outside=0, expandable=expandable, max_entries=max_entries)
    live: list[int] = []
    while True:
        if live and rnd.random() < 0.45:
            address = live.pop(rnd.randrange(len(live)))
            world.free(address, "/job/step.py:9:free", pending=rnd.random() < 0.1)
            continue
        size = rnd.choice([100, 5000, MIB, 3 * MIB, 15 * MIB, 40 * MIB, 130 * MIB])
        stream, pool = rnd.choice([(0, (0, 0)), (0, (0, 0)), (7, (0, 0)), (0, (1, 0))])
        made = world.alloc(size, f"/job/model.py:{size % 97}:forward", stream=stream, pool=pool)
        if made is None:
            return world
        live.append(made)


def unwind(world: SnapshotWorld, seed: int) -> None:
    """What happens while the exception travels: much is freed, something is allocated, the cache is emptied."""
    rnd = random.Random(seed)
    allocated = [
        block.address for each in world.segments for block in each.blocks if block.state == "active_allocated"
    ]
    pending = [
        block.address
        for each in world.segments
        for block in each.blocks
        if block.state == "active_pending_free"
    ]
    for address in pending:
        if rnd.random() < 0.5:
            world.complete(address)
    for address in allocated:
        if rnd.random() < 0.7:
            world.free(address, pending=rnd.random() < 0.1)
    world.release_cached()
    for _ in range(5):
        world.alloc(rnd.choice([MIB, 20 * MIB]), "/job/log.py:1:report")


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_what_came_after_the_failure_is_undone(seed: int, expandable: bool) -> None:
    world = run_until_oom(seed, expandable=expandable)
    at_failure = moment(world)
    assert at_failure.oom is not None
    assert at_failure.num_undone == 0
    unwind(world, seed)
    later = moment(world)
    assert later.num_undone > 0
    assert later.is_exact
    assert essence(later) == essence(at_failure)
    assert later.reserved == at_failure.reserved


@pytest.mark.parametrize("seed", range(6))
def test_a_ring_that_lost_its_beginning_still_gives_the_moment(seed: int) -> None:
    whole, ring = run_until_oom(seed), run_until_oom(seed, max_entries=2500)
    for world in (whole, ring):
        unwind(world, seed)
    assert essence(moment(ring)) == essence(moment(whole))


def test_blocks_older_than_the_history_are_baseline_and_keep_their_stack() -> None:
    world = SnapshotWorld(total=GIB, outside=0, max_entries=40)
    world.alloc(100 * MIB, "/job/old.py:1:build")
    for _ in range(60):
        world.free(world.alloc(MIB, "/job/new.py:2:forward") or 0)
    world.alloc(2 * GIB, "/job/new.py:3:forward")
    found = moment(world)
    (old,) = found.live
    assert old.born is None
    assert old.stack is not None
    assert old.stack.frames[0].filename == "/job/old.py"


def test_the_stack_of_a_block_freed_later_is_that_of_its_allocation() -> None:
    world = SnapshotWorld(total=GIB, outside=0)
    address = world.alloc(100 * MIB, "/job/model.py:1:forward")
    world.alloc(2 * GIB, "/job/model.py:2:forward")
    world.free(address or 0, "/job/clean.py:9:handler")
    (live,) = moment(world).live
    assert live.stack is not None
    assert live.stack.frames[0].filename == "/job/model.py"


def test_the_last_of_several_failures_counts() -> None:
    world = SnapshotWorld(total=GIB, outside=0)
    world.alloc(2 * GIB, "/job/a.py:1:first")
    world.alloc(100 * MIB, "/job/b.py:1:between")
    world.alloc(3 * GIB, "/job/a.py:2:last")
    found = moment(world)
    assert found.num_ooms == 2
    assert found.oom is not None
    assert found.oom.requested == 3 * GIB
    assert found.oom.device_free == world.device_free()
    assert len(found.live) == 1


def test_without_a_failure_the_moment_is_the_snapshots() -> None:
    world = SnapshotWorld()
    world.alloc(100 * MIB, "/job/a.py:1:x")
    found = moment(world)
    assert found.oom is None
    assert found.live_bytes == 100 * MIB


def test_events_that_contradict_the_blocks_are_counted() -> None:
    world = SnapshotWorld(total=GIB, outside=0)
    world.alloc(2 * GIB, "/job/a.py:1:first")
    address = world.alloc(100 * MIB, "/job/b.py:1:after")
    value = world.snapshot()
    value["segments"] = []
    import pickle

    found = moment_of(snapshot_of(pickle.dumps(value), path="x.pickle").devices[0])
    assert address is not None
    assert not found.is_exact


def test_pools_count_what_is_free_and_in_which_pieces() -> None:
    world = SnapshotWorld(total=4 * GIB, outside=0)
    kept = [world.alloc(100 * MIB, "/job/a.py:1:x") for _ in range(3)]
    graph = world.alloc(50 * MIB, "/job/g.py:1:capture", pool=(1, 0))
    for address in (kept[1], graph):
        world.free(address or 0)
    whole = world.alloc(300 * MIB, "/job/a.py:2:x")
    hole = world.alloc(5 * MIB, "/job/a.py:3:x")
    world.free(whole or 0)
    uses = {(each.key.pool, each.key.is_small): each for each in pool_uses(moment(world))}
    own = uses[((0, 0), False)]
    assert hole is not None
    assert own.reserved == 600 * MIB
    assert own.live == 205 * MIB
    assert own.in_pieces == 95 * MIB
    assert own.whole == 300 * MIB
    assert own.largest == 300 * MIB
    assert uses[((1, 0), False)].whole == 50 * MIB
    assert uses[((1, 0), False)].key.is_private


@pytest.mark.parametrize("seed", range(4))
def test_pools_add_up_to_what_torch_itself_counts(seed: int) -> None:
    world = run_until_oom(seed)
    found = moment(world)
    uses = pool_uses(found)
    assert sum(each.reserved for each in uses) == world.reserved() == found.reserved
    assert sum(each.live + each.free for each in uses) == world.reserved()


def test_live_memory_over_time_ends_at_the_moment() -> None:
    world = run_until_oom(3)
    unwind(world, 3)
    (view,) = views_of([snapshot_of(world.pickled(), path="x.pickle")])
    assert view.state.events is not None
    points = live_over_time(view.state.events, view.moment)
    assert len(points) <= 400
    assert points[-1].num_bytes == sum(each.requested or 0 for each in view.moment.live)
    assert points[0].num_bytes < points[-1].num_bytes
    seconds = [each.seconds_before_end or 0 for each in points]
    assert seconds == sorted(seconds, reverse=True)


def expandable(start: int, end: int, stream: int = 0) -> Range:
    return Range(start=start, end=end, stream=stream, pool=(0, 0), is_small=False, is_expandable=True)


def test_a_page_that_was_unmapped_joins_its_segment_again() -> None:
    parts = [expandable(0, 20), expandable(40, 60)]
    assert with_range(parts, expandable(20, 40)) == [expandable(0, 60)]
    assert with_range(parts, expandable(20, 40, stream=9)) == [
        parts[0],
        expandable(20, 40, stream=9),
        parts[1],
    ]


def test_a_page_that_was_mapped_is_cut_out_again() -> None:
    assert without([expandable(0, 60)], 20, 40) == [expandable(0, 20), expandable(40, 60)]
    assert without([expandable(0, 60)], 60, 80) == [expandable(0, 60)]
    assert without([expandable(0, 60)], 0, 60) == []


def test_segments_without_end_are_given_up_and_the_moment_is_inexact(monkeypatch: pytest.MonkeyPatch) -> None:
    from distdoctor.oom.snapshots import at_oom

    world = run_until_oom(1)
    unwind(world, 1)
    monkeypatch.setattr(at_oom, "MAX_LOOKS", 50)
    assert not moment(world).is_exact
