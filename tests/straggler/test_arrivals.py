"""Who comes last to collectives, on simulated meshes of ranks and on small made-up rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.straggler.analysis.collectives.arrivals import arrivals_of, last_ranks
from distdoctor.straggler.analysis.collectives.kinds import OpClass, class_of
from distdoctor.straggler.analysis.collectives.match import Matched, match
from distdoctor.straggler.analysis.collectives.value_order import medians_by
from distdoctor.straggler.arrival_table import arrival_table
from distdoctor.straggler.facts.collectives import CollectiveTimings, Group
from distdoctor.straggler.facts.places import Place
from straggler.simulated_mesh import Mesh, Recorded

Row = tuple[int, int, float]
"""rank, seq, duration in us"""


def of_rows(
    rows: list[Row], *, op: str = "all_reduce", ranks: tuple[int, ...] | None = (0, 1, 2, 3), **facts: Any
) -> CollectiveTimings:
    rank, seq, duration = ([row[i] for row in rows] for i in range(3))
    n = len(rows)
    values: dict[str, Any] = {
        "source": "rows",
        "places": tuple(Place(rank=r) for r in sorted(set(rank))),
        "groups": (Group(name="world", ranks=ranks),),
        "ops": (op,),
        "rank": np.asarray(rank, np.int32),
        "group": np.zeros(n, np.int32),
        "op": np.zeros(n, np.int32),
        "seq": np.asarray(seq, np.int64),
        "duration_us": np.asarray(duration, np.float32),
        "step": np.full(n, -1, np.int64),
        "num_bytes": np.full(n, -1, np.int64),
    }
    return CollectiveTimings(**{**values, **facts})


def matched_of(timings: CollectiveTimings) -> Matched:
    matched = match(timings)
    assert matched is not None
    return matched


def one(durations: list[float], seq: int = 0) -> list[Row]:
    return [(rank, seq, duration) for rank, duration in enumerate(durations)]


def test_the_rank_of_the_shortest_time_came_last_and_the_others_waited() -> None:
    told = arrivals_of(matched_of(of_rows(one([500, 100, 400, 600]))))

    assert told.num_last.tolist() == [0, 1, 0, 0]
    assert told.wait_ms.tolist() == pytest.approx([0.4, 0, 0.3, 0.5])
    # The median time is 450: rank 1 came 350 us after the median.
    assert told.kinds[0].late_ms.tolist() == pytest.approx([-0.05, 0.35, 0.05, -0.15])


@pytest.mark.parametrize("second", [101.9, 100.5])
def test_within_two_microseconds_nobody_came_last(second: float) -> None:
    told = arrivals_of(matched_of(of_rows(one([500, 100, second, 600]))))

    assert told.num_last.sum() == 0
    assert told.num_nobody_last == 1


def test_within_one_per_cent_of_a_long_transfer_nobody_came_last() -> None:
    assert last_ranks(matched_of(of_rows(one([10_000, 10_050, 20_000, 20_000])))).tolist() == [-1]
    assert last_ranks(matched_of(of_rows(one([10_000, 10_150, 20_000, 20_000])))).tolist() == [0]


def test_a_collective_that_lacks_a_rank_names_nobody_and_is_counted() -> None:
    told = arrivals_of(matched_of(of_rows([*one([500, 100, 400]), *one([500, 100, 400, 600], seq=1)])))

    assert (told.num_partial, told.num_collectives) == (1, 1)
    assert told.num_last.tolist() == [0, 1, 0, 0]


def test_a_listed_rank_without_any_evidence_is_missed() -> None:
    told = arrivals_of(matched_of(of_rows(one([500, 100, 400, 600]), ranks=(0, 1, 2, 3, 9))))

    assert (told.num_partial, told.num_collectives) == (1, 0)


def test_a_told_size_is_believed_where_ranks_are_not_listed() -> None:
    groups = (Group(name="comm 0x7f", size=8),)
    assert arrivals_of(matched_of(of_rows(one([500, 100, 400, 600]), groups=groups))).num_partial == 1
    unknown = matched_of(of_rows(one([500, 100, 400, 600]), groups=(Group(name="comm"),)))
    assert unknown.assumed_sizes == 1
    assert arrivals_of(unknown).num_collectives == 1


def test_a_rank_with_two_rows_damages_that_collective_only() -> None:
    rows = [*one([500, 100, 400, 600]), (1, 0, 90.0), *one([500, 100, 400, 600], seq=1)]
    told = arrivals_of(matched_of(of_rows(rows)))

    assert (told.num_damaged, told.rows_twice, told.num_collectives) == (1, 2, 1)


@pytest.mark.parametrize("duration", [0.0, -5.0, float("nan"), float("inf"), 1e30])
def test_a_duration_that_cannot_be_damages_that_collective_only(duration: float) -> None:
    told = arrivals_of(matched_of(of_rows([*one([500, duration, 400, 600]), *one([5, 1, 4, 6], seq=1)])))

    assert (told.num_damaged, told.rows_left_out, told.num_collectives) == (1, 1, 1)
    assert told.num_last.tolist() == [0, 1, 0, 0]


def test_rows_of_no_rank_group_or_operation_are_left_out() -> None:
    timings = of_rows([*one([500, 100, 400, 600]), (5, 0, 1.0), (-3, 0, 1.0), (2_000_000_000, 0, 1.0)])
    group = timings.group.copy()
    group[4] = 7
    told = arrivals_of(matched_of(replace(timings, group=group)))

    assert told.rows_left_out == 3
    assert told.num_collectives == 1
    assert match(replace(timings, group=group + 9)) is None


def test_ranks_that_disagree_on_the_operation_are_no_evidence() -> None:
    timings = replace(
        of_rows(one([500, 100, 400, 600])),
        ops=("all_reduce", "all_gather"),
        op=np.asarray([0, 1, 0, 0], np.int32),
    )

    assert arrivals_of(matched_of(timings)).num_damaged == 1


def test_numbers_of_collectives_may_be_huge() -> None:
    rows = [*one([500, 100, 400, 600], seq=-(2**62)), *one([500, 100, 400, 600], seq=2**62)]
    told = arrivals_of(matched_of(of_rows(rows)))

    assert told.num_last.tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize(
    "op", ["broadcast", "ncclDevKernel_Broadcast_RING_LL", "reduce", "gather", "coalesced"]
)
def test_collectives_that_some_may_leave_early_are_no_evidence(op: str) -> None:
    told = arrivals_of(matched_of(of_rows(one([10, 100, 100, 100]), op=op)))

    assert (told.num_rooted, told.num_collectives) == (1, 0)
    assert told.num_last.sum() == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("all_reduce", OpClass.EVERYBODY),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", OpClass.EVERYBODY),
        ("_reduce_scatter_base", OpClass.EVERYBODY),
        ("ReduceScatter", OpClass.EVERYBODY),
        ("_allgather_base", OpClass.EVERYBODY),
        ("allgather_into_tensor_coalesced", OpClass.EVERYBODY),
        ("all_to_allv", OpClass.EVERYBODY),
        ("barrier", OpClass.EVERYBODY),
        ("nccl:recv 3<-2", OpClass.POINT_TO_POINT),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8", OpClass.POINT_TO_POINT),
        ("send_recv", OpClass.POINT_TO_POINT),
        ("reduce", OpClass.OTHER),
        ("_broadcast_oop", OpClass.OTHER),
        ("scatter", OpClass.OTHER),
        ("", OpClass.OTHER),
    ],
)
def test_what_a_name_says_of_arrivals(name: str, kind: OpClass) -> None:
    assert class_of(name) is kind


def test_messages_between_stages_are_kept_apart() -> None:
    told = arrivals_of(matched_of(of_rows(one([500, 100]), op="send_recv", ranks=(0, 1))))

    assert (told.num_point_to_point, told.num_collectives) == (1, 0)


def test_messages_that_end_on_all_ranks_at_once_are_an_all_to_all() -> None:
    rows = [row for seq in range(5) for row in one([500, 10, 400, 600], seq=seq)]
    at_once = np.repeat(1.7e9 + np.arange(5.0), 4) + np.tile([0, 3e-6, 1e-6, 5e-6], 5)
    told = arrivals_of(matched_of(of_rows(rows, op="SendRecv", end_s=at_once)))
    assert told.num_last.tolist() == [0, 5, 0, 0]

    in_turn = np.repeat(1.7e9 + np.arange(5.0), 4) + np.tile([0, 3e-4, 6e-4, 9e-4], 5)
    told = arrivals_of(matched_of(of_rows(rows, op="SendRecv", end_s=in_turn)))
    assert (told.num_point_to_point, told.num_collectives) == (5, 0)

    told = arrivals_of(matched_of(of_rows(rows, op="SendRecv")))
    assert (told.num_point_to_point, told.num_collectives) == (5, 0)


def test_clocks_of_different_hosts_are_not_compared_to_tell_an_all_to_all() -> None:
    rows = [row for seq in range(5) for row in one([500, 10, 400, 600], seq=seq)]
    places = tuple(Place(rank=rank, host=f"h{rank // 2}") for rank in range(4))
    ends = np.repeat(1.7e9 + np.arange(5.0), 4) + np.tile([0, 3e-6, 0.5, 0.5 + 5e-6], 5)
    told = arrivals_of(matched_of(of_rows(rows, op="SendRecv", end_s=ends, places=places)))

    assert told.num_last.tolist() == [0, 5, 0, 0]


def test_a_slow_rank_is_last_and_late_in_all_of_its_groups() -> None:
    told = arrivals_of(matched_of(Mesh(slow={5: 1.2}).run()))

    assert told.num_last[5] == told.num[5] == 440
    assert np.flatnonzero(told.late_in_all).tolist() == [5]
    assert {kind.name: kind.num_groups for kind in told.kinds} == {
        "groups of 4 ranks in a row": 8,
        "groups of 8 ranks, 4 apart": 4,
    }


def test_mates_of_a_slow_rank_are_late_outside_and_not_inside() -> None:
    inner, outer = arrivals_of(matched_of(Mesh(slow={5: 1.2}).run())).kinds

    assert outer.late_ms[[4, 6, 7]].min() > 50
    assert inner.late_ms[[4, 6, 7]].max() < 1


def test_in_an_even_job_nobody_is_late_in_all_groups() -> None:
    told = arrivals_of(matched_of(Mesh().run()))

    assert not told.late_in_all.any()
    assert (told.num_last / told.num).max() < 0.5


def test_waiting_is_told_as_a_share_where_times_of_day_are_known() -> None:
    timings = Mesh(slow={0: 1.5}, layers=1, dp_transfer_us=100, tell_ends=True).run()
    told = arrivals_of(matched_of(timings))

    # Two times 1,500 us of work and 100 us of transfer a step on rank 0; the others wait 500 us twice.
    assert told.wait_share[0] == pytest.approx(0.0, abs=0.01)
    assert told.wait_share[9] == pytest.approx(1000 / 3200, abs=0.03)
    assert np.isnan(arrivals_of(matched_of(replace(timings, end_s=None))).wait_share).all()


@given(
    st.lists(st.tuples(st.integers(0, 6), st.floats(-1e9, 1e9, width=32)), min_size=0, max_size=60),
)
def test_medians_of_sets_are_those_of_numpy(pairs: list[tuple[int, float]]) -> None:
    index = np.asarray([i for i, _ in pairs], np.int64)
    values = np.asarray([value for _, value in pairs], np.float32)
    told = medians_by(index, values, 8)

    for i in range(8):
        chosen = values[index == i]
        if len(chosen):
            assert told[i] == pytest.approx(np.median(chosen.astype(np.float64)), rel=1e-5, abs=1e-30)
        else:
            assert np.isnan(told[i])


def test_the_recorder_of_tests_tells_what_was_simulated() -> None:
    recorded = Recorded(num_ranks=2)
    group = recorded.group("pair", np.arange(2))
    recorded.add([group], np.asarray([[0, 1]]), 0, np.asarray([[10.0, 30.0]]), np.asarray([50.0]))

    assert sorted(np.floor(recorded.timings().duration_us)) == [20, 40]


def test_the_table_has_the_rank_that_is_last_most_often_first() -> None:
    told = arrivals_of(matched_of(Mesh(slow={5: 1.2}).run()))
    table = arrival_table(told, max_rows=10)
    assert table is not None

    assert len(table.rows) == 10
    assert table.rows[0][:5] == (5, "node-0", 440, 440, 100.0)
    assert table.rows[0][-1] == "yes"
    assert table.rows[1][-1] == "no"
    assert table.note is not None
    assert "22 more ranks are not shown" in table.note


def test_without_a_complete_collective_there_is_no_table() -> None:
    assert arrival_table(arrivals_of(matched_of(of_rows(one([500, 100]))))) is None
