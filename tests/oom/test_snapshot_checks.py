"""Each check of a snapshot: where it fires, where it stays silent, and where data is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distdoctor.oom.checks.snapshot.all import SNAPSHOT_CHECKS
from distdoctor.oom.snapshots.cause import Cause, cause_of
from distdoctor.oom.snapshots.changes import changes
from distdoctor.oom.snapshots.findings import snapshot_findings
from distdoctor.oom.snapshots.pictures import snapshot_series
from distdoctor.oom.snapshots.read import snapshot_of
from distdoctor.oom.snapshots.tables import snapshot_tables
from distdoctor.oom.snapshots.view import SnapshotView, views_of
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.report.model import Confidence, Severity
from oom.snapshot_world import GIB, MIB, SnapshotWorld

T = "/opt/venv/lib/python3.11/site-packages/torch/"
MODULE = f"{T}nn/modules/module.py:1762:_call_impl"
TRAIN = ("/job/train.py:210:train_step",)
FORWARD = (f"{T}nn/modules/linear.py:134:forward", MODULE, "/job/model.py:88:forward", MODULE, *TRAIN)
LOSS = (f"{T}nn/functional.py:3500:cross_entropy", *TRAIN)
ADAM_STATE = (f"{T}optim/adam.py:173:_init_group", f"{T}optim/adam.py:238:step", *TRAIN)
ADAM_STEP = (f"{T}optim/adam.py:690:_multi_tensor_adam", *TRAIN)
ZERO_GRAD = (f"{T}optim/optimizer.py:1040:zero_grad", *TRAIN)
GATHER = (
    f"{T}distributed/fsdp/_fully_shard/_fsdp_param.py:827:alloc_all_gather_outputs",
    f"{T}distributed/fsdp/_fully_shard/_fsdp_param_group.py:340:wait_for_unshard",
    MODULE,
    *TRAIN,
)
BUILD = (f"{T}nn/modules/module.py:930:_apply", f"{T}nn/modules/module.py:1210:to", "/job/train.py:20:build")


def view(
    world: SnapshotWorld, *, path: str = "rank3_snapshot.pickle", capacity: int | None = None
) -> SnapshotView:
    (only,) = views_of([snapshot_of(world.pickled(), path=path)], capacity_bytes=capacity)
    return only


def outcome(check_id: str, found: SnapshotView) -> Outcome:
    (check,) = (each for each in SNAPSHOT_CHECKS if each.id == f"oom-snapshot-{check_id}")
    (only,) = check.run(found)
    return only


def world_of(total: int = 8 * GIB, **options: object) -> SnapshotWorld:
    return SnapshotWorld(total=total, outside=0, **options)  # type: ignore[arg-type]


def full(**options: object) -> SnapshotWorld:
    """Simply full: 7 GiB of activations and states in use, one more request."""
    world = world_of(**options)
    for _ in range(40):
        world.alloc(64 * MIB, *ADAM_STATE)
    world.fill(128 * MIB, *FORWARD, leave=500 * MIB)
    world.alloc(600 * MIB, *FORWARD)
    return world


def fragmented(**options: object) -> SnapshotWorld:
    """Every second block freed: 4 GiB free, in pieces of 50 MiB."""
    world = world_of(**options)
    first = [world.alloc(100 * MIB, *FORWARD) for _ in range(80)]
    for address in first:
        world.free(address or 0)
    halves = []
    for _ in range(80):
        halves.append((world.alloc(50 * MIB, *FORWARD), world.alloc(50 * MIB, *FORWARD)))
    for _, second in halves:
        world.free(second or 0)
    world.alloc(GIB, *FORWARD)
    return world


def graph_pool() -> SnapshotWorld:
    """Half of the memory belongs to a graph's private pool and is free there."""
    world = world_of()
    held = [world.alloc(512 * MIB, f"{T}cuda/graphs.py:150:capture", pool=(1, 0)) for _ in range(8)]
    for address in held:
        world.free(address or 0)
    world.fill(128 * MIB, *FORWARD, leave=128 * MIB)
    world.alloc(GIB, *FORWARD)
    return world


