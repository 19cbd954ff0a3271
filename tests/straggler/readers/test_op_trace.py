"""Operation traces of pipelines: own work, exposed waiting and moving data of each worker and step."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.op_trace import OP_TRACES
from straggler.readers.op_traces import op, pipeline, write_trace

CASES = Path(__file__).parents[4] / "shared/cases/straggler/bytedance_stragglers"


def read(*paths: str | Path, **options: object) -> Reading:
    return OP_TRACES.read([str(path) for path in paths], ReadOptions(**options))  # type: ignore[arg-type]


def only(reading: Reading) -> StepTimings:
    (timings,) = reading.steps
    return timings


def row(timings: StepTimings, section: Section, rank: int) -> list[float]:
    return [round(float(value), 3) for value in timings.sections[section][timings.ranks.index(rank)]]


def test_own_work_is_summed_by_worker_and_step(tmp_path: Path) -> None:
    ops = [
        op(0, "forward-compute", 0.0, 0.010),
        op(0, "forward-compute", 0.010, 0.020, seq=1),
        op(0, "backward-compute", 0.030, 0.040),
        op(0, "backward-wgrad-compute", 0.070, 0.005),
        op(0, "optimizer", 0.075, 0.003),
        op(0, "data-load", 0.078, 0.002),
        op(0, "gc", 0.080, 0.004),
        op(0, "forward-compute", 0.0, 0.011, step=2),
    ]
    timings = only(read(write_trace(tmp_path / "a.parquet", ops)))
    assert row(timings, Section.FORWARD, 0) == [30.0, 11.0]
    backward = timings.sections[Section.BACKWARD][0]
    assert backward[0] == pytest.approx(45.0) and np.isnan(backward[1])
    assert timings.sections[Section.OPTIMIZER][0, 0] == pytest.approx(3.0)
    assert timings.sections[Section.DATA][0, 0] == pytest.approx(2.0)
    assert timings.sections[Section.GC][0, 0] == pytest.approx(4.0)
    assert row(timings, Section.STEP, 0) == [84.0, 11.0]
    assert timings.steps.tolist() == [1, 2]
    assert timings.places[0].coords == {"dp": 0, "pp": 0}


def test_who_comes_last_to_a_collective_does_not_wait(tmp_path: Path) -> None:
    ops = [
        op(0, "grads-reduce-scatter", 1.0, 0.5, dp=0),
        op(1, "grads-reduce-scatter", 1.4, 0.1, dp=1),
        op(2, "grads-reduce-scatter", 1.2, 0.3, dp=2),
    ]
    timings = only(read(write_trace(tmp_path / "a.parquet", ops)))
    assert [row(timings, Section.WAIT, rank) for rank in range(3)] == [[400.0], [0.0], [200.0]]
    assert [row(timings, Section.TRANSFER, rank) for rank in range(3)] == [[100.0]] * 3
    assert [row(timings, Section.STEP, rank) for rank in range(3)] == [[500.0]] * 3


def test_clocks_that_differ_between_hosts_change_no_waiting(tmp_path: Path) -> None:
    ops = [
        op(0, "grads-reduce-scatter", 1.0, 0.5, dp=0),
        op(1, "grads-reduce-scatter", 7.4, 0.1, dp=1),
    ]
    timings = only(read(write_trace(tmp_path / "a.parquet", ops)))
    assert [row(timings, Section.WAIT, rank) for rank in range(2)] == [[400.0], [0.0]]


def test_collectives_of_other_stages_replicas_and_numbers_are_others(tmp_path: Path) -> None:
    ops = [
        op(0, "params-all-gather", 0.0, 0.5, dp=0, stage=0),
        op(1, "params-all-gather", 0.0, 0.4, dp=1, stage=0),
        op(2, "params-all-gather", 0.0, 0.1, dp=0, stage=1),
        op(3, "params-all-gather", 0.0, 0.1, dp=1, stage=1),
        op(0, "embedding-grads-all-reduce", 1.0, 0.3, dp=0, stage=0),
        op(2, "embedding-grads-all-reduce", 1.0, 0.2, dp=0, stage=1),
        op(1, "embedding-grads-all-reduce", 1.0, 0.9, dp=1, stage=0),
        op(3, "embedding-grads-all-reduce", 1.0, 0.9, dp=1, stage=1),
    ]
    timings = only(read(write_trace(tmp_path / "a.parquet", ops)))
    assert [row(timings, Section.WAIT, rank) for rank in range(4)] == [[200.0], [0.0], [0.0], [0.0]]


def test_a_receive_waits_for_its_send(tmp_path: Path) -> None:
    ops = [
        op(0, "forward-send", 0.30, 0.01, stage=0),
        op(1, "forward-recv", 0.00, 0.31, stage=1),
        op(0, "forward-send", 0.60, 0.01, stage=0, seq=1),
        op(1, "forward-recv", 0.50, 0.11, stage=1, seq=1),
        op(1, "backward-send", 0.70, 0.21, stage=1),
        op(0, "backward-recv", 0.90, 0.01, stage=0),
    ]
    timings = only(read(write_trace(tmp_path / "a.parquet", ops)))
    assert row(timings, Section.WAIT, 0) == [0.0]
    assert row(timings, Section.WAIT, 1) == [600.0]


def test_waiting_beside_own_work_costs_nothing_and_overlapping_waits_count_once(tmp_path: Path) -> None:
    ops = [
        op(0, "forward-compute", 0.0, 0.2, stage=0),
        # Posted together: both are in flight from 0.1 to 0.5, half of the first 0.1 s beside the forward.
        op(0, "forward-send", 0.1, 0.4, stage=0),
        op(0, "backward-recv", 0.1, 0.4, stage=0),
        op(1, "forward-recv", 0.5, 0.0, stage=1),
        op(1, "backward-send", 0.5, 0.0, stage=1),
    ]
    timings = only(read(write_trace(tmp_path / "a.parquet", ops)))
    assert row(timings, Section.WAIT, 0) == [300.0]
    assert row(timings, Section.TRANSFER, 0) == [0.0]


def test_a_slow_worker_has_much_own_time_and_little_waiting(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", pipeline(slow={1: 2.0}, replicas=4))
    timings = only(read(path))
    own = timings.sections[Section.FORWARD] + timings.sections[Section.BACKWARD]
    assert own[:, 0].round(1).tolist() == [300.0, 600.0] + [300.0] * 6
    wait = timings.sections[Section.WAIT][:, 0]
    # Same stage: what the others wait more is what it works more.
    assert wait[1] < wait[0] - 250 and wait[0] == pytest.approx(wait[2], abs=0.1)
    # The stage behind it waits as long as its own peers do.
    assert wait[5] == pytest.approx(wait[4], abs=2.0)


def test_communication_without_partners_counts_as_waiting_and_is_told(tmp_path: Path) -> None:
    ops = [
        op(1, "forward-recv", 0.0, 0.3, stage=1),
        op(1, "forward-compute", 0.3, 0.1, stage=1),
        op(3, "layernorm-grads-all-reduce", 0.5, 0.05, stage=1, dp=1),
    ]
    reading = read(write_trace(tmp_path / "a.parquet", ops))
    assert row(only(reading), Section.WAIT, 1) == [300.0]
    # A collective of the tensor-parallel group, which one row stands for, never has partners.
    assert any("1 of 2 communications have no partner" in note.text for note in reading.notes)


def test_links_with_more_sends_than_receives_are_not_matched(tmp_path: Path) -> None:
    """With interleaved stages operations are recorded that were never launched: numbers do not match."""
    ops = [
        op(0, "forward-send", 0.0, 0.30, stage=0, seq=0),
        op(0, "forward-send", 0.4, 0.10, stage=0, seq=1),
        op(1, "forward-recv", 0.2, 0.10, stage=1, seq=0),
    ]
    reading = read(write_trace(tmp_path / "a.parquet", ops))
    assert row(only(reading), Section.WAIT, 0) == [400.0]
    assert any("3 of 3 communications" in note.text for note in reading.notes)


def test_any_order_of_rows_and_columns_gives_the_same(tmp_path: Path) -> None:
    ops = pipeline(slow={2: 1.5})
    first = only(read(write_trace(tmp_path / "a.parquet", ops)))
    random.Random(3).shuffle(ops)
    ops = [dict(reversed(list(each.items()))) for each in ops]
    second = only(read(write_trace(tmp_path / "b.parquet", ops, row_group_size=7)))
    assert first.ranks == second.ranks
    for section, values in first.sections.items():
        np.testing.assert_allclose(values, second.sections[section], atol=1e-3)


def test_sequence_numbers_are_counted_when_they_are_not_told(tmp_path: Path) -> None:
    ops = [
        op(0, "grads-reduce-scatter", 0.0, 0.5, dp=0, seq=0),
        op(0, "grads-reduce-scatter", 1.0, 0.1, dp=0, seq=1),
        op(1, "grads-reduce-scatter", 0.4, 0.1, dp=1, seq=0),
        op(1, "grads-reduce-scatter", 0.8, 0.3, dp=1, seq=1),
    ]
    timings = only(read(write_trace(tmp_path / "a.parquet", list(reversed(ops)), drop=("seq_id",))))
    assert [row(timings, Section.WAIT, rank) for rank in range(2)] == [[400.0], [200.0]]


def test_workers_that_share_a_stage_have_walls_instead_of_own_time(tmp_path: Path) -> None:
    """Rows of every tensor-parallel rank: forward holds waiting for one another."""
    ops = [op(rank, "forward-compute", 0.0, 0.1, dp=rank // 2) for rank in range(4)]
    reading = read(write_trace(tmp_path / "a.parquet", ops))
    timings = only(reading)
    assert Section.FORWARD not in timings.sections
    assert row(timings, Section.FORWARD_WALL, 3) == [100.0]
    assert timings.places[3].coords == {"dp": 1, "pp": 0, "tp": 1}
    assert any("share a stage and a replica" in note.text for note in reading.notes)


def meta_text(**sizes: int) -> str:
    defaults = {"dp_size": 2, "dsp_size": 1, "pp_size": 2, "tp_size": 1, "vpp_size": 1, "world_size": 4}
    lines = [f"{key}: {value}" for key, value in {**defaults, **sizes}.items()]
    return "\n".join(["trial_name: some-job", "run_id: 0", *lines]) + "\n"


def test_the_job_description_says_that_a_row_is_a_group_of_gpus(tmp_path: Path) -> None:
    ops = pipeline()
    for each in ops:
        each["rank"] *= 8
    trace = write_trace(tmp_path / "trace-X.parquet", ops)
    meta = tmp_path / "meta-X.yaml"
    meta.write_text(meta_text(tp_size=8, world_size=32))
    reading = read(meta, trace)
    timings = only(reading)
    assert timings.ranks == (0, 8, 16, 24)
    assert timings.world_size == 4
    assert any("tensor-parallel group of 8 GPUs (4 rows, 32 GPUs)" in note.text for note in reading.notes)
    assert [(entry.kind, entry.read) for entry in reading.inputs] == [
        ("job description", True),
        ("pipeline operation traces", True),
    ]
    assert any("every 8th rank" in note.text for note in read(trace).notes)


def test_workers_without_rows_are_missing(tmp_path: Path) -> None:
    ops = [each for each in pipeline() if each["rank"] != 2]
    reading = read(write_trace(tmp_path / "a.parquet", ops))
    assert only(reading).world_size == 4
    (note,) = [note for note in reading.notes if note.kind is NoteKind.MISSING_RANKS]
    assert "1 of 4 workers" in note.text and "dp 0 stage 1" in note.text


def test_parts_of_a_job_are_joined_copies_left_out_and_other_jobs_kept_apart(tmp_path: Path) -> None:
    ops = pipeline(num_steps=4)
    early = write_trace(tmp_path / "1.parquet", [each for each in ops if each["step"] < 2])
    late = write_trace(tmp_path / "2.parquet", [each for each in ops if each["step"] >= 2])
    assert only(read(early, late)).num_steps == 4
    by_rank = [
        write_trace(tmp_path / f"r{rank}.parquet", [each for each in ops if each["rank"] == rank])
        for rank in range(4)
    ]
    whole = only(read(write_trace(tmp_path / "all.parquet", ops)))
    np.testing.assert_allclose(
        only(read(*by_rank)).sections[Section.WAIT], whole.sections[Section.WAIT], atol=1e-3
    )
    copied = read(early, write_trace(tmp_path / "copy.parquet", [each for each in ops if each["step"] < 2]))
    assert only(copied).num_steps == 2
    assert NoteKind.DUPLICATE_RANKS in [note.kind for note in copied.notes]
    other = read(early, write_trace(tmp_path / "other.parquet", pipeline(num_steps=2, stages=(1.0, 1.3))))
    assert len(other.steps) == 2
    assert NoteKind.MIXED_RUNS in [note.kind for note in other.notes]


def test_operations_that_stand_there_twice_count_once(tmp_path: Path) -> None:
    ops = [op(0, "forward-compute", 0.0, 0.1), op(0, "forward-compute", 0.1, 0.1, seq=1)]
    reading = read(write_trace(tmp_path / "a.parquet", [*ops, ops[0]]))
    assert row(only(reading), Section.FORWARD, 0) == [200.0]
    assert NoteKind.DUPLICATE_RANKS in [note.kind for note in reading.notes]


def test_values_that_cannot_be_are_left_out_and_told(tmp_path: Path) -> None:
    bad = [
        op(0, "forward-compute", 0.0, float("nan")),
        op(0, "forward-compute", float("inf"), 0.1),
        op(0, "forward-compute", 0.0, -1.0),
        op(0, "forward-compute", 0.0, 1e308),
        op(-4, "forward-compute", 0.0, 0.1),
        op(10**18, "forward-compute", 0.0, 0.1),
        op(0, "forward-compute", 0.0, 0.1, stage=10**12),
        op(0, "forward-compute", 0.0, 0.1, step=2**62),
    ]
    reading = read(write_trace(tmp_path / "a.parquet", [op(0, "forward-compute", 0.0, 0.1), *bad]))
    assert row(only(reading), Section.FORWARD, 0) == [100.0]
    assert any("8 rows have values that cannot be" in note.text for note in reading.notes)


def test_unknown_operations_are_named(tmp_path: Path) -> None:
    ops = [op(0, "forward-compute", 0.0, 0.1), op(0, "moe-dispatch", 0.1, 0.1)]
    reading = read(write_trace(tmp_path / "a.parquet", ops))
    assert any("moe-dispatch" in note.text for note in reading.notes)
    assert row(only(reading), Section.STEP, 0) == [200.0]


def test_other_units_are_not_guessed(tmp_path: Path) -> None:
    ops = [op(0, "forward-compute", 0.0, 100e6)]
    path = write_trace(tmp_path / "a.parquet", ops)
    (entry,) = read(path).inputs
    assert entry.read is False and "--unit" in (entry.why_not or "")
    assert row(only(read(path, unit="ns")), Section.FORWARD, 0) == [100.0]


def test_a_range_of_steps_can_be_asked_for(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", pipeline(num_steps=6))
    assert only(read(path, first_step=2, last_step=3)).steps.tolist() == [2, 3]
    (entry,) = read(path, first_step=100).inputs
    assert entry.read is False and "no operations" in (entry.why_not or "")


def test_files_that_are_no_traces_are_refused_in_words(tmp_path: Path) -> None:
    good = write_trace(tmp_path / "good.parquet", pipeline())
    lacking = write_trace(tmp_path / "lacking.parquet", pipeline(), drop=("duration", "stage"))
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(Path(good).read_bytes()[:-30])
    result = tmp_path / "result-X.json"
    result.write_text(
        '{"job_meta": {"trial_name": "X"}, "step_t_base": {"1": 2.0}, "blocking_slowdown": 1.1}'
    )
    metric = tmp_path / "ms-X.json"
    metric.write_text('{"trem": 46.3, "tadd": 23.5, "tori": 46.3, "tideal": 23.4, "rem": 0.0, "Ms": 0.0}')
    meta = tmp_path / "meta-X.yaml"
    meta.write_text("dp_size: many\npp_size: 2\nworld_size: [1]\n")
    two_jobs = tmp_path / "two.parquet"
    write_trace(
        two_jobs, [op(0, "forward-compute", 0.0, 0.1, stage=0), op(0, "forward-compute", 0.0, 0.1, stage=1)]
    )
    reading = read(good, lacking, torn, result, metric, meta, two_jobs, tmp_path / "absent.parquet")
    assert len(reading.steps) == 1
    words = [entry.why_not for entry in reading.inputs]
    assert words[0] is None
    assert "lacks the columns duration, stage" in (words[1] or "")
    assert all(entry.read is False for entry in reading.inputs[1:])
    assert words[3] == words[4] == "results of StragglerAnalysis, not timings"
    assert "several stages or replicas" in (words[6] or "")
    assert all("\n" not in (word or "") for word in words)


def test_each_kind_is_known_by_sight(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.parquet", pipeline())
    other = tmp_path / "b.parquet"
    write_trace(other, [{"rank": 0, "step": 1, "forward": 3.0}])
    assert OP_TRACES.sniff(trace, Path(trace).read_bytes()[:64]) > 0.9
    assert OP_TRACES.sniff(str(other), other.read_bytes()[:64]) == 0.0
    assert OP_TRACES.sniff("absent.parquet", b"PAR1\x15\x04") == 0.0
    assert OP_TRACES.sniff("meta.yaml", meta_text().encode()) > 0.8
    assert OP_TRACES.sniff("ms.json", b'{\n "trem": 1.0, "tadd": 2.0, "tideal": 3.0}') > 0.9
    assert OP_TRACES.sniff("a.json", b'{"traceEvents": []}') == 0.0


def test_without_pyarrow_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_trace(tmp_path / "a.parquet", pipeline())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (entry,) = read(path).inputs
    assert entry.read is False
    assert 'pip install "distdoctor[parquet]"' in (entry.why_not or "")


def published(name: str) -> StepTimings:
    path = CASES / f"trace-{name}.parquet"
    if not path.is_file():
        pytest.skip(f"no {path} beside the project: the published traces are not tested")
    return only(read(path, CASES / f"meta-{name}.yaml"))


def own_against_stage(timings: StepTimings) -> dict[int, np.ndarray]:
    """Of each rank and step, own compute over the median of the other ranks of its stage, less 1."""
    own = timings.sections[Section.FORWARD] + timings.sections[Section.BACKWARD]
    stage = np.array([place.coords["pp"] for place in timings.places])
    excess = {}
    for number, rank in enumerate(timings.ranks):
        peers = (stage == stage[number]) & (np.arange(len(stage)) != number)
        excess[rank] = own[number] / np.median(own[peers], axis=0) - 1
    return excess


def test_published_trace_of_a_slowed_worker_shows_rank_0_alone() -> None:
    """+135 % against its stage, in each of 44 steps; one of 16 groups of 4 GPUs."""
    timings = published("AR")
    assert timings.ranks == tuple(range(0, 64, 4))
    assert timings.world_size == 16 and timings.num_steps == 44
    excess = own_against_stage(timings)
    assert np.median(excess[0]) == pytest.approx(1.35, abs=0.02)
    own = timings.sections[Section.FORWARD] + timings.sections[Section.BACKWARD]
    assert np.count_nonzero(np.argmax(own, axis=0) == 0) == 44
    assert max(np.median(values) for rank, values in excess.items() if rank != 0) < 0.02
    wait = timings.sections[Section.WAIT]
    assert np.all(wait[0] < 0.05 * wait[1:4].min(axis=0))


def test_published_trace_of_a_heavy_stage_shows_no_rank() -> None:
    """The last stage works 62 % more than the others, on both replicas alike."""
    timings = published("ST")
    own = np.median(timings.sections[Section.FORWARD] + timings.sections[Section.BACKWARD], axis=1)
    stage = np.array([place.coords["pp"] for place in timings.places])
    assert [timings.ranks[at] for at in np.flatnonzero(stage == 3)] == [6, 7]
    assert own[stage == 3].mean() / own[stage < 3].mean() - 1 == pytest.approx(0.62, abs=0.02)
    assert max(abs(float(np.median(values))) for values in own_against_stage(timings).values()) < 0.02


def test_names_with_line_ends_stay_on_one_line(tmp_path: Path) -> None:
    ops = [op(0, "forward-compute", 0.0, 0.1), op(0, "odd\nname\r", 0.1, 0.1)]
    reading = read(write_trace(tmp_path / "a.parquet", ops))
    assert any("odd name" in note.text for note in reading.notes)
