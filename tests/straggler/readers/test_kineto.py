"""Kineto traces: sections of steps, ranks, places, several files of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.kineto import KINETO
from straggler.readers.kineto_traces import BASE_NS, GEMM, LAMBDA, NCCL, TraceBuilder, rank_trace


def read(*paths: str | Path, options: ReadOptions | None = None) -> Reading:
    return KINETO.read([str(path) for path in paths], options or ReadOptions())


def steps(reading: Reading) -> StepTimings:
    (timings,) = reading.steps
    return timings


def ms(reading: Reading, section: Section, row: int = 0) -> list[float]:
    return [round(float(value), 4) for value in steps(reading).sections[section][row]]


def notes(reading: Reading, kind: NoteKind) -> list[str]:
    return [note.text for note in reading.notes if note.kind is kind]


STYLES = ("spaced", "compact", "behind", "indented", "name first")


@pytest.mark.parametrize("style", STYLES)
def test_sections_of_a_step_are_the_same_however_the_json_is_laid_out(tmp_path: Path, style: str) -> None:
    reading = read(rank_trace(0, world_size=1).write(tmp_path / "rank-0.pt.trace.json", style))
    assert list(steps(reading).steps) == [5, 6, 7]
    assert ms(reading, Section.COMPUTE) == [3.0, 3.0, 3.0]
    assert ms(reading, Section.COMM) == [5.5, 5.5, 5.5]
    assert ms(reading, Section.H2D) == [0.1, 0.1, 0.1]
    assert ms(reading, Section.DATA) == [0.2, 0.2, 0.2]
    assert ms(reading, Section.STEP) == [9.9, 9.9, 9.9]
    # Of the first step from its beginning; of others since the work before: 1 ms + 0.3 ms, and 0.1 ms after the copy.
    assert ms(reading, Section.IDLE) == [0.4, 1.4, 1.4]
    assert steps(reading).started_s == pytest.approx(BASE_NS / 1e9 + np.array([1.0, 1.01, 1.02]))


def test_gzip_is_read_as_the_text_in_it(tmp_path: Path) -> None:
    reading = read(rank_trace(0, world_size=1).write(tmp_path / "rank-0.pt.trace.json.gz"))
    assert ms(reading, Section.COMPUTE) == [3.0, 3.0, 3.0]
    assert reading.inputs[0].sha256 is not None


def test_kernels_on_several_streams_count_once_where_they_overlap(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1)
    trace.step(1, 0, 1000)
    trace.kernel(100, 200, stream=7)
    trace.kernel(200, 200, LAMBDA, stream=8)
    trace.kernel(350, 100, NCCL, stream=20)
    trace.kernel(440, 20, "Memcpy HtoD (Pageable -> Device)", stream=9)
    trace.kernel(390, 20, "Memcpy HtoD (Pageable -> Device)", stream=9)
    trace.kernel(600, 50, "Memset (Device)", stream=9)
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert ms(reading, Section.COMPUTE) == [0.3]
    assert ms(reading, Section.COMM) == [0.05]
    assert ms(reading, Section.H2D) == [0.03]
    assert ms(reading, Section.IDLE) == [0.24]


def test_kernels_that_wait_without_nccl_are_communication_and_no_compute(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1)
    trace.step(1, 0, 1000)
    trace.kernel(100, 200)
    trace.kernel(300, 400, "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)")
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert ms(reading, Section.COMPUTE) == [0.2]
    assert ms(reading, Section.COMM) == [0.4]
    assert not reading.collectives


def test_work_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1)
    for number in (1, 2):
        trace.step(number, 1000 * number, 990)
    trace.kernel(900, 50)  # launched before the recording began
    trace.kernel(1500, 300, launched=1100)
    trace.kernel(2100, 400, launched=1200)
    trace.kernel(2600, 100, launched=2100)
    trace.kernel(2700, 50)  # no launch in the trace: with the work before it
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert ms(reading, Section.COMPUTE) == [0.7, 0.15]


def test_work_without_any_launch_belongs_to_the_step_of_its_time(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1)
    for number in (1, 2):
        trace.step(number, 1000 * number, 990)
    trace.kernel(1500, 300)
    trace.kernel(2100, 400)
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert ms(reading, Section.COMPUTE) == [0.3, 0.4]


def test_old_traces_have_capitalised_categories_and_whole_microseconds_since_1970(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1, base_ns=None, old_categories=True)
    trace.step(10, 1_694_128_201_421_900, 19_313)
    trace.kernel(1_694_128_201_422_000, 3000, launched=1_694_128_201_421_950)
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert ms(reading, Section.COMPUTE) == [3.0]
    assert ms(reading, Section.STEP) == [19.313]
    assert steps(reading).started_s == pytest.approx([1_694_128_201.4219])


def test_without_a_base_short_times_are_not_taken_for_times_of_day(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1, base_ns=None)
    trace.step(10, 1_000_000, 1000)
    assert steps(read(trace.write(tmp_path / "rank-0.json"))).started_s is None


def test_a_last_step_that_was_only_begun_is_left_out_and_said_so(tmp_path: Path) -> None:
    trace = rank_trace(0, world_size=1)
    trace.step(8, 1_030_000, 49)
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert list(steps(reading).steps) == [5, 6, 7]
    assert "step 8 of rank 0 was left out" in notes(reading, NoteKind.DROPPED_VALUES)[0]


def test_without_step_marks_the_whole_trace_is_one_step_and_a_note_says_so(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1)
    trace.event("Trace", "PyTorch Profiler (0)", 0, 5000)
    trace.kernel(100, 200)
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert list(steps(reading).steps) == [0]
    assert ms(reading, Section.COMPUTE) == [0.2]
    assert ms(reading, Section.STEP) == [5.0]
    assert any("no `ProfilerStep#` marks" in text for text in notes(reading, NoteKind.LIMITED))


def test_a_trace_without_marks_among_others_adds_no_step(tmp_path: Path) -> None:
    unmarked = TraceBuilder(rank=1, device=1)
    unmarked.kernel(100, 200)
    reading = read(rank_trace(0).write(tmp_path / "rank-0.json"), unmarked.write(tmp_path / "rank-1.json"))
    assert list(steps(reading).steps) == [5, 6, 7]
    assert steps(reading).ranks == (0,)
    assert [place.rank for place in reading.collectives[0].places] == [0, 1]


def test_garbage_collection_counts_where_the_profiler_recorded_it(tmp_path: Path) -> None:
    trace = rank_trace(0, world_size=1)
    trace.event("python_function", "Python GC", 1_011_000, 800)
    trace.event("python_function", "gc.py(3): collect", 1_011_000, 800)
    assert ms(read(trace.write(tmp_path / "rank-0.json")), Section.GC) == [0.0, 0.8, 0.0]


def test_steps_outside_the_range_are_not_kept(tmp_path: Path) -> None:
    path = rank_trace(0, world_size=1).write(tmp_path / "rank-0.json")
    reading = read(path, options=ReadOptions(first_step=6, last_step=6))
    assert list(steps(reading).steps) == [6]
    assert set(reading.collectives[0].step.tolist()) == {6}


def test_places_name_host_gpu_and_coordinates(tmp_path: Path) -> None:
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": []},
        {"pg_name": "3", "pg_desc": "mesh_dp_shard", "pg_size": 2, "ranks": [1, 3]},
        {"pg_name": "5", "pg_desc": "mesh_tp", "pg_size": 2, "ranks": [2, 3]},
        {"pg_name": "7", "pg_desc": "mesh_dp_shard_cp", "pg_size": 2, "ranks": [1, 3]},
    ]
    paths = [
        rank_trace(rank, world_size=4, groups=groups, extra={"host_name": "node-7"}).write(
            tmp_path / f"rank-{rank}.json"
        )
        for rank in (2, 3)
    ]
    place = steps(read(*paths)).places[1]
    assert (place.rank, place.host, place.local_rank) == (3, "node-7", 3)
    assert place.gpu is not None
    assert (place.gpu.index, place.gpu.model) == (3, "NVIDIA H100 80GB HBM3")
    assert place.coords == {"dp_shard": 1, "tp": 1}


def test_coordinates_of_megatron_groups(tmp_path: Path) -> None:
    groups = [{"pg_name": "9", "pg_desc": "TENSOR_MODEL_PARALLEL_GROUP", "pg_size": 2, "ranks": [0, 1]}]
    reading = read(rank_trace(1, groups=groups).write(tmp_path / "rank-1.json"))
    assert steps(reading).places[0].coords == {"tp": 1}


def mesh_groups(*dimensions: tuple[str, list[int]]) -> list[dict[str, Any]]:
    return [
        {"pg_name": str(number), "pg_desc": what, "pg_size": len(ranks), "ranks": ranks}
        for number, (what, ranks) in enumerate(dimensions)
    ]


@pytest.mark.parametrize(
    ("groups", "coords"),
    [
        # A mesh ("dp", "stage") of 1 x 8: the group of all ranks stays the default group.
        (mesh_groups(("default_pg", list(range(8))), ("mesh_dp", [5])), {}),
        (mesh_groups(("mesh_dp", [1, 5]), ("mesh_stage", [4, 5, 6, 7])), {"dp": 1, "pp": 1}),
        (mesh_groups(("mesh_dp", [1, 5])), {}),
        (mesh_groups(("mesh_dp", [1, 5]), ("mesh_depth", [4, 5, 6, 7])), {"dp": 1, "depth": 1}),
        (mesh_groups(("mesh_replicate", [1, 5]), ("mesh_shard", [4, 5, 6, 7])), {"dp_replicate": 1, "dp_shard": 1}),
        # All data parallel as told, but something else besides.
        (mesh_groups(("mesh_replicate", [1, 5]), ("mesh_shard", [4, 5, 6, 7]), ("mesh_depth", [4, 5])), {}),
        # Expert parallel lies over data parallel: 4 x 2 are not all ranks there.
        (mesh_groups(("mesh_dp", [4, 5, 6, 7]), ("mesh_ep", [4, 5])), {}),
        (mesh_groups(("mesh_dp", [4, 5, 6, 7]), ("mesh_ep", [4, 5]), ("mesh_pp", [1, 5])), {"dp": 1, "ep": 1, "pp": 1}),
    ],
)  # fmt: skip
def test_coordinates_count_where_the_groups_that_are_told_span_the_job(
    tmp_path: Path, groups: list[dict[str, Any]], coords: dict[str, int]
) -> None:
    reading = read(rank_trace(5, world_size=8, groups=groups).write(tmp_path / "rank-5.json"))
    assert steps(reading).places[0].coords == coords


def test_device_0_on_every_rank_is_no_index_of_the_host(tmp_path: Path) -> None:
    paths = []
    for rank in (0, 1):
        trace = TraceBuilder(rank=rank, device=0)
        trace.step(1, 0, 1000)
        trace.kernel(100, 200)
        paths.append(trace.write(tmp_path / f"rank-{rank}.json"))
    for place in steps(read(*paths)).places:
        assert place.local_rank is None
        assert place.gpu is not None
        assert place.gpu.index is None


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-3.json", 3),
        ("rank3_trace.json", 3),
        ("trace_rank_3.json.gz", 3),
        ("worker3_step_12.1694128201545.pt.trace.json", 3),
        ("rank_3/trace.json", 3),
        ("worker0_rank3.json", 3),
        ("rank3/worker0.json", 3),
        ("node1_local_rank3.json", None),
        ("node7_12345.1694128201545678901.pt.trace.json", None),
        ("trace_step_100.json", None),
        ("trace_7.json", None),
    ],
)
def test_rank_of_a_trace_that_does_not_tell_it_is_taken_from_its_name(
    tmp_path: Path, name: str, rank: int | None
) -> None:
    trace = rank_trace(3)
    trace.rank = None
    reading = read(trace.write(tmp_path / name))
    assert steps(reading).ranks == (rank if rank is not None else -1,)


def test_a_last_number_is_a_rank_only_when_names_count_from_0(tmp_path: Path) -> None:
    paths = []
    for rank in range(3):
        trace = rank_trace(rank, world_size=3)
        trace.rank = None
        paths.append(trace.write(tmp_path / f"trace_{rank}.json"))
    assert steps(read(*paths)).ranks == (0, 1, 2)
    assert [timings.ranks for timings in read(*paths[1:]).steps] == [(-1,), (-2,)]


def test_traces_without_a_rank_stay_apart_and_a_note_says_so(tmp_path: Path) -> None:
    paths = []
    for name in ("a", "b"):
        trace = rank_trace(0)
        trace.rank = None
        paths.append(trace.write(tmp_path / f"{name}.json"))
    reading = read(*paths)
    assert [timings.num_ranks for timings in reading.steps] == [1, 1]
    assert not reading.collectives
    assert any("do not say which rank" in text for text in notes(reading, NoteKind.LIMITED))


def test_host_is_taken_from_the_name_that_the_tensorboard_handler_gives(tmp_path: Path) -> None:
    path = rank_trace(0, world_size=1).write(tmp_path / "gpu-node-07_12345.1694128201545678901.pt.trace.json")
    assert steps(read(path)).places[0].host == "gpu-node-07"


def test_of_two_traces_of_the_same_steps_one_counts_and_the_other_is_set_aside(tmp_path: Path) -> None:
    first = rank_trace(0).write(tmp_path / "a" / "rank-0.json")
    again = rank_trace(0).write(tmp_path / "b" / "rank-0.json")
    other = rank_trace(1).write(tmp_path / "b" / "rank-1.json")
    reading = read(first, again, other)
    assert ms(reading, Section.COMPUTE) == [3.0, 3.0, 3.0]
    assert len(notes(reading, NoteKind.DUPLICATE_RANKS)) == 1
    assert not notes(reading, NoteKind.MIXED_RUNS)
    assert aside(reading) == [first]
    assert all(file.read and file.why_not is None for file in reading.inputs)


def test_traces_of_one_rank_at_one_time_are_of_two_and_one_is_missed(tmp_path: Path) -> None:
    """Files that are named by the rank on the host, without any rank inside."""
    paths = []
    for node in range(2):
        for rank in range(2):
            trace = rank_trace(rank, base_ns=BASE_NS + node * 3_000_000)
            trace.rank = None
            paths.append(trace.write(tmp_path / f"node{node}" / f"rank{rank}.json"))
    reading = read(*paths)
    unread = [file for file in reading.inputs if not file.read]
    assert [file.path for file in unread] == paths[:2]
    assert all(file.why_not is not None and "numbered by host" in file.why_not for file in unread)


def aside(reading: Reading) -> list[str]:
    return [file.path for file in reading.inputs if file.kind.endswith("set aside")]


def run_of(
    folder: Path,
    ranks: Sequence[int],
    *,
    at_s: float,
    host: str | Sequence[str] | None = "a",
    first: int = 5,
    compute_us: float = 3000.0,
) -> list[str]:
    """Traces of some ranks of a job of four that began so many seconds after others."""
    paths = []
    for position, rank in enumerate(ranks):
        name = host[position] if isinstance(host, (list, tuple)) else host
        trace = rank_trace(
            rank,
            world_size=4,
            first=first,
            compute_us=compute_us,
            base_ns=BASE_NS + int(at_s * 1e9),
            extra={"host_name": name} if name else {},
        )
        paths.append(trace.write(folder / f"rank{rank}_from_{first}_at_{at_s:g}.json"))
    return paths


def test_a_rank_of_another_run_on_the_same_host_is_not_judged_with_the_others(tmp_path: Path) -> None:
    early = run_of(tmp_path, [3], at_s=0)
    reading = read(*early, *run_of(tmp_path, [0, 1, 2], at_s=7))
    assert steps(reading).ranks == (0, 1, 2)
    assert aside(reading) == early
    assert "traces of 2 runs are mixed" in notes(reading, NoteKind.MIXED_RUNS)[0]
    assert "1 of 4 ranks have no file here: 3" in notes(reading, NoteKind.MISSING_RANKS)[0]


def test_of_a_job_that_was_started_again_the_newest_run_counts(tmp_path: Path) -> None:
    old = [path for first in (5, 15, 25) for path in run_of(tmp_path, range(4), at_s=first, first=first)]
    new = run_of(tmp_path, range(4), at_s=60, compute_us=2000.0)
    reading = read(*old, *new)
    assert list(steps(reading).steps) == [5, 6, 7]
    assert ms(reading, Section.COMPUTE, 2) == [2.0, 2.0, 2.0]
    assert aside(reading) == old
    assert not notes(reading, NoteKind.CLOCK_JUMP)
    assert "12 traces are set aside" in notes(reading, NoteKind.MIXED_RUNS)[0]


def test_a_newer_run_that_lacks_ranks_does_not_replace_a_complete_one(tmp_path: Path) -> None:
    old = run_of(tmp_path, range(4), at_s=0)
    new = run_of(tmp_path, [0, 1, 2], at_s=60, compute_us=2000.0)
    reading = read(*old, *new)
    assert ms(reading, Section.COMPUTE) == [3.0, 3.0, 3.0]
    assert aside(reading) == new
    assert "of ranks 0-2, 60 s after" in notes(reading, NoteKind.MIXED_RUNS)[0]


@pytest.mark.parametrize("host", [("a", "a", "b", "b"), (None, None, None, None)], ids=["told", "not told"])
def test_clocks_of_different_hosts_that_are_minutes_apart_make_no_two_runs(
    tmp_path: Path, host: tuple[str | None, ...]
) -> None:
    paths = run_of(tmp_path, [0, 1], at_s=0, host=host[:2]) + run_of(
        tmp_path, [2, 3], at_s=200, host=host[2:]
    )
    reading = read(*paths)
    assert steps(reading).ranks == (0, 1, 2, 3)
    assert not notes(reading, NoteKind.MIXED_RUNS)
    # Each host's own clock tells that both were started again.
    again = run_of(tmp_path, [0, 1], at_s=100, host=host[:2]) + run_of(
        tmp_path, [2, 3], at_s=300, host=host[2:]
    )
    reading = read(*paths, *again)
    assert sorted(aside(reading)) == sorted(paths)


def test_runs_of_different_hosts_that_are_a_day_apart_are_told_apart(tmp_path: Path) -> None:
    early = run_of(tmp_path, [0, 1], at_s=0, host="a")
    reading = read(*early, *run_of(tmp_path, [2, 3], at_s=86_400, host="b"))
    assert steps(reading).ranks == (2, 3)
    assert aside(reading) == early


def test_a_profiler_that_records_now_and_then_makes_one_run(tmp_path: Path) -> None:
    paths = [path for first in (5, 1005) for path in run_of(tmp_path, range(4), at_s=first, first=first)]
    reading = read(*paths)
    assert list(steps(reading).steps) == [5, 6, 7, 1005, 1006, 1007]
    assert not notes(reading, NoteKind.MIXED_RUNS)


def test_traces_of_one_rank_with_different_steps_are_joined(tmp_path: Path) -> None:
    first = rank_trace(0, world_size=1).write(tmp_path / "iteration_5" / "rank0_trace.json")
    later = rank_trace(0, world_size=1, first=105, base_ns=BASE_NS + 60_000_000_000).write(
        tmp_path / "iteration_105" / "rank0_trace.json"
    )
    reading = read(first, later)
    assert list(steps(reading).steps) == [5, 6, 7, 105, 106, 107]
    assert not notes(reading, NoteKind.DUPLICATE_RANKS)


def test_traces_of_runs_of_different_sizes_are_not_mixed(tmp_path: Path) -> None:
    paths = [rank_trace(rank).write(tmp_path / f"rank-{rank}.json") for rank in (0, 1)]
    stray = rank_trace(5, world_size=8).write(tmp_path / "rank-5.json")
    reading = read(*paths, stray)
    assert steps(reading).ranks == (0, 1)
    assert steps(reading).world_size == 2
    assert "2 of 2 ranks, 1 of 8 ranks" in notes(reading, NoteKind.MIXED_RUNS)[0]
    assert aside(reading) == [stray]
    assert all(file.read for file in reading.inputs)


def test_of_a_job_that_went_on_with_fewer_ranks_the_later_size_counts(tmp_path: Path) -> None:
    old = run_of(tmp_path / "four", range(4), at_s=0)
    new = [
        rank_trace(rank, world_size=2, base_ns=BASE_NS + 60_000_000_000).write(tmp_path / f"rank-{rank}.json")
        for rank in range(2)
    ]
    reading = read(*old, *new)
    assert steps(reading).ranks == (0, 1)
    assert steps(reading).world_size == 2
    assert aside(reading) == old


def test_a_rank_without_a_file_is_named(tmp_path: Path) -> None:
    reading = read(rank_trace(1, world_size=4).write(tmp_path / "rank-1.json"))
    assert "3 of 4 ranks have no file here: 0,2-3" in notes(reading, NoteKind.MISSING_RANKS)[0]


def test_a_trace_without_collectives_says_so(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1)
    trace.step(1, 0, 1000)
    trace.kernel(100, 200)
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert Section.COMM not in steps(reading).sections
    assert len(notes(reading, NoteKind.NOT_COLLECTIVE)) == 1


def test_a_trace_of_a_gpu_job_without_gpu_work_knows_no_compute(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1)
    trace.step(1, 0, 1000)
    trace.event("user_annotation", "nccl:all_reduce", 100, 20)
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert set(steps(reading).sections) == {Section.STEP}
    assert not reading.collectives
    assert any("no work of a GPU" in text for text in notes(reading, NoteKind.LIMITED))


def test_of_several_devices_in_one_trace_the_busiest_is_read(tmp_path: Path) -> None:
    trace = rank_trace(0, world_size=1)
    trace.device = 1
    trace.kernel(1_000_600, 5000, GEMM, launched=1_000_500)
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert ms(reading, Section.COMPUTE) == [3.0, 3.0, 3.0]
    assert any("work of several GPUs" in text for text in notes(reading, NoteKind.LIMITED))


def test_sniff_knows_traces_by_their_content() -> None:
    for style in STYLES:
        text = rank_trace(0).text(style).encode()[: 256 * 1024]
        assert KINETO.sniff("x.json", text) >= 0.9, style
    assert KINETO.sniff("x", b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm"') >= 0.9
    big = b'{"schemaVersion": 1, "distributedInfo": {"pg_config": [' + b"1, " * 80_000
    assert KINETO.sniff("x.json", big) > 0.5


@pytest.mark.parametrize(
    "head",
    [
        b'{"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "name": "record_param_comms"}]}',
        b'{"step": 1, "rank": 0, "step_ms": 12.5}',
        b"rank-0.json" + b"\0" * 246 + b"ustar\x0000" + b'{"schemaVersion": 1, "traceEvents": [{"ph": "X"',
        b"[2026-01-01] iteration 1/ 10 | elapsed time per iteration (ms): 12.5 |",
        b"",
        b"\0\1\2",
    ],
)
def test_sniff_leaves_other_files_alone(head: bytes) -> None:
    assert KINETO.sniff("trace.json", head) == 0.0


def test_sniff_doubts_traces_of_other_programs() -> None:
    head = b'{"traceEvents": [{"ph": "M", "pid": 1, "name": "process_name"}, {"ph": "X", "cat": "xla", "name": "fusion"'
    assert 0 < KINETO.sniff("perfetto.json", head) < 0.5