def training(steps: int, *, leak: int = 0, total: int = 8 * GIB, micro_batches: int = 4) -> SnapshotWorld:
    """A training loop; each step may leave `leak` bytes behind."""
    world = world_of(total)
    for _ in range(10):
        world.alloc(32 * MIB, *BUILD)
    states: list[int | None] = []
    for _ in range(steps):
        kept = []
        for _ in range(micro_batches):
            kept += [world.alloc(16 * MIB, *FORWARD) for _ in range(6)]
            kept.append(world.alloc(24 * MIB, *LOSS))
        if leak:
            world.alloc(leak, "/job/metrics.py:12:forward", "/job/train.py:215:log")
        for address in kept:
            world.free(address or 0)
        if not states:
            states = [world.alloc(64 * MIB, *ADAM_STATE) for _ in range(10)]
        temporary = world.alloc(32 * MIB, *ADAM_STEP)
        world.free(temporary or 0)
    return world


# --- request ----------------------------------------------------------------------------------------------------


def test_a_request_larger_than_everything_is_told() -> None:
    world = world_of()
    world.alloc(GIB, *FORWARD)
    world.alloc(9 * GIB, *LOSS)
    found = outcome("request", view(world))
    assert isinstance(found, Found)
    assert found.cause_class == "single-request>capacity"
    assert found.severity is Severity.CRITICAL
    assert "9 GiB" in found.title
    assert "8 GiB" in found.title
    assert found.scope.ranks == (3,)


def test_a_request_that_failed_beside_free_memory_is_told() -> None:
    world = world_of()
    world.alloc(GIB, *FORWARD)
    world._record(0, "oom", world.device_free(), 100 * MIB, 0, (0, 0), world.frames(FORWARD))
    found = outcome("request", view(world))
    assert isinstance(found, Found)
    assert found.cause_class == "not-capacity"
    assert found.confidence is not Confidence.HIGH


def test_an_ordinary_request_passes() -> None:
    assert isinstance(outcome("request", view(full())), Passed)


def test_without_a_failure_the_request_is_not_seen() -> None:
    world = world_of()
    world.alloc(GIB, *FORWARD)
    assert isinstance(outcome("request", view(world)), NotSeen)


# --- fragmentation --------------------------------------------------------------------------------------------------


def test_free_memory_in_pieces_is_fragmentation() -> None:
    seen = view(fragmented())
    found = outcome("fragmentation", seen)
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert found.confidence is Confidence.HIGH
    assert found.cause_class == "fragmentation"
    assert "50 MiB" in found.title
    assert any("expandable_segments:True" in str(each.command) for each in found.actions)


def test_expandable_segments_are_not_advised_where_they_are_on() -> None:
    found = outcome("fragmentation", view(fragmented(expandable=True)))
    assert isinstance(found, Found)
    assert not any(each.command for each in found.actions)


def test_memory_in_use_is_no_fragmentation() -> None:
    assert isinstance(outcome("fragmentation", view(full())), Passed)


def kept_whole(split_limit: int | None) -> SnapshotWorld:
    """A free piece of 1.7 GiB, and a request of 500 MiB that did not get it."""
    world = world_of(total=2 * GIB + 200 * MIB, split_limit=split_limit)
    held = world.alloc(2 * GIB, *FORWARD)
    world.alloc(100 * MIB, *FORWARD)
    world.free(held or 0)
    world.alloc(300 * MIB, *FORWARD)
    world._record(0, "oom", world.device_free(), 500 * MIB, 0, (0, 0), world.frames(FORWARD))
    return world


def test_a_piece_that_may_not_be_split_is_told() -> None:
    found = outcome("fragmentation", view(kept_whole(512 * MIB)))
    assert isinstance(found, Found)
    assert found.key == "kept-whole"
    assert found.severity is Severity.CRITICAL


def test_a_large_piece_that_nothing_explains_is_not_judged() -> None:
    seen = view(kept_whole(None))
    assert isinstance(outcome("fragmentation", seen), NotSeen)
    held = outcome("held-by", seen)
    assert isinstance(held, Found)
    assert held.confidence is Confidence.LOW


def test_without_a_failure_fragmentation_is_not_judged() -> None:
    world = world_of()
    world.alloc(GIB, *FORWARD)
    assert isinstance(outcome("fragmentation", view(world)), NotSeen)


# --- other pools ----------------------------------------------------------------------------------------------------


def test_free_memory_of_a_private_pool_is_told() -> None:
    seen = view(graph_pool())
    found = outcome("other-pool", seen)
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert found.key == "private"
    assert any("private pool 1.0" in each.text for each in found.evidence)


