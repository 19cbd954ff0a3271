"""Kineto traces: which rows of different ranks are one collective."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdoctor.report.model import Status
from distdoctor.report.request import ReportRequest
from distdoctor.straggler.facts.collectives import CollectiveTimings
from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.from_files import report_of_files
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.kineto import KINETO
from straggler.readers.kineto_traces import BASE_NS, OLD_SEND_RECV, TraceBuilder, rank_trace


def read(folder: Path, *traces: TraceBuilder) -> Reading:
    paths = [trace.write(folder / f"rank-{trace.rank}.json") for trace in traces]
    return KINETO.read(paths, ReadOptions())


def only(reading: Reading) -> CollectiveTimings:
    (timings,) = reading.collectives
    return timings


def by_collective(timings: CollectiveTimings) -> dict[tuple[str, int], dict[int, float]]:
    """Duration on each rank, of each collective by group and number."""
    found: dict[tuple[str, int], dict[int, float]] = {}
    for group, seq, rank, dur in zip(
        timings.group, timings.seq, timings.rank, timings.duration_us, strict=True
    ):
        found.setdefault((timings.groups[group].name, int(seq)), {})[int(rank)] = round(float(dur), 3)
    return found


def notes(reading: Reading, kind: NoteKind) -> list[str]:
    return [note.text for note in reading.notes if note.kind is kind]


def test_collectives_are_matched_by_the_number_that_torch_gave_them(tmp_path: Path) -> None:
    timings = only(read(tmp_path, rank_trace(0), rank_trace(1, compute_us=4000.0)))
    assert by_collective(timings) == {("0", seq): {0: 5500.0, 1: 4500.0} for seq in (1, 2, 3)}
    assert timings.ops == ("all_reduce",)
    assert timings.groups[0].ranks == (0, 1)
    assert timings.groups[0].what == "default_pg"
    assert set(timings.num_bytes.tolist()) == {2000}
    assert timings.world_size == 2
    assert sorted(set(timings.step.tolist())) == [5, 6, 7]
    assert timings.end_s is not None
    assert timings.end_s[0] == pytest.approx(BASE_NS / 1e9 + 1.009)


def test_numbers_decide_even_where_a_rank_lacks_some(tmp_path: Path) -> None:
    late = rank_trace(1)
    late.events = [event for event in late.events if event["args"].get("Seq") != 1]
    matched = by_collective(only(read(tmp_path, rank_trace(0), late)))
    assert matched[("0", 1)] == {0: 5500.0}
    assert matched[("0", 3)] == {0: 5500.0, 1: 5500.0}


def test_without_numbers_the_nth_of_a_step_is_the_same_on_all_ranks(tmp_path: Path) -> None:
    timings = only(read(tmp_path, rank_trace(0, seq=False), rank_trace(1, compute_us=4000.0, seq=False)))
    assert timings.groups[0].name == "all"
    assert timings.groups[0].ranks is None
    assert by_collective(timings) == {("all", seq): {0: 5500.0, 1: 4500.0} for seq in (0, 1, 2)}
    assert set(timings.num_bytes.tolist()) == {-1}


def test_without_numbers_a_step_in_which_ranks_differ_is_left_out(tmp_path: Path) -> None:
    more = rank_trace(1, seq=False)
    more.kernel(
        1_001_000, 50, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", launched=1_000_900, stream=20
    )
    reading = read(tmp_path, rank_trace(0, seq=False), more)
    assert sorted(set(only(reading).step.tolist())) == [6, 7]
    assert "3 of 7 collectives could not be matched" in notes(reading, NoteKind.DROPPED_VALUES)[0]


def test_without_metadata_one_known_group_gives_the_ranks(tmp_path: Path) -> None:
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]
    timings = only(
        read(tmp_path, rank_trace(0, seq=False, groups=groups), rank_trace(1, seq=False, groups=groups))
    )
    assert timings.groups[0].ranks == (0, 1)


def test_streams_without_metadata_whose_collectives_do_not_end_together_are_not_compared(
    tmp_path: Path,
) -> None:
    """Two groups of tensor parallelism: the same kernels at about the same time, and nothing in common."""
    rng = np.random.default_rng(0)
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank=rank, device=rank)
        trace.step(1, 0, 100_000)
        for index in range(20):
            trace.kernel(1000 + 4000 * index + 1500 * rng.random(), 300, OLD_SEND_RECV, stream=20)
        traces.append(trace)
    reading = read(tmp_path, *traces)
    assert not reading.collectives
    assert any("do not end together" in text for text in notes(reading, NoteKind.LIMITED))


def test_clocks_that_differ_by_a_fixed_time_are_no_reason_not_to_compare(tmp_path: Path) -> None:
    reading = read(tmp_path, rank_trace(0, seq=False), rank_trace(1, seq=False, base_ns=BASE_NS + 40_000_000))
    assert len(by_collective(only(reading))) == 3


def test_groups_of_one_name_and_different_ranks_are_different_groups(tmp_path: Path) -> None:
    traces = []
    for rank in range(4):
        trace = TraceBuilder(rank=rank, world_size=4, device=rank)
        trace.step(1, 0, 1000)
        ranks = "[0, 1]" if rank < 2 else "[2, 3]"
        trace.nccl(100, 50 + rank, seq=1, group="5", what="mesh_tp", ranks=ranks)
        traces.append(trace)
    timings = only(read(tmp_path, *traces))
    assert [group.ranks for group in timings.groups] == [(0, 1), (2, 3)]
    assert timings.group.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("more", "groups"),
    [
        ({"Global rank start": 1, "Global rank stride": 2}, []),
        ({}, [{"pg_name": "4", "pg_desc": "x", "pg_size": 40, "ranks": list(range(1, 81, 2))}]),
    ],
    ids=["by first rank and stride", "by the head of the trace"],
)
def test_a_shortened_list_of_ranks_is_completed(
    tmp_path: Path, more: dict[str, Any], groups: list[dict[str, Any]]
) -> None:
    trace = TraceBuilder(rank=1, world_size=80, device=1, groups=groups)
    trace.step(1, 0, 1000)
    trace.nccl(100, 50, seq=1, group="4", size=40, ranks="[1, 3, 5, ..., 79]", **more)
    assert only(read(tmp_path, trace)).groups[0].ranks == tuple(range(1, 81, 2))


def test_a_shortened_list_that_nothing_completes_leaves_name_and_size(tmp_path: Path) -> None:
    trace = TraceBuilder(rank=1, world_size=80, device=1)
    trace.step(1, 0, 1000)
    trace.nccl(100, 50, seq=1, group="4", size=40, ranks="[1, 3, 5, ..., 79]")
    (group,) = only(read(tmp_path, trace)).groups
    assert (group.name, group.ranks, group.size) == ("4", None, 40)


def test_kernels_of_one_numbered_collective_are_one_row(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1)
    trace.step(1, 0, 1000)
    trace.nccl(100, 50, seq=7, collective="_allgather_base")
    trace.nccl(170, 30, seq=7, collective="_allgather_base")
    timings = only(read(tmp_path, trace))
    assert timings.ops[timings.op[0]] == "all_gather"
    assert timings.duration_us.tolist() == [80.0]


def test_a_send_and_its_receive_are_one_pair(tmp_path: Path) -> None:
    kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    sender, receiver = TraceBuilder(rank=0), TraceBuilder(rank=1, device=1)
    for trace, collective, peer in ((sender, "send", "Dst Rank"), (receiver, "recv", "Src Rank")):
        trace.step(1, 0, 1000)
        number = 1 if trace is sender else 0
        trace.nccl(100, 50, seq=9 + number, collective=collective, kernel=kernel, **{peer: number})
    timings = only(read(tmp_path, sender, receiver))
    (group,) = timings.groups
    assert (group.name, group.ranks) == ("0: 0 to 1", (0, 1))
    assert timings.seq.tolist() == [0, 0]
    assert timings.ops == ("send_recv",)


def test_several_sends_in_one_kernel_are_compared_with_nobody(tmp_path: Path) -> None:
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank=rank, world_size=4, device=rank)
        trace.step(1, 0, 1000)
        trace.nccl(
            *(100, 50),
            seq=1,
            collective="coalesced",
            size=4,
            ranks="[0, 1, 2, 3]",
            kernel="ncclDevKernel_SendRecv(x)",
        )
        traces.append(trace)
    reading = read(tmp_path, *traces)
    assert not reading.collectives
    assert reading.steps[0].sections[Section.COMM].tolist() == [[pytest.approx(0.05)]] * 2
    assert any(
        "2 sends and receives do not say their peer" in text for text in notes(reading, NoteKind.LIMITED)
    )


@pytest.mark.parametrize("call", ["nccl:all_to_all", "nccl:send"])
def test_sends_without_metadata_are_an_all_to_all_unless_the_trace_holds_sends(
    tmp_path: Path, call: str
) -> None:
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank=rank, device=rank)
        trace.step(1, 0, 1000)
        trace.event("user_annotation", call, 50, 10)
        trace.kernel(100, 50 + rank, OLD_SEND_RECV, stream=20)
        traces.append(trace)
    assert bool(read(tmp_path, *traces).collectives) == (call == "nccl:all_to_all")


def test_a_restarted_job_numbers_its_collectives_anew(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        for part, first in (("a", 5), ("b", 105)):
            trace = rank_trace(rank, first=first, base_ns=BASE_NS + first * 1_000_000_000)
            paths.append(trace.write(tmp_path / part / f"rank-{rank}.json"))
    timings = only(KINETO.read(paths, ReadOptions()))
    assert len(by_collective(timings)) == 6


def test_ranks_in_no_subgroup_are_in_the_same_collectives_as_those_in_one(tmp_path: Path) -> None:
    """gloo's spans tell no group: of ranks 0 and 1 nobody knows which, of rank 2 it is the only one."""
    traces = []
    for rank in range(3):
        trace = gloo_trace(rank, slow_us=100.0 * rank)
        trace.world_size = 3
        everybody = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 3, "ranks": [0, 1, 2]}
        pair = {"pg_name": "1", "pg_desc": "undefined", "pg_size": 2, "ranks": [0, 1]}
        trace.groups = [everybody, pair] if rank < 2 else [everybody]
        traces.append(trace)
    for some in (traces, traces[::-1]):
        matched = by_collective(only(read(tmp_path, *some)))
        assert matched == {("all", seq): {0: 4000.0, 1: 3900.0, 2: 3800.0} for seq in range(3)}


