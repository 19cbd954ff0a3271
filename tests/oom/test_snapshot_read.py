"""Snapshots of every torch version and of every way to record become the same facts."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pytest

from distdoctor.errors import InputError
from distdoctor.evidence import read_head
from distdoctor.oom.facts.snapshot import BlockState, EventKind, Snapshot
from distdoctor.oom.snapshots.files import snapshots_from_files, sniff_snapshot
from distdoctor.oom.snapshots.names import host_of, rank_of
from distdoctor.oom.snapshots.read import snapshot_of
from distdoctor.oom.snapshots.view import views_of
from oom.snapshot_world import GIB, MIB, SnapshotWorld

STACK = ("/job/model.py:5:forward", "/job/train.py:80:main")


def small_world(**options: object) -> SnapshotWorld:
    world = SnapshotWorld(total=4 * GIB, **options)  # type: ignore[arg-type]
    first = world.alloc(100 * MIB, *STACK)
    world.alloc(300, *STACK)
    world.alloc(30 * MIB, "/job/other.py:7:side", stream=0x55AA)
    pending = world.alloc(12 * MIB, *STACK)
    world.free(first or 0)
    world.free(pending or 0, pending=True)
    return world


def read(world: SnapshotWorld, **options: int) -> Snapshot:
    return snapshot_of(world.pickled(**options), path="snapshot.pickle")


@pytest.mark.parametrize("torch", [(1, 13), (2, 1), (2, 6), (2, 13)])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_segments_blocks_and_events_are_read(torch: tuple[int, int], protocol: int) -> None:
    world = small_world(torch=torch)
    snapshot = read(world, protocol=protocol)
    (device,) = snapshot.devices
    assert sum(each.total_size for each in device.segments) == world.reserved()
    states = [block.state for each in device.segments for block in each.blocks]
    assert states.count(BlockState.ALLOCATED) == 2
    assert states.count(BlockState.AWAITING_FREE) == 1
    assert {each.stream for each in device.segments} == {0, 0x55AA}
    assert device.events is not None
    kinds = list(device.events.kinds)
    assert kinds.count(EventKind.ALLOC) == 4
    assert kinds.count(EventKind.FREE_COMPLETED) == 1
    assert snapshot.has_stacks
    stack = device.events.stack(1)
    assert stack is not None
    assert [(each.filename, each.line, each.name) for each in stack.frames] == [
        ("/job/model.py", 5, "forward"),
        ("/job/train.py", 80, "main"),
    ]
    requested = {block.requested for each in device.segments for block in each.blocks if block.stack}
    assert requested == {300, 30 * MIB, 12 * MIB}


def test_what_old_versions_lack_is_none_and_not_zero() -> None:
    snapshot = read(small_world(torch=(1, 13)))
    assert {each.pool for each in snapshot.devices[0].segments} == {None}
    assert snapshot.settings.expandable_segments is None
    events = snapshot.devices[0].events
    assert events is not None
    assert set(events.times_us) == {-1}
    assert events.pool(0) is None


def test_settings_are_read() -> None:
    settings = read(small_world(expandable=True)).settings
    assert settings.text == "expandable_segments:True"
    assert settings.expandable_segments is True
    assert settings.max_split_size is None


def test_history_of_the_state_alone_has_blocks_with_stacks_and_no_events() -> None:
    snapshot = read(small_world(history="state"))
    assert snapshot.devices[0].events is None
    assert snapshot.has_stacks


def test_without_stacks_and_history_sizes_are_still_read() -> None:
    snapshot = read(small_world(history=None, stacks=False))
    assert not snapshot.has_stacks
    assert views_of([snapshot])[0].moment.live_bytes == 512 + 42 * MIB


def test_each_device_has_its_own_segments_and_events() -> None:
    world = small_world()
    world.alloc(64 * MIB, *STACK, device=2)
    snapshot = read(world)
    assert [each.device for each in snapshot.devices] == [0, 2]
    events = snapshot.devices[1].events
    assert events is not None
    assert len(events) == 2


def test_a_bare_list_of_segments_is_a_snapshot_without_history() -> None:
    data = pickle.dumps(small_world().snapshot()["segments"])
    snapshot = snapshot_of(data, path="x.pickle")
    assert snapshot.devices[0].events is None
    assert len(snapshot.devices[0].segments) == 4


def test_a_file_cut_in_its_history_still_gives_the_blocks() -> None:
    world = small_world()
    for _ in range(200):
        world.alloc(MIB, *STACK)
    data = world.pickled()
    cut = data[: data.rindex(b"allocator_settings") - 500]
    snapshot = snapshot_of(cut, path="x.pickle")
    assert snapshot.is_cut
    assert snapshot.devices[0].events is None
    assert sum(each.total_size for each in snapshot.devices[0].segments) == world.reserved()
    assert "cut off" in snapshot.notes[0]


def test_a_file_cut_in_its_segments_is_refused() -> None:
    with pytest.raises(InputError, match="ends before its first list does"):
        snapshot_of(small_world().pickled()[:200], path="x.pickle")


def test_events_of_an_unknown_kind_are_kept_and_told() -> None:
    value = small_world().snapshot()
    value["device_traces"][0].append({"action": "workspace_snapshot", "addr": 1, "size": 2, "stream": 0})
    value["device_traces"][0].append({"action": "alloc"})
    snapshot = snapshot_of(pickle.dumps(value), path="x.pickle")
    events = snapshot.devices[0].events
    assert events is not None
    assert list(events.kinds)[-2:] == [EventKind.OTHER, EventKind.OTHER]
    assert "2 events are of a kind that is unknown here" in snapshot.notes[0]


def test_stacks_longer_than_a_batch_and_without_python_are_read() -> None:
    world = SnapshotWorld()
    deep = tuple(f"/job/deep.py:{line}:recurse" for line in range(2500))
    for _ in range(3):
        world.alloc(MIB, *deep)
    snapshot = read(world)
    events = snapshot.devices[0].events
    assert events is not None
    for index in range(1, len(events)):
        stack = events.stack(index)
        assert stack is not None
        assert [each.line for each in stack.frames] == list(range(2500))


def test_equal_stacks_are_one_object() -> None:
    world = SnapshotWorld()
    for _ in range(50):
        world.alloc(MIB, *STACK)
    snapshot = read(world)
    events = snapshot.devices[0].events
    assert events is not None
    assert len(events.stacks_by_number) == 1


# --- files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_snapshot_is_recognised_by_its_first_bytes(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    small_world().write(path, protocol=protocol)
    assert sniff_snapshot(str(path), read_head(str(path))) > 0.9
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert sniff_snapshot(str(path), read_head(str(path))) > 0.9


def test_a_bare_list_is_recognised() -> None:
    data = pickle.dumps(small_world().snapshot()["segments"])
    assert sniff_snapshot("x", data) > 0.8


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b'{"segments": [], "device_traces": []}',
        b"CUDA out of memory, see segments",
        pickle.dumps({"version": "2.10", "entries": []}),
        b"PK\x03\x04",
    ],
)
def test_other_files_are_not_taken(head: bytes) -> None:
    assert sniff_snapshot("x.pickle", head) == 0.0


def test_a_zip_named_as_a_snapshot_is_taken_so_that_it_can_be_told() -> None:
    assert 0 < sniff_snapshot("rank0_memory_snapshot.pickle", b"PK\x03\x04") < 0.5


def test_one_bad_file_does_not_cost_the_others(tmp_path: Path) -> None:
    good = small_world().write(tmp_path / "rank0_memory_snapshot.pickle")
    (tmp_path / "rank1_memory_snapshot.pickle").write_bytes(b"PK\x03\x04")
    packed = tmp_path / "rank2_memory_snapshot.pickle.gz"
    packed.write_bytes(gzip.compress(small_world().pickled()))
    snapshots, files = snapshots_from_files(
        [good, str(tmp_path / "rank1_memory_snapshot.pickle"), str(packed)]
    )
    assert [each.rank for each in snapshots] == [0, 2]
    assert [each.read for each in files] == [True, False, True]
    assert "zip archive" in str(files[1].why_not)
    assert files[0].sha256 is not None


def test_only_bad_files_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        snapshots_from_files([str(tmp_path / "none.pickle")])


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3_memory_snapshot.pickle", 3),
        ("snapshot_rank_12.pickle", 12),
        ("memory-Rank-0007.pickle", 7),
        ("snap.r5.pickle", 5),
        ("out/rank_3/snapshot.pickle", 3),
        ("frank3.pickle", None),
        ("rank3_to_rank4.pickle", None),
        ("snapshot.pickle", None),
    ],
)
def test_the_rank_is_read_from_names(name: str, rank: int | None) -> None:
    assert rank_of(name) == rank


def test_the_host_is_read_from_names_of_the_recipe() -> None:
    assert host_of("gpu-node-17_Aug_04_10_31_02.pickle") == "gpu-node-17"
    assert host_of("snapshot.pickle") is None