def test_free_memory_of_another_stream_is_told() -> None:
    world = world_of()
    side = [world.alloc(400 * MIB, *FORWARD, stream=9) for _ in range(8)]
    for address in side:
        world.free(address or 0)
    for _ in side:
        # What shares a segment with something in use is not given back at the failure.
        world.alloc(250 * MIB, *FORWARD, stream=9)
    world.fill(128 * MIB, *FORWARD, leave=128 * MIB)
    world.alloc(GIB, *FORWARD)
    found = outcome("other-pool", view(world))
    assert isinstance(found, Found)
    assert found.key == "stream"
    assert any("stream 0x9" in each.text for each in found.evidence)


def test_no_other_pool_passes() -> None:
    assert isinstance(outcome("other-pool", view(full())), Passed)


def test_without_a_failure_other_pools_are_not_judged() -> None:
    world = world_of()
    world.alloc(GIB, *FORWARD)
    assert isinstance(outcome("other-pool", view(world)), NotSeen)


# --- outside ----------------------------------------------------------------------------------------------------------


def test_memory_held_outside_torch_is_told_when_the_device_is_known() -> None:
    world = SnapshotWorld(total=80 * GIB, outside=40 * GIB)
    world.fill(GIB, *FORWARD, leave=GIB)
    world.alloc(2 * GIB, *FORWARD)
    seen = view(world, capacity=80 * GIB)
    found = outcome("outside", seen)
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert "40 GiB" in found.title
    assert isinstance(outcome("outside", view(world)), NotSeen)


def test_a_context_of_its_own_passes() -> None:
    world = SnapshotWorld(total=80 * GIB, outside=2 * GIB)
    world.alloc(79 * GIB, *FORWARD)
    assert isinstance(outcome("outside", view(world, capacity=80 * GIB)), Passed)


# --- leak ---------------------------------------------------------------------------------------------------------------


def test_memory_that_every_step_leaves_behind_is_a_leak() -> None:
    found = outcome("leak", view(training(12, leak=100 * MIB)))
    assert isinstance(found, Found)
    assert "100 MiB stay behind each step" in found.title
    assert "metrics.py:12 forward" in found.evidence[0].text
    assert found.confidence is Confidence.HIGH
    assert found.severity is Severity.WARNING


def test_a_leak_that_filled_the_memory_is_the_cause() -> None:
    world = training(20, leak=200 * MIB)
    world.alloc(6 * GIB, *FORWARD)
    seen = view(world)
    assert cause_of(seen) is Cause.GROWN
    found = outcome("leak", seen)
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert found.cause_class == "capacity:leak"


def test_a_clean_loop_is_no_leak() -> None:
    passed = outcome("leak", view(training(12)))
    assert isinstance(passed, Passed)
    assert "11 steps" in passed.detail


def test_what_a_pipeline_holds_within_one_step_is_no_leak() -> None:
    world = training(5)
    for _ in range(32):
        world.alloc(64 * MIB, *FORWARD)
    assert isinstance(outcome("leak", view(world)), Passed)


def test_one_step_is_too_little_to_tell_a_leak() -> None:
    assert isinstance(outcome("leak", view(training(1, leak=100 * MIB))), NotSeen)


def test_without_history_a_leak_is_not_seen() -> None:
    world = world_of(history="state")
    world.alloc(GIB, *FORWARD)
    assert isinstance(outcome("leak", view(world)), NotSeen)


# --- unsharded ------------------------------------------------------------------------------------------------------------