def gloo_trace(rank: int, *, cat: str = "user_annotation", slow_us: float = 0.0) -> TraceBuilder:
    """DDP on CPUs: an all-reduce on a thread of gloo, from the end of the rank's own work to 8 ms."""
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]
    trace = TraceBuilder(rank=rank, groups=groups)
    for index in range(3):
        began = 1_000_000.0 + 10_000 * index
        trace.step(index, began, 9_900)
        start = began + 4_000 + slow_us
        dims = {"Input Dims": [[262912]], "Input type": ["float"]}
        trace.event(cat, "gloo:all_reduce", start, began + 8_000 - start, dims)
    return trace


@pytest.mark.parametrize("cat", ["user_annotation", "cpu_op"])
def test_gloo_on_cpus_gives_collectives_and_the_rest_of_the_step(tmp_path: Path, cat: str) -> None:
    reading = read(tmp_path, gloo_trace(0, cat=cat), gloo_trace(1, cat=cat, slow_us=1500.0))
    assert by_collective(only(reading)) == {("all", seq): {0: 4000.0, 1: 2500.0} for seq in range(3)}
    assert only(reading).groups[0].ranks == (0, 1)
    assert set(only(reading).num_bytes.tolist()) == {4 * 262912}
    own = reading.steps[0].sections[Section.UNSPLIT]
    assert own.tolist() == [[pytest.approx(5.9)] * 3, [pytest.approx(7.4)] * 3]
    assert any(
        "compute is the step without its collectives" in text for text in notes(reading, NoteKind.LIMITED)
    )


