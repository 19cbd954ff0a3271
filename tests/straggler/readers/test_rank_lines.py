"""Lines that scripts print on every rank in words of their own, and lines that only look like them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pytest

from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.csv_table import CSV_TABLES
from distdoctor.straggler.readers.jsonl_table import JSON_ROWS
from distdoctor.straggler.readers.logs import TRAINER_LOG
from straggler.readers.row_builders import notes_of, only, sniffed, write

Form = Callable[[int, int], str]


def bare(rank: int, step: int) -> str:
    return f"[rank {rank}] step {step} loss 2.31 step_time 2.4s fwd 0.{70 + rank}s bwd 1.1s data 0.05s"


def keys(rank: int, step: int) -> str:
    return f"rank={rank} step={step} loss=2.31 step_time_ms=2400 forward_ms={700 + rank * 10} bwd_us=1100000 data_s=0.05"


def stamped(rank: int, step: int) -> str:
    return (
        f"2026-11-30 12:00:0{step} [Rank {rank}] iter {step}: step time: 2.4 s | data 0.05 s | fwd 0.{70 + rank} s | "
        "bwd 1.10 s"
    )


def prefixed(rank: int, step: int) -> str:
    return f"[rank{rank}]: INFO train: iteration {step}/100, step_time=2400ms, data=50ms, fwd={700 + rank * 10}ms, bwd=1100 ms"


def leading(rank: int, step: int) -> str:
    return f"Rank {rank}: epoch 0 step {step}/100 | step time (ms): 2,400.0 | data (ms): 50 | forward (ms): {700 + rank * 10} | backward (ms): 1100"


def logged(rank: int, step: int) -> str:
    return f'INFO:trainer:{{"rank": {rank}, "step": {step}, "step_ms": 2400, "data_ms": 50, "fwd_ms": {700 + rank * 10}, "bwd_ms": 1100}}'


FORMS = [bare, keys, stamped, prefixed, leading, logged]


def log(form: Form, ranks: range, steps: range) -> str:
    return "".join(form(rank, step) + "\n" for step in steps for rank in ranks)


def read(folder: Path, *texts: str) -> Reading:
    paths = [write(folder, f"run{number}.log", text) for number, text in enumerate(texts)]
    return TRAINER_LOG.read(paths, ReadOptions())


@pytest.mark.parametrize("form", FORMS)
def test_lines_of_several_ranks_become_times_of_ranks(tmp_path: Path, form: Form) -> None:
    reading = read(tmp_path, log(form, range(4), range(1, 9)))
    timings = only(reading)
    assert timings.ranks == (0, 1, 2, 3)
    assert timings.steps.tolist() == list(range(1, 9))
    assert timings.sections[Section.STEP][:, 0].tolist() == [2400] * 4
    assert timings.sections[Section.DATA][0].tolist() == [50] * 8
    assert timings.sections[Section.FORWARD][:, 0] == pytest.approx([700, 710, 720, 730])
    # A backward pass that is timed holds the wait in its collectives: it names nobody.
    assert timings.sections[Section.BACKWARD_WALL][0, 0] == pytest.approx(1100)
    assert Section.BACKWARD not in timings.sections


@pytest.mark.parametrize("form", FORMS)
def test_a_log_of_each_rank_is_read_together_with_the_others(tmp_path: Path, form: Form) -> None:
    reading = read(tmp_path, *(log(form, range(rank, rank + 1), range(1, 9)) for rank in range(3)))
    assert only(reading).ranks == (0, 1, 2)
    assert all(each.read for each in reading.inputs)


def test_one_rank_alone_is_a_series(tmp_path: Path) -> None:
    reading = read(tmp_path, log(bare, range(5, 6), range(9)))
    assert not reading.steps
    (series,) = reading.series
    assert (series.printed_by, series.unit, series.values.tolist()) == ("rank 5", "ms", [2400] * 9)
    assert series.splits["data"].tolist() == [50] * 9
    assert any("only rank 5 prints" in note for note in notes_of(reading, NoteKind.LIMITED))


def test_a_step_may_be_told_in_several_lines(tmp_path: Path) -> None:
    lines = [
        f"[rank {rank}] step {step} {what}\n"
        for step in range(5)
        for what in ("data 0.01 s", "forward 20 ms")
        for rank in range(2)
    ]
    timings = only(read(tmp_path, "".join(lines)))
    assert timings.sections[Section.DATA][1].tolist() == [10] * 5
    assert timings.sections[Section.FORWARD][1].tolist() == [20] * 5


def test_steps_that_begin_anew_in_each_epoch_are_counted_on(tmp_path: Path) -> None:
    lines = [
        f"[rank {rank}] epoch {epoch} step {step} data 5 ms\n"
        for epoch in range(3)
        for step in range(4)
        for rank in range(2)
    ]
    timings = only(read(tmp_path, "".join(lines)))
    assert timings.steps.tolist() == list(range(12))


def test_the_rank_in_the_line_counts_before_the_launcher_s_prefix(tmp_path: Path) -> None:
    lines = [
        f"[default{rank % 2}]:[rank {rank}] step {step} data 5 ms\n" for step in range(4) for rank in range(4)
    ]
    assert only(read(tmp_path, "".join(lines))).ranks == (0, 1, 2, 3)


@pytest.mark.parametrize(
    "line",
    [
        "[rank 5] step {step} loss 2.31 fwd 0.78 bwd 1.1",  # no unit
        "[rank 5] step {step} fwd 0.78 GB bwd 3 samples/s data 4 ms/token",
        "[rank 5] step {step} max forward 0.78s, avg bwd 1.1 s, elapsed 300 s, total 900 s",
        "[rank 5] step {step} took ages",
        "[rank 5] eval step {step} forward 0.78s",
        "[rank 5] validation: step {step} forward 0.78s",
        "step {step}: slowest rank 5, forward 0.78s",
        "step {step}: waiting for rank 5, wait 0.78s",
        "[local rank 5] step {step} forward 0.78s",
        "local_rank=5 step={step} forward_ms=78",
        "tp_rank=5 step={step} forward_ms=78",
        "[rank 5] step 2.4s forward 0.78s",
        "[rank 5] forward 0.78s",
        "[default5]: step {step} forward 0.78s",
        "rank 99999999999 step {step} forward 0.78s",
    ],
)
def test_what_is_no_time_of_a_step_of_a_rank_is_not_taken(tmp_path: Path, line: str) -> None:
    reading = read(tmp_path, "".join(line.format(step=step) + "\n" for step in range(9)))
    assert not reading.steps and not reading.series
    assert not reading.inputs[0].read


def test_lines_of_a_known_tool_are_not_read_a_second_time(tmp_path: Path) -> None:
    lines = [
        f"[rank{rank}]:[titan] 2025-12-17 01:19:{step:02d},836 - root - INFO - step: {step:2}  loss: 11.5  data: 3 ms  "
        f"grad_norm: 9.6  memory: 40GiB(50%)  tps: 6,526\n"
        for step in range(1, 9)
        for rank in range(2)
    ]
    reading = read(tmp_path, "".join(lines))
    assert not reading.steps
    assert [series.source for series in reading.series] == ["TorchTitan log"]


def test_micro_batches_are_refused_in_words(tmp_path: Path) -> None:
    lines = [
        f"[rank 0] step {step} micro {micro} fwd {micro + 1} ms\n" for step in range(20) for micro in range(4)
    ]
    reading = read(tmp_path, "".join(lines))
    assert not reading.steps
    (note,) = notes_of(reading, NoteKind.UNREADABLE)
    assert "several rows for one step" in note


def test_tables_stay_with_their_own_readers(tmp_path: Path) -> None:
    rows = "".join(f'{{"rank": 1, "step": {step}, "fwd_ms": 3}}\n' for step in range(9))
    path = write(tmp_path, "a.jsonl", rows)
    assert sniffed(JSON_ROWS, path) > sniffed(TRAINER_LOG, path)
    path = write(tmp_path, "a.csv", "rank,step,fwd_ms\n" + "".join(f"1,{step},3\n" for step in range(9)))
    assert sniffed(CSV_TABLES, path) > sniffed(TRAINER_LOG, path)


@pytest.mark.parametrize(
    "piece", ["a", "a ", "step ", "rank ", "step 1 ", "data 1 ", "1", "1,111", "a." * 20 + " "]
)
def test_hostile_lines_cost_no_more_than_their_length(tmp_path: Path, piece: str) -> None:
    line = "[rank 1] step 3 " + piece * (16_000 // len(piece)) + "\n"
    began = perf_counter()
    read(tmp_path, line * 100)
    assert perf_counter() - began < 5