def test_many_units_held_whole_are_told() -> None:
    world = world_of()
    for _ in range(30):
        world.alloc(100 * MIB, *GATHER)
    world.alloc(GIB, *FORWARD)
    world.alloc(9 * GIB // 2, *FORWARD)
    seen = view(world)
    found = outcome("unsharded", seen)
    assert cause_of(seen) is Cause.UNSHARDED
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert found.key == "not-resharded"
    assert found.cause_class == "sharding-ineffective"


def test_one_unit_that_is_the_model_is_told() -> None:
    world = world_of()
    world.alloc(3 * GIB, *GATHER)
    world.alloc(100 * MIB, *GATHER)
    world.alloc(GIB, *FORWARD)
    found = outcome("unsharded", view(world))
    assert isinstance(found, Found)
    assert found.key == "one-unit"
    assert found.severity is Severity.WARNING


def test_two_units_of_many_pass() -> None:
    world = world_of()
    for _ in range(2):
        world.alloc(100 * MIB, *GATHER)
    world.alloc(3 * GIB, *FORWARD)
    assert isinstance(outcome("unsharded", view(world)), Passed)


def test_a_job_without_sharding_is_not_judged_for_it() -> None:
    assert isinstance(outcome("unsharded", view(full())), NotApplicable)


def test_without_stacks_sharding_is_not_seen() -> None:
    assert isinstance(outcome("unsharded", view(full(stacks=False))), NotSeen)


# --- held by --------------------------------------------------------------------------------------------------------------


def test_memory_in_use_is_told_by_its_holders() -> None:
    seen = view(full(), capacity=8 * GIB)
    found = outcome("held-by", seen)
    assert cause_of(seen) is Cause.CAPACITY
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert found.cause_class == "capacity:activations"
    assert "activations" in found.title
    assert any("model.py:88 forward" in each.text for each in found.evidence)


def test_who_asked_names_the_cause_before_who_holds() -> None:
    world = full()
    world.alloc(600 * MIB, *LOSS)
    found = outcome("held-by", view(world, capacity=8 * GIB))
    assert isinstance(found, Found)
    assert found.cause_class == "capacity:logits"
    world.alloc(600 * MIB, *ADAM_STEP)
    found = outcome("held-by", view(world, capacity=8 * GIB))
    assert isinstance(found, Found)
    assert found.cause_class == "optimizer-step:foreach"


def test_without_a_failure_holders_are_for_information() -> None:
    world = world_of()
    world.alloc(GIB, *FORWARD)
    found = outcome("held-by", view(world))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert found.cause_class is None


def test_mostly_unknown_memory_lowers_the_confidence() -> None:
    world = world_of()
    world.fill(128 * MIB, "/job/strange.py:1:main", leave=500 * MIB)
    world.alloc(600 * MIB, "/job/strange.py:1:main")
    found = outcome("held-by", view(world, capacity=8 * GIB))
    assert isinstance(found, Found)
    assert found.confidence is Confidence.MEDIUM
    assert found.cause_class == "capacity"


def test_without_stacks_holders_are_not_seen() -> None:
    assert isinstance(outcome("held-by", view(full(stacks=False))), NotSeen)


def test_an_empty_device_has_no_holders() -> None:
    world = world_of()
    world.free(world.alloc(GIB, *FORWARD) or 0)
    assert isinstance(outcome("held-by", view(world)), NotApplicable)


# --- history ----------------------------------------------------------------------------------------------------------------


def test_a_complete_record_passes() -> None:
    assert isinstance(outcome("no-history", view(full())), Passed)


@pytest.mark.parametrize(
    ("options", "lacking"),
    [
        ({"history": "state"}, "a history or the failure"),
        ({"history": None, "stacks": False}, "a history, stacks or the failure"),
        ({"stacks": False}, "stacks"),
    ],
)
def test_what_was_not_recorded_is_told_with_the_line_that_records_it(
    options: dict[str, object], lacking: str
) -> None:
    found = outcome("no-history", view(full(**options)))
    assert isinstance(found, Found)
    assert lacking in found.title
    assert "_record_memory_history(" in str(found.actions[0].command)
    assert found.severity is Severity.INFO


# --- all together ---------------------------------------------------------------------------------------------------------


WORLDS: dict[str, tuple[Callable[[], SnapshotWorld], str]] = {
    "full": (full, "oom-snapshot-held-by"),
    "fragmented": (fragmented, "oom-snapshot-fragmentation"),
    "graph pool": (graph_pool, "oom-snapshot-other-pool"),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_failure_has_exactly_one_critical_finding(name: str) -> None:
    make, check_id = WORLDS[name]
    findings, _, _ = snapshot_findings([view(make())])
    assert [each.id for each in findings if each.severity is Severity.CRITICAL] == [check_id]
    assert findings[0].severity is Severity.CRITICAL


def test_titles_fit_a_line_and_name_the_rank() -> None:
    for make, _ in WORLDS.values():
        findings, _, _ = snapshot_findings([view(make(), path="rank1234_memory_snapshot.pickle")])
        for each in findings:
            assert len(each.title) <= 80, each.title
            assert "rank 1234" in each.title


def test_equal_findings_of_many_ranks_are_one_and_the_first_failure_leads() -> None:
    views = []
    for rank in range(6):
        world = full()
        if rank == 4:
            world.clock_us -= 10**9
            for trace in world.traces.values():
                for event in trace:
                    event["time_us"] -= 10**9
        views.append(view(world, path=f"rank{rank}_snapshot.pickle"))
    findings, _, results = snapshot_findings(views)
    (held,) = (each for each in findings if each.id == "oom-snapshot-held-by")
    assert held.scope.ranks == (0, 1, 2, 3, 4, 5)
    assert "rank 4" in held.title
    assert len(results) == len(SNAPSHOT_CHECKS)


def test_tables_hold_the_same_sums_as_the_findings() -> None:
    seen = view(full())
    by_category, by_stack, pools = snapshot_tables([seen])
    total = seen.moment.live_bytes / GIB
    assert by_category.name == "oom-live-by-category"
    assert by_stack.name == "oom-live-by-stack"
    assert pools.name == "oom-pools"
    assert sum(float(row[2] or 0) for row in by_category.rows) == pytest.approx(total, abs=0.01)
    assert sum(float(row[3] or 0) for row in by_stack.rows) == pytest.approx(total, abs=0.01)
    assert sum(float(row[3] or 0) for row in pools.rows) == pytest.approx(total, abs=0.01)
    assert "at the failure" in by_category.title


def test_pictures_end_at_the_failure() -> None:
    bars, line = snapshot_series([view(full())])
    assert bars.kind == "bars"
    assert line.kind == "lines"
    assert len(line.x) <= 400
    assert "before the failure" in line.x_label
    assert line.values[0][-1] == max(each or 0 for each in line.values[0])


def test_no_views_give_no_tables_and_no_pictures() -> None:
    assert snapshot_tables([]) == ()
    assert snapshot_series([]) == ()


def test_changes_show_what_grew_by_purpose_and_place() -> None:
    small, large = training(4), training(4, leak=50 * MIB)
    by_category, by_stack = changes([view(small)], [view(large)])
    assert any("metrics.py forward" in str(row[1]) and float(row[4] or 0) > 0.19 for row in by_stack.rows)
    assert len(by_category.rows) == 1


def test_changes_need_the_same_rank_in_both() -> None:
    pair = [view(full(), path="rank0_s.pickle"), view(full(), path="rank1_s.pickle")]
    assert changes(pair, [view(full(), path="rank7_s.pickle")]) == ()
    assert len(changes(pair, pair)) == 2


def test_memory_without_a_name_that_one_line_holds_is_named_by_the_line() -> None:
    world = world_of()
    for _ in range(8):
        world.alloc(128 * MIB, *BUILD)
    world.fill(128 * MIB, "/job/cache.py:61:remember", leave=100 * MIB)
    assert world.alloc(200 * MIB, "/job/cache.py:61:remember") is None
    found = outcome("held-by", view(world))
    assert isinstance(found, Found)
    assert "cache.py:61 remember" in found.title


def test_a_gpu_of_no_usual_size_may_be_shared() -> None:
    """28 of 80 GiB: who holds the rest is not in a snapshot."""
    world = SnapshotWorld(total=80 * GIB, outside=52 * GIB)
    for _ in range(16):
        world.alloc(GIB, *BUILD)
    world.fill(500 * MIB, *FORWARD, leave=500 * MIB)
    assert world.alloc(800 * MIB, *FORWARD) is None
    found = outcome("held-by", view(world))
    assert isinstance(found, Found)
    assert (found.cause_class, found.confidence) == ("capacity", Confidence.LOW)
    assert "something else held the rest" in found.explanation
    told = outcome("outside", view(world, capacity=80 * GIB))
    assert isinstance(told, Found)
    alone = SnapshotWorld(total=80 * GIB, outside=GIB)
    alone.fill(GIB, *FORWARD, leave=GIB)
    assert alone.alloc(2 * GIB, *FORWARD) is None
    held = outcome("held-by", view(alone))
    assert isinstance(held, Found)
    assert "something else" not in held.explanation


def test_a_gpu_smaller_than_any_usual_one_may_be_shared_too() -> None:
    """8 GiB: a card that nobody trains on, or what others left of a larger one."""
    found = outcome("held-by", view(full()))
    assert isinstance(found, Found)
    assert (found.cause_class, found.confidence) == ("capacity", Confidence.LOW)


def test_a_gpu_whose_size_was_told_keeps_the_class_of_its_holder() -> None:
    world = SnapshotWorld(total=79 * GIB, outside=GIB)
    world.fill(500 * MIB, *FORWARD, leave=500 * MIB)
    assert world.alloc(800 * MIB, *FORWARD) is None
    for capacity in (None, 79 * GIB):
        found = outcome("held-by", view(world, capacity=capacity))
        assert isinstance(found, Found)
        assert (found.cause_class, found.confidence) == ("capacity:activations", Confidence.HIGH)
