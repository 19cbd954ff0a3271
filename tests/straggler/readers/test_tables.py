"""Tables of rows in CSV and JSON: units, ranks, places, restarts, and what is refused in words."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.csv_table import CSV_TABLES
from distdoctor.straggler.readers.jsonl_table import JSON_ROWS
from straggler.readers.row_builders import (
    csv_text,
    job,
    jsonl_text,
    notes_of,
    only,
    read,
    sniffed,
    why_not,
    write,
)

BOTH = [(CSV_TABLES, csv_text, "csv"), (JSON_ROWS, jsonl_text, "jsonl")]


def long_rows(ranks: int = 4, steps: int = 3, **more: object) -> list[dict[str, object]]:
    return [
        {"rank": rank, "step": step, "data_ms": 1.5 + rank, "wait_ms": 10 * step, **more}
        for step in range(steps)
        for rank in range(ranks)
    ]


@pytest.mark.parametrize(("reader", "text", "suffix"), BOTH)
def test_a_row_for_each_rank_and_step_becomes_an_array(tmp_path: Path, reader, text, suffix: str) -> None:
    path = write(tmp_path, f"times.{suffix}", text(long_rows()))
    assert sniffed(reader, path) >= 0.5
    timings = only(read(reader, path))
    assert timings.ranks == (0, 1, 2, 3)
    assert timings.steps.tolist() == [0, 1, 2]
    assert timings.sections[Section.DATA][:, 0].tolist() == [1.5, 2.5, 3.5, 4.5]
    assert timings.sections[Section.WAIT][2].tolist() == [0, 10, 20]


@pytest.mark.parametrize(("reader", "text", "suffix"), BOTH)
def test_one_file_a_rank_takes_the_rank_from_its_name(tmp_path: Path, reader, text, suffix: str) -> None:
    paths = [
        write(tmp_path, f"rank-{rank:02d}.{suffix}", text([{"step": s, "data_ms": rank} for s in range(3)]))
        for rank in (11, 2)
    ]
    timings = only(read(reader, *paths))
    assert timings.ranks == (2, 11)
    assert timings.sections[Section.DATA][:, 0].tolist() == [2, 11]


@pytest.mark.parametrize(
    ("name", "value"),
    [("data_ns", 2e6), ("data_us", 2000), ("data_ms", 2), ("data_s", 0.002), ("data (sec)", 0.002)],
)
def test_units_in_names_are_converted(tmp_path: Path, name: str, value: float) -> None:
    path = write(tmp_path, "rank0.csv", csv_text([{"step": 1, name: value}]))
    assert only(read(CSV_TABLES, path)).sections[Section.DATA][0, 0] == pytest.approx(2)


@pytest.mark.parametrize(("reader", "text", "suffix"), BOTH)
def test_a_time_without_a_unit_is_refused_with_what_to_do(tmp_path: Path, reader, text, suffix: str) -> None:
    path = write(tmp_path, f"rank0.{suffix}", text([{"step": 1, "fwd": 3.0}]))
    assert why_not(read(reader, path)).startswith(
        "column `fwd` has no unit: name it fwd_ms or give `--unit ms`; values around 3"
    )
    assert only(read(reader, path, unit="us")).sections[Section.FORWARD][0, 0] == pytest.approx(0.003)


def test_the_given_unit_does_not_touch_columns_that_have_one(tmp_path: Path) -> None:
    path = write(tmp_path, "rank0.csv", csv_text([{"step": 1, "fwd": 3.0, "data_ms": 7}]))
    timings = only(read(CSV_TABLES, path, unit="s"))
    assert timings.sections[Section.FORWARD][0, 0] == 3000
    assert timings.sections[Section.DATA][0, 0] == 7


def test_a_word_that_is_a_time_only_with_a_unit_does_not_refuse_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "rank0.csv", csv_text([{"step": 1, "data_ms": 3.0, "load": 0.7, "loss": 2.5}]))
    reading = read(CSV_TABLES, path)
    assert set(only(reading).sections) == {Section.DATA}
    assert notes_of(reading, NoteKind.DROPPED_VALUES) == ["columns that are not used: `load`, `loss`"]


def test_step_is_a_time_where_another_column_numbers_the_steps(tmp_path: Path) -> None:
    path = write(
        tmp_path, "rank0.jsonl", jsonl_text([{"i": i, "step": 140.5 + i, "fwd": 30.0} for i in range(3)])
    )
    timings = only(read(JSON_ROWS, path, unit="ms"))
    assert timings.steps.tolist() == [0, 1, 2]
    assert timings.sections[Section.STEP][0].tolist() == [140.5, 141.5, 142.5]


def test_two_numbers_of_steps_are_not_taken_for_a_time(tmp_path: Path) -> None:
    rows = [{"step": s, "iteration": s + 100, "data_ms": 1} for s in range(20)]
    timings = only(read(CSV_TABLES, write(tmp_path, "rank0.csv", csv_text(rows))))
    assert set(timings.sections) == {Section.DATA}
    assert timings.steps.tolist() == list(range(20))


def test_places_and_world_size_are_read(tmp_path: Path) -> None:
    rows = [
        {
            "step": 0,
            "rank": r,
            "host": f"node-{r // 2}",
            "local_rank": r % 2,
            "gpu": f"cuda:{r % 2}",
            "pp": r // 2,
            "dp_rank": r % 2,
            "world_size": 4,
            "gpu_uuid": f"GPU-{r}",
            "data_ms": 1,
        }
        for r in range(4)
    ]
    timings = only(read(CSV_TABLES, write(tmp_path, "t.csv", csv_text(rows))))
    place = timings.places[3]
    assert (place.host, place.local_rank, place.coords) == ("node-1", 1, {"pp": 1, "dp": 1})
    assert place.gpu is not None and (place.gpu.index, place.gpu.uuid) == (1, "GPU-3")
    assert timings.world_size == 4


def test_a_first_line_without_times_tells_what_holds_for_the_file(tmp_path: Path) -> None:
    text = '{"rank": 5, "host": "node-9", "world_size": 8}\n' + jsonl_text([{"step": 1, "data_ms": 2}])
    reading = read(JSON_ROWS, write(tmp_path, "a.jsonl", text))
    timings = only(reading)
    assert (timings.ranks, timings.places[0].host, timings.world_size) == ((5,), "node-9", 8)
    assert notes_of(reading, NoteKind.MISSING_RANKS) == ["7 of 8 ranks have no file here: 0-4,6-7"]


def test_numbers_in_an_inner_object_are_found(tmp_path: Path) -> None:
    rows = [{"rank": 0, "step": 1, "timings_ms": {"fwd": 4.0, "data": 2.0}}]
    timings = only(read(JSON_ROWS, write(tmp_path, "a.jsonl", jsonl_text(rows))))
    assert timings.sections[Section.FORWARD][0, 0] == 4


@pytest.mark.parametrize(
    "document",
    [
        '[{"rank": 0, "step": 1, "data_ms": 2},\n {"rank": 1, "step": 1, "data_ms": 3}]',
        '{"world_size": 2, "steps": [{"rank": 0, "step": 1, "data_ms": 2}, {"rank": 1, "step": 1, "data_ms": 3}]}',
        '{\n "rank": [0, 1],\n "step": [1, 1],\n "data_ms": [2, 3]\n}',
        '[{"rank": 0, "step": 1, "data_ms": 2}, {"rank": 1, "step": 1, "data_ms": 3}, {"rank": 2, "st',
    ],
)
def test_a_document_that_holds_rows_is_read(tmp_path: Path, document: str) -> None:
    path = write(tmp_path, "a.json", document)
    assert only(read(JSON_ROWS, path)).sections[Section.DATA][:, 0].tolist() == [2, 3]


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_delimiters_comments_and_a_byte_order_mark_are_taken(tmp_path: Path, delimiter: str) -> None:
    text = "\ufeff# written by train.py\n\n" + csv_text(long_rows(), delimiter=delimiter) + "# end\n"
    path = write(tmp_path, "t.csv", text)
    assert sniffed(CSV_TABLES, path) >= 0.5
    assert only(read(CSV_TABLES, path)).num_ranks == 4


def test_gzip_and_utf16_are_read(tmp_path: Path) -> None:
    packed = write(tmp_path, "rank0.csv.gz", gzip.compress(csv_text([{"step": 1, "data_ms": 2}]).encode()))
    wide = write(tmp_path, "rank1.csv", csv_text([{"step": 1, "data_ms": 3}]).encode("utf-16"))
    assert only(read(CSV_TABLES, packed, wide)).sections[Section.DATA][:, 0].tolist() == [2, 3]


def test_decimal_commas_are_refused_in_words(tmp_path: Path) -> None:
    path = write(tmp_path, "rank0.csv", "step;data_ms\n1;12,5\n")
    assert (
        why_not(read(CSV_TABLES, path))
        == "column `data_ms` has decimal commas, such as `12,5`; write 12.5, not 12,5"
    )


def test_a_table_without_a_header_is_refused_in_words(tmp_path: Path) -> None:
    assert why_not(read(CSV_TABLES, write(tmp_path, "rank0.csv", "0,1,2.5\n0,2,2.5\n"))).startswith(
        "the first line has no names; add a header such as step,rank,forward_ms"
    )


def test_not_measured_stays_not_measured_and_zero_stays_zero(tmp_path: Path) -> None:
    csv = "rank,step,data_ms,gc_ms\n0,1,nan,0\n0,2,,0\n0,3,NA,7\n0,4,5,inf\n0,5,-3,1e308\n"
    reading = read(CSV_TABLES, write(tmp_path, "a.csv", csv))
    timings = only(reading)
    assert [math.isnan(value) for value in timings.sections[Section.DATA][0]] == [
        True,
        True,
        True,
        False,
        True,
    ]
    assert timings.sections[Section.GC][0, :3].tolist() == [0, 0, 7]
    assert np.all(np.isnan(timings.sections[Section.GC][0, 3:]))
    assert "1 values of `data_ms` below zero or without bounds were left out" in notes_of(
        reading, NoteKind.DROPPED_VALUES
    )


def test_nan_as_python_writes_it_into_json_is_taken(tmp_path: Path) -> None:
    path = write(tmp_path, "rank0.jsonl", '{"step": 1, "data_ms": NaN}\n{"step": 2, "data_ms": 4}\n')
    assert only(read(JSON_ROWS, path)).sections[Section.DATA][0, 1] == 4


@pytest.mark.parametrize(("reader", "text", "suffix"), BOTH)
def test_a_torn_end_and_a_run_of_nul_cost_only_their_rows(tmp_path: Path, reader, text, suffix: str) -> None:
    whole = text(long_rows(ranks=1, steps=40)).encode()
    lines = whole.splitlines(keepends=True)
    torn = b"".join(lines[:20]) + b"\0" * 500 + b"".join(lines[20:]) + lines[5][: len(lines[5]) // 2]
    reading = read(reader, write(tmp_path, f"a.{suffix}", torn))
    assert only(reading).num_steps == 40
    assert notes_of(reading, NoteKind.CUT_SHORT)


def test_a_bad_file_costs_only_itself(tmp_path: Path) -> None:
    good = write(tmp_path, "rank0.csv", csv_text([{"step": 1, "data_ms": 2}]))
    bad = [
        write(tmp_path, "rank1.csv", b"\x7fELF" + bytes(range(256)) * 50),
        write(tmp_path, "rank2.csv", ""),
        write(tmp_path, "rank3.csv", "step,loss\n1,2\n"),
        write(tmp_path, "rank4.csv", "\0" * 4096),
        str(tmp_path / "rank5.csv"),
        str(tmp_path),
    ]
    reading = read(CSV_TABLES, *bad, good)
    assert [file.path for file in reading.inputs if file.read] == [good]
    assert all(file.why_not and "\n" not in file.why_not for file in reading.inputs if not file.read)
    assert len(reading.inputs) == 7
    assert reading.steps[0].ranks == (0,)


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"a":' * 100_000, '{"step": 1e999, "data_ms": 1}', '{"step": [1]}']
)
def test_hostile_lines_of_json_are_left_out(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, "rank0.jsonl", '{"step": 1, "data_ms": 2}\n' + line + "\n")
    assert only(read(JSON_ROWS, path)).sections[Section.DATA].tolist() == [[2]]


def test_absurd_ranks_and_steps_are_left_out(tmp_path: Path) -> None:
    csv = "rank,step,data_ms\n0,1,2\n1000000000000000000,1,2\n-1,1,2\n0,1e300,2\n0,2.5,2\n,3,2\n0,-4,2\n"
    timings = only(read(CSV_TABLES, write(tmp_path, "a.csv", csv)))
    assert (timings.ranks, timings.steps.tolist()) == ((0,), [1])


def test_a_restart_counts_the_later_row(tmp_path: Path) -> None:
    rows = [{"rank": 0, "step": s, "data_ms": 1} for s in range(6)]
    rows += [{"rank": 0, "step": s, "data_ms": 2} for s in range(3, 8)]
    reading = read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(rows)))
    assert only(reading).sections[Section.DATA][0].tolist() == [1, 1, 1, 2, 2, 2, 2, 2]
    assert notes_of(reading, NoteKind.RESTARTED)


def test_the_attempt_decides_which_row_is_later(tmp_path: Path) -> None:
    rows = [
        {"rank": 0, "attempt": 1, "step": 3, "data_ms": 2},
        {"rank": 0, "attempt": 0, "step": 3, "data_ms": 1},
    ]
    reading = read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(rows)))
    assert only(reading).sections[Section.DATA].tolist() == [[2]]
    assert any("attempts 0-1" in text for text in notes_of(reading, NoteKind.RESTARTED))


def test_files_of_attempts_are_one_run_and_the_later_counts(tmp_path: Path) -> None:
    first = write(tmp_path, "a/rank0.csv", csv_text([{"step": s, "data_ms": 1} for s in range(100)]))
    second = write(tmp_path, "b/rank0.csv", csv_text([{"step": s, "data_ms": 2} for s in range(90, 200)]))
    reading = read(CSV_TABLES, second, first)
    assert only(reading).sections[Section.DATA][0, [89, 90, 199]].tolist() == [1, 2, 2]
    assert notes_of(reading, NoteKind.RESTARTED) and not notes_of(reading, NoteKind.MIXED_RUNS)


def test_folders_with_the_same_ranks_and_steps_are_separate_runs(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, f"{run}/rank{rank}.csv", csv_text([{"step": s, "data_ms": rank} for s in range(9)]))
        for run in ("bad", "good")
        for rank in range(3)
    ]
    reading = read(CSV_TABLES, *paths)
    assert [timings.ranks for timings in reading.steps] == [(0, 1, 2), (0, 1, 2)]
    assert notes_of(reading, NoteKind.MIXED_RUNS)


def test_a_copy_of_a_file_is_noted_and_dropped(tmp_path: Path) -> None:
    rows = csv_text([{"step": s, "data_ms": 1} for s in range(9)])
    reading = read(CSV_TABLES, write(tmp_path, "rank0.csv", rows), write(tmp_path, "rank0.copy.csv", rows))
    assert only(reading).num_ranks == 1
    assert "rank 0 is in several files" in notes_of(reading, NoteKind.DUPLICATE_RANKS)[0]
    assert not notes_of(reading, NoteKind.RESTARTED) and not notes_of(reading, NoteKind.MIXED_RUNS)


@pytest.mark.parametrize(("reader", "text", "suffix"), BOTH)
def test_two_jobs_in_one_folder_are_judged_apart(tmp_path: Path, reader, text, suffix: str) -> None:
    paths = [
        write(tmp_path, f"{name}.{suffix}", text(long_rows(4, 20, forward_ms=forward)))
        for name, forward in (("onset", 50.0), ("healthy", 40.0))
    ]
    reading = read(reader, *paths)
    assert [timings.source.rpartition(" of ")[2] for timings in reading.steps] == [
        f"healthy.{suffix}",
        f"onset.{suffix}",
    ]
    assert [float(timings.sections[Section.FORWARD][0, 0]) for timings in reading.steps] == [40.0, 50.0]
    (note,) = notes_of(reading, NoteKind.MIXED_RUNS)
    assert f"`healthy.{suffix}`, `onset.{suffix}`" in note
    assert not notes_of(reading, NoteKind.DUPLICATE_RANKS) + notes_of(reading, NoteKind.RESTARTED)


def test_jobs_that_differ_in_one_rank_alone_are_no_copies(tmp_path: Path) -> None:
    healthy = long_rows(8, 20)
    slow = [{**row, "data_ms": 99.0} if row["rank"] == 7 else row for row in healthy]
    reading = read(
        CSV_TABLES, write(tmp_path, "a.csv", csv_text(healthy)), write(tmp_path, "b.csv", csv_text(slow))
    )
    assert [float(timings.sections[Section.DATA][7, 0]) for timings in reading.steps] == [8.5, 99.0]


def test_files_of_ranks_of_two_jobs_in_one_folder_are_told_apart_by_their_names(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, f"{run}_rank{rank}.csv", csv_text([{"step": s, "data_ms": value} for s in range(9)]))
        for run, value, ranks in (("bad", 7, range(2)), ("good", 3, range(4)))
        for rank in ranks
    ]
    reading = read(CSV_TABLES, *paths)
    assert [timings.ranks for timings in reading.steps] == [(0, 1), (0, 1, 2, 3)]
    assert [set(timings.sections[Section.DATA].ravel().tolist()) for timings in reading.steps] == [{7}, {3}]


def test_a_file_that_goes_on_where_another_ends_is_the_same_run_and_later_is_explained(
    tmp_path: Path,
) -> None:
    first = write(tmp_path, "x.csv", csv_text([{"rank": 0, "step": s, "data_ms": 1} for s in range(100)]))
    second = write(
        tmp_path, "y.csv", csv_text([{"rank": 0, "step": s, "data_ms": 2} for s in range(90, 200)])
    )
    reading = read(CSV_TABLES, second, first)
    assert only(reading).sections[Section.DATA][0, [89, 90, 199]].tolist() == [1, 2, 2]
    assert any("else of the later first step" in note for note in notes_of(reading, NoteKind.RESTARTED))


def test_a_world_that_changed_its_size_is_noted(tmp_path: Path) -> None:
    rows = [
        {"rank": r, "step": s, "world_size": 4 if s < 5 else 2, "data_ms": 1}
        for s in range(10)
        for r in range(4)
        if s < 5 or r < 2
    ]
    reading = read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(rows)))
    assert notes_of(reading, NoteKind.WORLD_CHANGED) == ["the world size changed: 2, 4 ranks"]


def test_units_that_differ_between_files_are_converted_and_noted(tmp_path: Path) -> None:
    one = write(tmp_path, "rank0.csv", csv_text([{"step": 1, "data_ms": 2}]))
    other = write(tmp_path, "rank1.csv", csv_text([{"step": 1, "data_us": 2000}]))
    reading = read(CSV_TABLES, one, other)
    assert only(reading).sections[Section.DATA].tolist() == [[2], [2]]
    assert "data in ms and us" in notes_of(reading, NoteKind.MIXED_UNITS)[0]


def test_parts_a_thousand_times_longer_than_their_step_are_refused(tmp_path: Path) -> None:
    rows = [{"step": s, "step_s": 140.0, "fwd_s": 0.04, "bwd_s": 0.09} for s in range(20)]
    text = why_not(read(CSV_TABLES, write(tmp_path, "rank0.csv", csv_text(rows))))
    assert text.startswith("in most rows the step is 1,556 times the longest part") and "step_s" in text


def test_a_small_part_beside_a_long_step_is_no_wrong_unit(tmp_path: Path) -> None:
    rows = [{"step": s, "step_ms": 900.0, "data_ms": 0.1} for s in range(20)]
    assert only(read(CSV_TABLES, write(tmp_path, "rank0.csv", csv_text(rows)))).num_steps == 20


def test_a_rank_whose_steps_are_in_another_unit_is_left_out_and_named(tmp_path: Path) -> None:
    paths = [
        write(
            tmp_path,
            f"rank{r}.csv",
            csv_text([{"step": s, "step_ms": 0.14 if r == 3 else 140.0, "data_ms": 0.01} for s in range(9)]),
        )
        for r in range(5)
    ]
    reading = read(CSV_TABLES, *paths)
    assert reading.steps[0].ranks == (0, 1, 2, 4)
    assert "rank 3" in notes_of(reading, NoteKind.MIXED_UNITS)[0]


def test_a_column_for_each_rank_is_a_table_too(tmp_path: Path) -> None:
    timings = only(
        read(CSV_TABLES, write(tmp_path, "a.csv", "step,rank0_ms,rank1_ms,r2_ms\n1,3,4,5\n2,6,,8\n"))
    )
    assert timings.ranks == (0, 1, 2)
    assert timings.sections[Section.STEP][0].tolist() == [3, 6]
    assert math.isnan(timings.sections[Section.STEP][1, 1])


def test_parts_of_single_ranks_are_told_apart(tmp_path: Path) -> None:
    timings = only(
        read(
            CSV_TABLES,
            write(tmp_path, "a.csv", "step,rank0_data_us,rank0_wait_us,rank1_data_us\n1,3000,4000,5000\n"),
        )
    )
    assert timings.sections[Section.DATA][:, 0].tolist() == [3, 5]
    assert timings.sections[Section.WAIT][0, 0] == 4


def test_only_whole_steps_are_said_to_name_nobody(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", csv_text([{"rank": r, "step": 1, "step_ms": 5} for r in range(2)]))
    assert any(
        "cannot name a slow rank" in text for text in notes_of(read(CSV_TABLES, path), NoteKind.LIMITED)
    )


def test_a_file_of_nobody_is_a_series_of_the_job(tmp_path: Path) -> None:
    reading = read(
        CSV_TABLES,
        write(tmp_path, "metrics.csv", csv_text([{"step": s, "step_time_ms": 5 + s} for s in range(4)])),
    )
    (series,) = reading.series
    assert (series.unit, series.values.tolist(), series.steps.tolist()) == ("ms", [5, 6, 7, 8], [0, 1, 2, 3])
    assert not reading.steps and any("tells no rank" in text for text in notes_of(reading, NoteKind.LIMITED))


def test_rows_of_several_ranks_without_a_rank_are_not_taken_for_one(tmp_path: Path) -> None:
    reading = read(
        CSV_TABLES,
        write(tmp_path, "metrics.csv", csv_text([{"step": s // 4, "step_ms": 5} for s in range(16)])),
    )
    assert not reading.steps and not reading.series
    assert any("nothing tells which ranks" in text for text in notes_of(reading, NoteKind.LIMITED))


def test_rows_without_step_numbers_are_counted_and_noted(tmp_path: Path) -> None:
    reading = read(CSV_TABLES, write(tmp_path, "a.csv", "rank,data_ms\n0,1\n1,5\n0,2\n1,6\n"))
    assert only(reading).sections[Section.DATA].tolist() == [[1, 2], [5, 6]]
    assert any("no number of the step" in text for text in notes_of(reading, NoteKind.LIMITED))


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("ts", "1760000000", "1760000002"),
        ("ts_ms", "1760000000000", "1760000002000"),
        ("time_us", "1760000000000000", "1760000002000000"),
        ("timestamp", "2025-10-09T08:53:20Z", "2025-10-09T08:53:22Z"),
        ("start_time", "2025-10-09T10:53:20+02:00", "2025-10-09T10:53:22+02:00"),
        ("timestamp", "2025-10-09 08:53:20.000", "2025-10-09 08:53:22.000"),
    ],
)
def test_times_of_day_are_read(tmp_path: Path, name: str, first: str, second: str) -> None:
    reading = read(
        CSV_TABLES, write(tmp_path, "rank0.csv", f"step,{name},data_ms\n1,{first},5\n2,{second},5\n")
    )
    started = only(reading).started_s
    assert started is not None and started.tolist() == [1760000000, 1760000002]
    assert any("no zone" in text for text in notes_of(reading, NoteKind.LIMITED)) == (second[-4:] == ".000")


def test_time_in_ms_that_is_no_time_of_day_is_the_time_of_the_step(tmp_path: Path) -> None:
    timings = only(read(CSV_TABLES, write(tmp_path, "rank0.csv", "step,time_ms\n1,140\n2,150\n")))
    assert timings.sections[Section.STEP].tolist() == [[140, 150]] and timings.started_s is None


def test_a_clock_that_went_back_is_noted(tmp_path: Path) -> None:
    path = write(tmp_path, "rank0.csv", "step,ts,data_ms\n1,1760000000,5\n2,1759999000,5\n3,1760000002,5\n")
    assert notes_of(read(CSV_TABLES, path), NoteKind.CLOCK_JUMP)


def test_a_range_of_steps_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", csv_text(long_rows(steps=50)))
    assert only(read(CSV_TABLES, path, first_step=10, last_step=12)).steps.tolist() == [10, 11, 12]


def test_large_files_read_the_same_by_either_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = job(ranks=8, steps=400)
    rows = [
        {
            "rank": r,
            "step": s,
            "host": f"h{r // 4}",
            "data_ms": f"{times[Section.DATA][r, s]:.4f}",
            "wait_ms": f"{times[Section.WAIT][r, s]:.4f}",
        }
        for s in range(400)
        for r in range(8)
    ]
    path = write(tmp_path, "a.csv", "# two lines\n# before\n" + csv_text(rows) + "3,9\n")
    by_module = read(CSV_TABLES, path)
    monkeypatch.setattr("distdoctor.straggler.readers.csv_table._LARGE_BYTES", 0)
    by_pyarrow = read(CSV_TABLES, path)
    assert only(by_module).places == only(by_pyarrow).places
    for section in (Section.DATA, Section.WAIT):
        np.testing.assert_array_equal(only(by_module).sections[section], only(by_pyarrow).sections[section])
    assert notes_of(by_module, NoteKind.DROPPED_VALUES) == notes_of(by_pyarrow, NoteKind.DROPPED_VALUES)


def test_time_since_the_start_is_not_taken_for_the_time_of_a_step(tmp_path: Path) -> None:
    rows = [{"step": s, "elapsed_s": 10 + 0.5 * s, "data_ms": 2} for s in range(1, 60)]
    reading = read(CSV_TABLES, write(tmp_path, "rank0.csv", csv_text(rows)))
    assert set(only(reading).sections) == {Section.DATA}
    assert any(
        "elapsed_s (grows with every step)" in text for text in notes_of(reading, NoteKind.DROPPED_VALUES)
    )
    alone = csv_text([{"step": row["step"], "elapsed_s": row["elapsed_s"]} for row in rows])
    assert "time since the start" in why_not(read(CSV_TABLES, write(tmp_path, "rank1.csv", alone)))


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (0.061, "values around 0.061: seconds? then `--unit s`; that is a guess by their size"),
        (61.0, "values around 61: milliseconds? then `--unit ms`; that is a guess by their size"),
        (610_000.0, "values around 6.1e+05: microseconds? then `--unit us`; that is a guess by their size"),
        (7.0, "values around 7: their size does not tell the unit"),
    ],
)
@pytest.mark.parametrize(("reader", "text", "suffix"), BOTH)
def test_all_columns_without_a_unit_are_named_with_a_guess(
    tmp_path: Path, reader, text, suffix: str, value: float, hint: str
) -> None:
    table = [{"step": s, "rank": 0, "forward": value, "data": value / 100, "wait": 0} for s in range(9)]
    why = why_not(read(reader, write(tmp_path, f"a.{suffix}", text(table))))
    assert why == (
        "columns `forward`, `data`, `wait` have no unit: name them forward_ms … or give `--unit ms`; " + hint
    )


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.061, "ms", "0.061 ms"),
        (61.0, "ms", None),
        (0.061, "s", None),
        (6100, "s", "102 min"),
        (0.061, None, None),
    ],
)
def test_a_given_unit_that_can_hardly_be_is_doubted(
    tmp_path: Path, value: float, unit: str | None, shown: str | None
) -> None:
    name = "step_time" if unit else "step_time_ms"
    table = [{"step": s, "rank": r, name: value, "data": 0.01 * value} for s in range(9) for r in range(2)]
    if unit is None:
        table = [{key: cell for key, cell in row.items() if key != "data"} for row in table]
    reading = read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table)), unit=unit)
    assert reading.steps
    doubts = [note for note in notes_of(reading, NoteKind.LIMITED) if "the unit may be wrong" in note]
    assert len(doubts) == (shown is not None)
    assert shown is None or shown in doubts[0]


@pytest.mark.parametrize(("reader", "text", "suffix"), BOTH)
def test_cells_with_units_are_read_as_what_they_say(tmp_path: Path, reader, text, suffix: str) -> None:
    table = [
        {"step": s, "rank": r, "forward": "61.7ms" if r else "0.0617 s", "data_us": "2 ms", "wait_ms": 5}
        for s in range(9)
        for r in range(2)
    ]
    timings = only(read(reader, write(tmp_path, f"a.{suffix}", text(table))))
    assert timings.sections[Section.FORWARD][:, 0] == pytest.approx([61.7, 61.7])
    assert timings.sections[Section.DATA][:, 0] == pytest.approx([2, 2])


def test_a_column_in_which_some_cells_have_units_is_refused(tmp_path: Path) -> None:
    table = [{"step": s, "rank": 0, "forward": "61.7ms" if s % 2 else 61.7} for s in range(9)]
    why = why_not(read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table))))
    assert "some times have a unit and some have none" in why


def test_cells_with_other_units_are_no_times(tmp_path: Path) -> None:
    table = [{"step": s, "rank": 0, "forward": "61.7MB"} for s in range(9)]
    assert "holds text, such as `61.7MB`" in why_not(
        read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table)))
    )
