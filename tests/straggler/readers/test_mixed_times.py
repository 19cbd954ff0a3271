"""Whether a timed backward pass holds waiting, told from what stands beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.csv_table import CSV_TABLES
from straggler.readers.row_builders import csv_text, job, notes_of, only, read, write

RANKS, STEPS = 8, 60


def reading_of(tmp_path: Path, columns: dict[str, np.ndarray], **constant: object) -> Reading:
    rows = [
        {
            "rank": r,
            "step": s,
            **{name: f"{array[r, s]:.5f}" for name, array in columns.items()},
            **{name: value(r) if callable(value) else value for name, value in constant.items()},
        }
        for r in range(RANKS)
        for s in range(STEPS)
    ]
    return read(CSV_TABLES, write(tmp_path, "times.csv", csv_text(rows)))


def middle(reading: Reading, section: Section, rank: int) -> float:
    return float(np.median(only(reading).sections[section][rank]))


@pytest.fixture(params=[None, 3], ids=["healthy", "rank 3 slow"])
def times(request: pytest.FixtureRequest) -> dict[Section, np.ndarray]:
    return job(ranks=RANKS, steps=STEPS, slow_rank=request.param)


def test_a_backward_pass_alone_is_a_wall_time(tmp_path: Path, times: dict[Section, np.ndarray]) -> None:
    wall = times[Section.BACKWARD] + times[Section.WAIT]
    reading = reading_of(
        tmp_path, {"step_ms": times[Section.STEP], "fwd_ms": times[Section.FORWARD], "bwd_ms": wall}
    )
    assert set(only(reading).sections) == {Section.STEP, Section.FORWARD, Section.BACKWARD_WALL}
    assert any(
        "`bwd_ms` holds the local backward pass and the wait" in n
        for n in notes_of(reading, NoteKind.LIMITED)
    )


@pytest.mark.parametrize("comm", ["comm_ms", "wait_ms", "allreduce_ms"])
def test_communication_beside_it_is_found_by_the_sum_of_the_step(
    tmp_path: Path, times: dict[Section, np.ndarray], comm: str
) -> None:
    columns = {
        "step_ms": times[Section.STEP],
        "data_ms": times[Section.DATA],
        "fwd_ms": times[Section.FORWARD],
        "bwd_ms": times[Section.BACKWARD],
        comm: times[Section.WAIT],
        "opt_ms": times[Section.OPTIMIZER],
    }
    reading = reading_of(tmp_path, columns)
    np.testing.assert_allclose(only(reading).sections[Section.BACKWARD], times[Section.BACKWARD], rtol=1e-4)


def test_communication_inside_it_is_found_and_subtracted(
    tmp_path: Path, times: dict[Section, np.ndarray]
) -> None:
    columns = {
        "step_ms": times[Section.STEP],
        "data_ms": times[Section.DATA],
        "fwd_ms": times[Section.FORWARD],
        "bwd_ms": times[Section.BACKWARD] + times[Section.WAIT],
        "comm_ms": times[Section.WAIT],
        "opt_ms": times[Section.OPTIMIZER],
    }
    reading = reading_of(tmp_path, columns)
    np.testing.assert_allclose(only(reading).sections[Section.BACKWARD], times[Section.BACKWARD], rtol=1e-3)
    assert any("subtracted" in text for text in notes_of(reading, NoteKind.LIMITED))


def test_time_that_nobody_measured_does_not_hide_where_it_lies(
    tmp_path: Path, times: dict[Section, np.ndarray]
) -> None:
    columns = {
        "step_ms": times[Section.STEP] + 30,
        "fwd_ms": times[Section.FORWARD],
        "bwd_ms": times[Section.BACKWARD],
        "wait_ms": times[Section.WAIT],
    }
    assert Section.BACKWARD in only(reading_of(tmp_path, columns)).sections
    columns["bwd_ms"] = times[Section.BACKWARD] + times[Section.WAIT]
    inside = reading_of(tmp_path, columns)
    np.testing.assert_allclose(only(inside).sections[Section.BACKWARD], times[Section.BACKWARD], rtol=1e-3)


def test_without_the_step_equal_sums_over_ranks_tell(
    tmp_path: Path, times: dict[Section, np.ndarray]
) -> None:
    parts = {
        "data_ms": times[Section.DATA],
        "fwd_ms": times[Section.FORWARD],
        "opt_ms": times[Section.OPTIMIZER],
        "wait_ms": times[Section.WAIT],
    }
    outside = reading_of(tmp_path, {**parts, "bwd_ms": times[Section.BACKWARD]})
    assert Section.BACKWARD in only(outside).sections
    inside = reading_of(tmp_path, {**parts, "bwd_ms": times[Section.BACKWARD] + times[Section.WAIT]})
    np.testing.assert_allclose(only(inside).sections[Section.BACKWARD], times[Section.BACKWARD], rtol=1e-3)


def test_numbers_that_do_not_tell_leave_a_wall_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    noise = lambda mean: mean * rng.uniform(0.5, 1.5, (RANKS, STEPS))  # noqa: E731
    reading = reading_of(tmp_path, {"fwd_ms": noise(40), "bwd_ms": noise(80), "comm_ms": noise(20)})
    assert Section.BACKWARD_WALL in only(reading).sections and Section.BACKWARD not in only(reading).sections


def test_a_wall_time_beside_the_local_one_is_kept_as_such(
    tmp_path: Path, times: dict[Section, np.ndarray]
) -> None:
    wall = times[Section.BACKWARD] + times[Section.WAIT]
    columns = {
        "fwd_ms": times[Section.FORWARD],
        "bwd_wall_ms": wall,
        "bwd_local_ms": times[Section.BACKWARD],
        "bwd_wait_ms": times[Section.WAIT],
    }
    sections = only(reading_of(tmp_path, columns)).sections
    assert set(sections) == {Section.FORWARD, Section.BACKWARD, Section.BACKWARD_WALL, Section.WAIT}
    np.testing.assert_allclose(sections[Section.BACKWARD_WALL], wall, rtol=1e-4)


@pytest.mark.parametrize("dimension", ["tp", "pp_rank", "stage", "cp", "ep", "dp_shard"])
def test_forward_under_model_parallelism_is_a_wall_time(
    tmp_path: Path, times: dict[Section, np.ndarray], dimension: str
) -> None:
    reading = reading_of(tmp_path, {"fwd_ms": times[Section.FORWARD]}, **{dimension: lambda rank: rank % 2})
    assert set(only(reading).sections) == {Section.FORWARD_WALL}
    assert any("parallelism" in text for text in notes_of(reading, NoteKind.LIMITED))


def test_forward_under_data_parallelism_is_own_time(tmp_path: Path, times: dict[Section, np.ndarray]) -> None:
    reading = reading_of(tmp_path, {"fwd_ms": times[Section.FORWARD]}, dp=lambda rank: rank, tp=0)
    assert set(only(reading).sections) == {Section.FORWARD}


def test_forward_of_an_unknown_kind_of_parallelism_is_said_to_be_assumed(
    tmp_path: Path, times: dict[Section, np.ndarray]
) -> None:
    alone = reading_of(tmp_path, {"fwd_ms": times[Section.FORWARD]})
    assert any("is taken as own work" in text for text in notes_of(alone, NoteKind.LIMITED))
    known = reading_of(tmp_path, {"fwd_ms": times[Section.FORWARD]}, dp=lambda rank: rank)
    assert not notes_of(known, NoteKind.LIMITED)


def test_computing_that_fills_the_whole_step_holds_waiting(
    tmp_path: Path, times: dict[Section, np.ndarray]
) -> None:
    compute = times[Section.STEP] - times[Section.DATA] - 0.5
    reading = reading_of(
        tmp_path, {"step_ms": times[Section.STEP], "data_ms": times[Section.DATA], "compute_ms": compute}
    )
    assert set(only(reading).sections) == {Section.STEP, Section.DATA, Section.BACKWARD_WALL}
    assert any(
        "`compute_ms` holds work and waiting in one" in text for text in notes_of(reading, NoteKind.LIMITED)
    )


def test_computing_beside_waiting_is_own_time(tmp_path: Path, times: dict[Section, np.ndarray]) -> None:
    compute = times[Section.FORWARD] + times[Section.BACKWARD]
    columns = {
        "step_ms": times[Section.STEP],
        "data_ms": times[Section.DATA],
        "compute_ms": compute,
        "wait_ms": times[Section.WAIT],
    }
    sections = only(reading_of(tmp_path, columns)).sections
    np.testing.assert_allclose(sections[Section.COMPUTE], compute, rtol=1e-4)


def test_computing_that_is_shorter_where_data_takes_longer_holds_waiting(tmp_path: Path) -> None:
    times = job(ranks=RANKS, steps=STEPS)
    data = times[Section.DATA].copy()
    data[3] += 30
    reading = reading_of(tmp_path, {"data_ms": data, "compute_ms": times[Section.STEP] - data})
    assert Section.COMPUTE not in only(reading).sections


def test_computing_is_dropped_beside_its_parts(tmp_path: Path, times: dict[Section, np.ndarray]) -> None:
    columns = {
        "compute_ms": times[Section.FORWARD] + times[Section.BACKWARD],
        "fwd_ms": times[Section.FORWARD],
        "bwd_local_ms": times[Section.BACKWARD],
    }
    assert set(only(reading_of(tmp_path, columns)).sections) == {Section.FORWARD, Section.BACKWARD}


def test_both_passes_in_one_are_a_wall_time_unless_the_sums_tell(
    tmp_path: Path, times: dict[Section, np.ndarray]
) -> None:
    both = times[Section.FORWARD] + times[Section.BACKWARD]
    alone = reading_of(tmp_path, {"fwd_bwd_ms": both + times[Section.WAIT], "data_ms": times[Section.DATA]})
    assert set(only(alone).sections) == {Section.DATA, Section.BACKWARD_WALL}
    beside = {
        "step_ms": times[Section.STEP],
        "fwd_bwd_ms": both,
        "data_ms": times[Section.DATA],
        "opt_ms": times[Section.OPTIMIZER],
        "comm_ms": times[Section.WAIT],
    }
    np.testing.assert_allclose(only(reading_of(tmp_path, beside)).sections[Section.COMPUTE], both, rtol=1e-4)


def test_several_collectives_are_added_up_and_a_total_counts_alone(
    tmp_path: Path, times: dict[Section, np.ndarray]
) -> None:
    half = times[Section.WAIT] / 2
    parts = {"bwd_local_ms": times[Section.BACKWARD], "allreduce_ms": half, "all_gather_ms": half}
    assert middle(reading_of(tmp_path, parts), Section.COMM, 0) == pytest.approx(
        np.median(times[Section.WAIT][0]), rel=1e-4
    )
    total = reading_of(tmp_path, {**parts, "comm_ms": times[Section.WAIT]})
    assert middle(total, Section.COMM, 0) == pytest.approx(np.median(times[Section.WAIT][0]), rel=1e-4)