def test_a_region_of_a_user_that_is_named_like_gloo_is_no_collective(tmp_path: Path) -> None:
    traces = [gloo_trace(0), gloo_trace(1)]
    for trace in traces:
        for index in range(3):
            trace.event("user_annotation", "gloo:my_all_reduce_step", 1_000_000.0 + 10_000 * index, 3_000)
    reading = read(tmp_path, *traces)
    assert by_collective(only(reading)) == {("all", seq): {0: 4000.0, 1: 4000.0} for seq in range(3)}
    assert reading.steps[0].sections[Section.COMM].tolist() == [[pytest.approx(4.0)] * 3] * 2


def exchange(rank: int, *, posted_us: float, works: bool) -> TraceBuilder:
    """Steps of 10 ms on CPUs: a receive that is posted and awaited after some time, and 2 ms of other things."""
    trace = TraceBuilder(rank=rank, world_size=4)
    for index in range(3):
        began = 1_000_000.0 + 10_000 * index
        trace.step(index, began, 10_000)
        trace.event("cpu_op", "aten::mm", began + 100, 900)
        trace.event("cpu_op", "c10d::recv_", began + 1_900, 150)
        trace.event("user_annotation", "gloo:recv", began + 2_000, posted_us)
        if works:
            trace.event("cpu_op", "aten::mm", began + 2_100, 50)
        trace.event("user_annotation", "gloo:all_reduce", began + 2_000 + posted_us, 8_000 - posted_us)
    return trace


