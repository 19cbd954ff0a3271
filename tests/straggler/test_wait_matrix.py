"""Own excess by rank and step out of times in collectives, on simulated jobs whose slow rank is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from distdoctor.straggler.analysis.collectives.arrivals import arrivals_of
from distdoctor.straggler.analysis.collectives.late_groups import LateGroup, late_groups
from distdoctor.straggler.analysis.collectives.links import slow_links
from distdoctor.straggler.analysis.collectives.match import match
from distdoctor.straggler.analysis.collectives.wait_matrix import WaitMatrix, wait_matrix
from distdoctor.straggler.facts.collectives import CollectiveTimings, Group
from distdoctor.straggler.facts.places import Place
from straggler.simulated_mesh import Mesh, Recorded

# A step of the usual mesh: eleven stretches of own work of 1,000 us. A rank at 1.2 loses 2.2 ms a step.
LOST_MS = 2.2


def matrix_of(timings: CollectiveTimings) -> WaitMatrix:
    matrix = wait_matrix(timings)
    assert matrix is not None
    return matrix


def late_by(timings: CollectiveTimings) -> NDArray[np.float32]:
    """Median over steps."""
    return np.asarray(np.nanmedian(matrix_of(timings).late_ms, axis=1))


def groups_of(timings: CollectiveTimings) -> tuple[LateGroup, ...]:
    matched = match(timings)
    assert matched is not None
    return late_groups(matrix_of(timings), matched)


@pytest.mark.parametrize(("dp", "tp"), [(8, 4), (8, 2), (4, 8), (2, 8), (40, 2), (8, 1)])
def test_a_slow_rank_alone_has_own_excess_through_nested_groups(dp: int, tp: int) -> None:
    late = late_by(Mesh(dp=dp, tp=tp, slow={5: 1.2}).run())

    # What the others lose by noise they wait for one another, not for it.
    assert late[5] == pytest.approx(LOST_MS, rel=0.06)
    assert np.delete(late, 5).max() < 0.05 * LOST_MS


def test_the_mates_of_a_slow_rank_are_not_late_although_they_come_late_to_outer_collectives() -> None:
    timings = Mesh(slow={5: 1.2}).run()

    assert late_by(timings)[[4, 6, 7]].max() < 0.05 * LOST_MS
    assert groups_of(timings) == ()


def test_two_slow_ranks_of_different_groups_are_both_seen() -> None:
    late = late_by(Mesh(slow={5: 1.2, 17: 1.1}).run())

    assert late[5] == pytest.approx(LOST_MS, rel=0.06)
    assert late[17] == pytest.approx(LOST_MS / 2, rel=0.1)
    assert np.delete(late, [5, 17]).max() < 0.05 * LOST_MS


def test_in_an_even_job_nobody_has_own_excess() -> None:
    timings = Mesh().run()

    assert np.abs(late_by(timings)).max() < 0.05 * LOST_MS
    assert groups_of(timings) == ()


def test_a_slow_link_gives_no_rank_own_excess() -> None:
    """All of its ranks come late to the outer collective: what they lost is transfer, not work of their own."""
    timings = Mesh(slow_tp_links={2: 4.0}).run()

    assert np.abs(late_by(timings)).max() < 0.05
    assert groups_of(timings) == ()


def test_a_group_that_is_late_as_a_whole_is_named_with_its_host() -> None:
    (group,) = groups_of(Mesh(slow=dict.fromkeys(range(8, 12), 1.2), gpus_per_host=4).run())

    assert (group.names, group.ranks, group.hosts) == (("tp2",), (8, 9, 10, 11), ("node-2",))
    assert group.late_ms == pytest.approx(LOST_MS, rel=0.06)


def test_a_late_group_with_one_rank_later_still_is_not_told_as_a_group() -> None:
    assert groups_of(Mesh(slow={8: 1.5, 9: 1.1, 10: 1.1, 11: 1.1}).run()) == ()


def test_where_inner_collectives_are_not_recorded_coordinates_tell_the_group() -> None:
    timings = Mesh(slow={5: 1.2}, record_tp=False).run()
    places = tuple(
        replace(place, coords={"dp": place.rank // 4, "tp": place.rank % 4}) for place in timings.places
    )
    (group,) = groups_of(replace(timings, places=places))

    assert (group.names, group.ranks) == (("tp of ranks 4-7",), (4, 5, 6, 7))
    assert group.late_ms > 1.5


def test_waiting_is_measured_and_the_slow_rank_waits_least() -> None:
    matrix = matrix_of(Mesh(slow={5: 1.2}).run())
    wait = np.nanmedian(matrix.wait_ms, axis=1)

    assert wait.argmin() == 5
    assert wait[5] < 0.05
    # Its mates wait inside, all others outside; 1 % of noise adds some.
    assert np.delete(wait, 5).min() > 0.95 * LOST_MS


def test_steps_are_those_of_the_evidence() -> None:
    timings = Mesh(steps=30).run()
    matrix = matrix_of(replace(timings, step=timings.step + 100))

    assert matrix.steps_known
    assert matrix.steps.tolist() == list(range(100, 130))
    assert matrix.late_ms.shape == (32, 30)
    assert matrix.ranks == tuple(range(32))


def test_without_steps_windows_stand_for_them_and_the_words_say_so() -> None:
    matrix = matrix_of(Mesh(steps=40, slow={5: 1.2}, tell_steps=False).run())

    assert not matrix.steps_known
    assert matrix.late_ms.shape == (32, 40)
    assert "40 windows of about 11 consecutive collectives" in matrix.basis
    assert np.nanmedian(matrix.late_ms, axis=1)[5] == pytest.approx(LOST_MS, rel=0.06)


def test_windows_are_many_but_not_too_many() -> None:
    assert matrix_of(Mesh(steps=30, layers=4, tell_steps=False).run()).late_ms.shape[1] == 30
    assert matrix_of(Mesh(dp=4, tp=1, steps=150, layers=2, tell_steps=False).run()).late_ms.shape[1] == 150
    assert matrix_of(Mesh(dp=2, tp=2, steps=700, layers=1, tell_steps=False).run()).late_ms.shape[1] == 200
    assert matrix_of(Mesh(dp=4, tp=1, steps=3, layers=2, tell_steps=False).run()).late_ms.shape[1] == 6


def test_a_rank_without_a_file_costs_the_waiting_and_not_the_comparison() -> None:
    timings = Mesh(slow={5: 1.2}).run()
    matrix = matrix_of(_rows(timings, timings.rank != 6))
    late = dict(zip(matrix.ranks, np.nanmedian(matrix.late_ms, axis=1), strict=True))

    assert 6 not in late
    assert late.pop(5) == pytest.approx(LOST_MS, rel=0.06)
    assert max(late.values()) < 0.05 * LOST_MS
    assert any("lack ranks" in note and "lower bound" in note for note in matrix.notes)


def test_a_rank_that_lacks_collectives_of_some_steps_is_not_judged_in_these() -> None:
    """What is missing would look like own time."""
    timings = Mesh().run()
    cut = (timings.rank == 3) & (timings.step >= 25)
    matrix = matrix_of(_rows(timings, ~cut))

    assert np.isnan(matrix.late_ms[3, 25:]).all()
    assert np.isfinite(matrix.late_ms[3, :25]).all()
    assert np.nanmax(np.abs(matrix.late_ms)) < LOST_MS / 2


def test_a_rank_whose_inner_collectives_are_missing_is_not_judged() -> None:
    timings = Mesh().run()
    matrix = matrix_of(_rows(timings, ~((timings.rank == 3) & (timings.group < 8))))

    assert np.isnan(matrix.late_ms[3]).all()
    assert any("ranks 3 lack rows in every step" in note for note in matrix.notes)


def test_a_broken_duration_costs_the_step_of_that_rank() -> None:
    timings = Mesh().run()
    duration = timings.duration_us.copy()
    broken = np.flatnonzero((timings.rank == 3) & (timings.step == 7))[0]
    duration[broken] = np.nan
    matrix = matrix_of(replace(timings, duration_us=duration))

    assert np.argwhere(np.isnan(matrix.late_ms)).tolist() == [[3, 7]]
    assert any("left out" in note for note in matrix.notes)


def test_jobs_that_never_meet_are_not_compared() -> None:
    recorded = Recorded(num_ranks=8)
    rng = np.random.default_rng(3)
    first, second = recorded.group("a", np.arange(4)), recorded.group("b", np.arange(4, 8))
    for seq in range(30):
        arrive = rng.uniform(0, 10, (2, 4)) + np.asarray([[0], [5000]])
        recorded.add(
            [first, second],
            np.arange(8).reshape(2, 4),
            seq,
            arrive,
            arrive.max(axis=1) + np.asarray([100, 900]),
        )
    matrix = matrix_of(recorded.timings())

    assert [rows.tolist() for rows in matrix.joined] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert np.nanmax(np.abs(matrix.late_ms)) < 0.02


def test_downstream_stages_of_a_slow_rank_are_not_late() -> None:
    """Four replicas of a pipeline of three stages; what a stage waits for the one before is no time of its own."""
    timings = _pipeline(slow=(0, 1), times=1.3)
    late = late_by(timings)

    # Eight micro-batches of 1,000 us.
    assert late[1] == pytest.approx(2.4, rel=0.1)
    assert np.delete(late, 1).max() < 0.3


def test_overlapped_transfers_overstate_and_the_least_is_told_beside() -> None:
    """Ten buckets become ready during backward; the slow rank has each of them later by all that it lost so far."""
    recorded = Recorded(num_ranks=8)
    world = recorded.group("world", np.arange(8))
    rng = np.random.default_rng(5)
    ready = np.arange(1, 11) * 1000.0
    start = 0.0
    for step in range(30):
        own = np.ones(8) * rng.normal(1, 0.001, 8)
        own[2] *= 1.05
        end = np.full(8, start)
        for bucket in range(10):
            arrive = np.maximum(start + ready[bucket] * own, end)
            end = np.full(8, arrive.max() + 200)
            recorded.add([world], np.arange(8)[None], step * 10 + bucket, arrive[None], end[:1], step=step)
        start = end[0]
    matrix = matrix_of(recorded.timings())

    lost_ms = 0.5
    assert np.median(matrix.late_ms, axis=1)[2] > 4 * lost_ms
    assert np.median(matrix.late_least_ms, axis=1)[2] == pytest.approx(lost_ms, rel=0.1)
    assert "overlap" in matrix.basis


def test_steps_that_few_collectives_tell_are_not_used() -> None:
    timings = Mesh().run()
    step = np.where(timings.step < 12, timings.step, -1)
    assert not matrix_of(replace(timings, step=step)).steps_known

    step = np.where(timings.step < 36, timings.step, -1)
    matrix = matrix_of(replace(timings, step=step))
    assert matrix.late_ms.shape[1] == 36
    assert any("tell no step" in note for note in matrix.notes)


def test_a_step_that_ranks_tell_differently_is_the_latest_one() -> None:
    """Who waits since the step before may be told with that one."""
    timings = Mesh(dp=4, tp=1, layers=1).run()
    step = np.where((timings.rank != 0) & (timings.step > 0), timings.step - 1, timings.step)
    matrix = matrix_of(replace(timings, step=step))

    assert matrix.steps.tolist() == list(range(40))
    assert np.isfinite(matrix.late_ms).all()


def test_without_collectives_of_two_ranks_there_is_no_matrix() -> None:
    timings = Mesh().run()
    assert wait_matrix(_rows(timings, timings.rank == 0)) is None
    assert wait_matrix(_rows(timings, timings.rank < 0)) is None


def _rows(timings: CollectiveTimings, keep: NDArray[np.bool_]) -> CollectiveTimings:
    names = ("rank", "group", "op", "seq", "duration_us", "step", "num_bytes")
    return replace(timings, **{name: getattr(timings, name)[keep] for name in names})


def _pipeline(*, slow: tuple[int, int], times: float) -> CollectiveTimings:
    """Stages outermost: rank = stage × 4 + replica. Each micro-batch is received, worked on and sent; then all meet."""
    stages, replicas, batches = 3, 4, 8
    recorded = Recorded(num_ranks=stages * replicas)
    rng = np.random.default_rng(7)
    pairs = {
        (stage, replica): recorded.group(
            f"pp{stage}-{replica}", np.asarray([stage * replicas + replica, (stage + 1) * replicas + replica])
        )
        for stage in range(stages - 1)
        for replica in range(replicas)
    }
    world = recorded.group("world", np.arange(stages * replicas))
    clock = np.zeros(stages * replicas)
    for step in range(30):
        for replica in range(replicas):
            for batch in range(batches):
                for stage in range(stages):
                    rank = stage * replicas + replica
                    if stage > 0:
                        end = max(clock[rank - replicas], clock[rank]) + 20
                        arrive = np.asarray([[clock[rank - replicas], clock[rank]]])
                        both = np.asarray([[rank - replicas, rank]])
                        seq = step * batches + batch
                        group = pairs[stage - 1, replica]
                        recorded.add([group], both, seq, arrive, np.asarray([end]), step=step, op="send_recv")
                        clock[rank - replicas] = clock[rank] = end
                    work = 1000 * (times if (stage, replica) == slow else 1.0)
                    clock[rank] += work * (1 + 0.01 * rng.standard_normal())
        ranks = np.arange(stages * replicas)[None]
        recorded.add([world], ranks, step, clock[None], np.asarray([clock.max() + 500]), step=step)
        clock[:] = clock.max() + 500
    return recorded.timings()


@given(st.data())
def test_whatever_was_recorded_ends_in_figures(data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from((0, 1, 2, 3, 9, -1, 2**31 - 1)),
                st.integers(-1, 3),
                st.integers(-1, 3),
                st.sampled_from((0, 1, 2, 3, -(2**63), 2**63 - 1)),
                st.floats(width=32),
                st.sampled_from((-1, 0, 1, 2, 2**62)),
                st.sampled_from((-1, 0, 1, 1 << 20, 2**63 - 1)),
                st.floats(),
            ),
            max_size=60,
        )
    )
    rank, group, op, seq, duration, step, num_bytes, end = ([row[i] for row in rows] for i in range(8))
    timings = CollectiveTimings(
        source="any",
        places=(Place(rank=0, host="a", coords={"dp": 0}), Place(rank=1, coords={"dp": 1})),
        groups=(Group(name="a"), Group(name="b", ranks=(0, 1, 1, -5, 10**400)), Group(name="c", size=10**30)),
        ops=("all_reduce", "send_recv", "broadcast"),
        rank=np.asarray(rank, np.int32),
        group=np.asarray(group, np.int32),
        op=np.asarray(op, np.int32),
        seq=np.asarray(seq, np.int64),
        duration_us=np.asarray(duration, np.float32),
        step=np.asarray(step, np.int64),
        num_bytes=np.asarray(num_bytes, np.int64),
        end_s=np.asarray(end, np.float64),
    )
    matched = match(timings)
    if matched is None:
        assert wait_matrix(timings) is None
        return
    told = arrivals_of(matched)
    assert told.num_last.sum() <= told.num_collectives
    slow_links(matched)
    matrix = wait_matrix(timings, matched=matched)
    if matrix is not None:
        assert not np.any(np.isinf(matrix.late_ms))
        late_groups(matrix, matched)
