"""Tables with a row for each time: step, rank, name, value."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.from_files import read_evidence_files
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.csv_table import CSV_TABLES
from distdoctor.straggler.readers.jsonl_table import JSON_ROWS
from straggler.readers.row_builders import csv_text, jsonl_text, notes_of, only, read, sniffed, why_not, write

BOTH = [(CSV_TABLES, csv_text, "csv"), (JSON_ROWS, jsonl_text, "jsonl")]

MS = {"data": 2.0, "forward": 40.0, "step": 140.0}


def rows(
    name: str, value: str, *, scale: float = 1.0, steps: range = range(6), **more: object
) -> list[dict[str, object]]:
    return [
        {"step": step, "rank": rank, name: metric, value: (ms + rank) * scale, **more}
        for step in steps
        for metric, ms in MS.items()
        for rank in range(4)
    ]


@pytest.mark.parametrize(("reader", "text", "suffix"), BOTH)
@pytest.mark.parametrize("name", ["metric", "name", "section", "phase", "key"])
@pytest.mark.parametrize(
    ("value", "scale", "more"),
    [("value_ms", 1, {}), ("value", 1e-3, {"unit": "s"}), ("duration_us", 1e3, {})],
)
def test_names_in_rows_become_sections(
    tmp_path: Path, reader, text, suffix: str, name: str, value: str, scale: float, more: dict[str, object]
) -> None:
    path = write(tmp_path, f"times.{suffix}", text(rows(name, value, scale=scale, **more)))
    assert sniffed(reader, path) >= 0.5
    timings = only(read(reader, path))
    assert timings.ranks == (0, 1, 2, 3)
    assert timings.steps.tolist() == list(range(6))
    assert timings.sections[Section.DATA][:, 0] == pytest.approx([2, 3, 4, 5])
    assert timings.sections[Section.FORWARD][:, 5] == pytest.approx([40, 41, 42, 43])
    assert timings.sections[Section.STEP][3] == pytest.approx([143] * 6)


@pytest.mark.parametrize(("reader", "text", "suffix"), BOTH)
def test_values_without_a_unit_need_one(tmp_path: Path, reader, text, suffix: str) -> None:
    path = write(tmp_path, f"times.{suffix}", text(rows("metric", "value")))
    assert "no unit" in why_not(read(reader, path))
    timings = only(read(reader, path, unit="s"))
    assert timings.sections[Section.STEP][0, 0] == 140_000


def test_a_unit_that_is_none_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", csv_text(rows("metric", "value", unit="furlongs")))
    assert why_not(read(CSV_TABLES, path)) == "`furlongs` in column `unit` is no unit of time"


def test_a_name_and_a_value_that_disagree_are_refused(tmp_path: Path) -> None:
    table = [{"step": 0, "rank": 0, "metric": "fwd_ms", "value_s": 0.1}]
    assert "disagree" in why_not(read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table))))


def test_names_that_are_no_times_are_told_and_left_out(tmp_path: Path) -> None:
    table = [
        *rows("metric", "value_ms"),
        *({"step": s, "rank": 0, "metric": "loss", "value_ms": 2} for s in range(6)),
    ]
    reading = read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table)))
    assert set(only(reading).sections) == {Section.DATA, Section.FORWARD, Section.STEP}
    assert "`loss`" in " ".join(notes_of(reading, NoteKind.DROPPED_VALUES))


def test_hosts_and_coordinates_stay(tmp_path: Path) -> None:
    table = [
        {**row, "host": f"node-{int(row['rank']) // 2}", "dp": row["rank"]}
        for row in rows("metric", "value_ms")
    ]  # type: ignore[call-overload]
    timings = only(read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table))))
    assert [place.host for place in timings.places] == ["node-0", "node-0", "node-1", "node-1"]
    assert timings.places[3].coords == {"dp": 3}


def test_steps_told_again_are_a_restart_and_the_later_count(tmp_path: Path) -> None:
    table = rows("metric", "value_ms", steps=range(30)) + rows(
        "metric", "value_ms", scale=2, steps=range(25, 60)
    )
    reading = read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table)))
    assert only(reading).sections[Section.DATA][0, [24, 25, 59]].tolist() == [2, 4, 4]
    assert notes_of(reading, NoteKind.RESTARTED)


def test_several_values_of_one_step_are_refused(tmp_path: Path) -> None:
    table = [
        {"step": step, "rank": 0, "metric": "forward", "value_ms": 40 + micro}
        for step in range(20)
        for micro in range(4)
    ]
    assert "several rows for one step" in why_not(read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table))))


def test_a_job_s_name_beside_times_is_no_name_of_a_time(tmp_path: Path) -> None:
    table = [{"name": "run-7", "rank": 0, "step": step, "duration_ms": 140} for step in range(6)]
    assert (
        only(read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table)))).sections[Section.STEP][0, 0] == 140
    )


def test_a_table_without_times_is_refused_with_the_columns_that_it_has(tmp_path: Path) -> None:
    table = [{"step": 1, "rank": 0, "host": "a", **{f"acc{i}": 1 for i in range(20)}}]
    why = why_not(read(CSV_TABLES, write(tmp_path, "a.csv", csv_text(table))))
    assert "its columns: `step`, `rank`, `host`, `acc0`, `acc1`, `acc2`, `acc3`, `acc4` …" in why
    assert "known names: step, rank, step_ms" in why


def test_numbers_without_a_header_are_refused_by_the_reader_of_tables(tmp_path: Path) -> None:
    good = write(
        tmp_path,
        "good.csv",
        csv_text([{"step": s, "rank": r, "data_ms": 1} for s in range(3) for r in range(2)]),
    )
    bad = write(tmp_path, "bad.csv", "0,0,61.7\n0,1,61.9\n1,0,60.0\n")
    reading = read_evidence_files([good, bad], ReadOptions())
    assert [each.why_not for each in reading.inputs if not each.read] == [
        "the first line has no names; add a header such as step,rank,forward_ms"
    ]