def test_a_receive_during_which_nothing_is_done_is_waiting(tmp_path: Path) -> None:
    reading = read(tmp_path, *(exchange(rank, posted_us=6_000, works=False) for rank in range(4)))
    sections = reading.steps[0].sections
    assert sections[Section.COMM].tolist() == [[pytest.approx(8.0)] * 3] * 4
    assert sections[Section.UNSPLIT].tolist() == [[pytest.approx(2.0)] * 3] * 4
    assert not any("outstanding" in text for text in notes(reading, NoteKind.LIMITED))


def test_a_receive_during_which_a_rank_works_is_neither_waiting_nor_own_work(tmp_path: Path) -> None:
    reading = read(tmp_path, *(exchange(rank, posted_us=6_000, works=True) for rank in range(4)))
    sections = reading.steps[0].sections
    assert sections[Section.COMM].tolist() == [[pytest.approx(2.0)] * 3] * 4
    assert sections[Section.UNSPLIT].tolist() == [[pytest.approx(2.0)] * 3] * 4
    (told,) = (text for text in notes(reading, NoteKind.LIMITED) if "outstanding" in text)
    assert "ranks 0-3 work" in told
    assert " 60 % of a step" in told


def test_a_rank_that_may_work_while_a_receive_is_outstanding_is_not_compared_with_others(
    tmp_path: Path,
) -> None:
    traces = [exchange(rank, posted_us=7_500 if rank == 2 else 1_000, works=True) for rank in range(4)]
    own = read(tmp_path, *traces).steps[0].sections[Section.UNSPLIT]
    assert np.isnan(own[2]).all()
    assert own[[0, 1, 3]].tolist() == [[pytest.approx(2.0)] * 3] * 3


def test_nobody_is_cleared_where_sends_and_receives_hide_most_of_a_step(tmp_path: Path) -> None:
    for rank in range(4):
        trace = TraceBuilder(rank=rank, world_size=4)
        for index in range(30):
            began = 1_000_000.0 + 10_000 * index
            trace.step(index, began, 9_990)
            trace.event("user_annotation", "gloo:recv", began + 500 + 7 * index, 9_000)
            trace.event("cpu_op", "aten::mm", began + 1_000, 50)
        trace.write(tmp_path / f"rank-{rank}.json")
    request = ReportRequest(
        command="straggler analyze", argv=("distdoctor",), started=datetime(2026, 11, 30, tzinfo=timezone.utc)
    )
    report = report_of_files(request, [str(tmp_path)])
    assert report.verdict.cause_class == "inconclusive"
    assert report.verdict.status is Status.UNKNOWN


def test_more_collectives_than_there_is_room_for_cost_the_last_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdoctor.straggler.readers.kineto.reader.MAX_ROWS", 4)
    reading = read(tmp_path, rank_trace(0), rank_trace(1))
    assert sorted(set(only(reading).step.tolist())) == [5, 6]
    assert any(
        "2 collectives of later steps were not kept" in text for text in notes(reading, NoteKind.LIMITED)
    )
