"""Our own recordings: rows, attempts, torn ends, newer versions, collectives and telemetry."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.telemetry import Metric
from distdoctor.straggler.readers.jsonl_table import JSON_ROWS
from distdoctor.straggler.readers.recording import RECORDINGS
from distdoctor.straggler.recording_format import COLLECTIVES_KEY, STEP_COLUMN, TIMING_KEY, section_column
from straggler.readers.row_builders import (
    RecordingWriter,
    collectives_name,
    collectives_text,
    notes_of,
    only,
    read,
    sniffed,
    why_not,
    write,
)

COLUMNS = ["step", "start_ms", "data_us", "forward_us", "backward_us", "wait_us"]
HEADER = {
    "world_size": 2,
    "host": "node-4",
    "pod": "train-0",
    "local_rank": 1,
    "gpu": {"index": 1, "uuid": "GPU-1", "pci": "0000:18:00.0", "model": "H100"},
    "coords": {"PP": 0, "dp": 1},
    "attempt": 0,
    "started_utc": "2026-01-31T12:00:00Z",
    "clock": "cuda events",
}


def test_a_recording_is_read_with_its_place_and_its_times(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, 1, COLUMNS, **HEADER)
    writer.row(7, 0, 1500, 40000, 80000, None)
    writer.event("overhead", us_per_step=12)
    writer.row(8, 500, 1600, 40100, 80100, 5000)
    writer.event("end")
    path = str(writer.path)
    assert sniffed(RECORDINGS, path) == 1 and sniffed(JSON_ROWS, path) == 0
    reading = read(RECORDINGS, path)
    timings = only(reading)
    (place,) = timings.places
    assert (place.rank, place.host, place.pod, place.local_rank, place.coords) == (
        1,
        "node-4",
        "train-0",
        1,
        {"pp": 0, "dp": 1},
    )
    assert place.gpu is not None and (place.gpu.pci, place.gpu.index) == ("0000:18:00.0", 1)
    assert timings.sections[Section.DATA].tolist() == [[pytest.approx(1.5), pytest.approx(1.6)]]
    assert math.isnan(timings.sections[Section.WAIT][0, 0]) and timings.sections[Section.WAIT][0, 1] == 5
    assert timings.started_s is not None and timings.started_s.tolist() == [1769860800.0, 1769860800.5]
    assert notes_of(reading, NoteKind.MISSING_RANKS) == ["1 of 2 ranks have no file here: 0"]


def test_a_line_that_the_job_died_in_is_dropped(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, 0, ["step", "data_us"])
    writer.row(0, 1000)
    writer.row(1, 1000)
    whole = writer.path.read_bytes()
    for num_bytes in range(len(whole) - 8, len(whole)):
        writer.path.write_bytes(whole[:num_bytes])
        reading = read(RECORDINGS, str(writer.path))
        assert only(reading).steps.tolist() == ([0] if num_bytes < len(whole) else [0, 1])
    assert notes_of(reading, NoteKind.CUT_SHORT)


def test_nul_bytes_and_broken_lines_cost_only_their_rows(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, 0, ["step", "data_us"])
    writer.row(0, 1000)
    with writer.path.open("ab") as file:
        file.write(
            b"\0" * 3000 + b'[1,"x"]\n[2]\n[3,4,5]\n{"event":\nnot json\n[4,1e400]\n' + b"[" * 60_000 + b"\n"
        )
    writer.row(5, 3000)
    reading = read(RECORDINGS, str(writer.path))
    timings = only(reading)
    assert {0, 5} <= set(timings.steps.tolist()) <= {0, 4, 5}
    assert notes_of(reading, NoteKind.CUT_SHORT) and notes_of(reading, NoteKind.DROPPED_VALUES)


def test_a_restart_that_appends_to_the_file_counts_behind_the_first_attempt(tmp_path: Path) -> None:
    first = RecordingWriter(tmp_path, 0, ["step", "data_us"], attempt=0)
    for step in range(5):
        first.row(step, 1000)
    # The second attempt writes other columns.
    second = RecordingWriter(tmp_path, 0, ["step", "wait_us", "data_us"], attempt=1)
    for step in range(3, 7):
        second.row(step, 9000, 2000)
    reading = read(RECORDINGS, str(second.path))
    assert only(reading).sections[Section.DATA].tolist() == [[1, 1, 1, 2, 2, 2, 2]]
    assert any("attempts 0-1" in text for text in notes_of(reading, NoteKind.RESTARTED))


def test_attempts_in_separate_folders_are_put_in_order(tmp_path: Path) -> None:
    late = RecordingWriter(tmp_path / "a", 0, ["step", "data_us"], attempt=1)
    early = RecordingWriter(tmp_path / "b", 0, ["step", "data_us"], attempt=0)
    for step in range(100):
        early.row(step, 1000)
        late.row(step + 95, 2000)
    reading = read(RECORDINGS, str(late.path), str(early.path))
    assert only(reading).sections[Section.DATA][0, [94, 95, 99]].tolist() == [1, 2, 2]


def test_unknown_columns_are_ignored_with_a_note(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, 0, ["step", "data_us", "sparkle_us"])
    writer.row(0, 1000, 5)
    reading = read(RECORDINGS, str(writer.path))
    assert set(only(reading).sections) == {Section.DATA}
    assert notes_of(reading, NoteKind.DROPPED_VALUES) == ["columns that are not used: `sparkle_us`"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            '{"distdoctor_timing":2,"rank":0,"columns":["step"]}',
            "it is of format 2, and this distdoctor reads up to 1; install a newer distdoctor",
        ),
        ('{"distdoctor_timing":true,"rank":0,"columns":["step"]}', "its header has no version"),
        ('{"distdoctor_timing":1,"columns":["step","data_us"]}', "its header tells no rank"),
        ('{"distdoctor_timing":1,"rank":1000000000000000000,"columns":["step"]}', "its header tells no rank"),
        (
            '{"distdoctor_timing":1,"rank":0,"columns":"step"}',
            "its header names no columns, or none called `step`",
        ),
        ('{"distdoctor_timing":1,"ra', "its first line is no header"),
        ("[1,2,3]", "its first line is no header"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused_in_words(tmp_path: Path, line: str, why: str) -> None:
    assert why_not(read(RECORDINGS, write(tmp_path, "rank-0.timing.jsonl", line + "\n"))) == why


def test_a_file_cut_within_its_header_is_refused_in_words(tmp_path: Path) -> None:
    path = write(tmp_path, "rank-0.timing.jsonl", '{"distdoctor_timing":1,"ra')
    assert why_not(read(RECORDINGS, path)) == "it ends within its first line"


def test_an_empty_recording_is_read_and_has_no_steps(tmp_path: Path) -> None:
    reading = read(RECORDINGS, str(RecordingWriter(tmp_path, 0, ["step", "data_us"]).path))
    assert not reading.steps and reading.inputs[0].read


def test_what_the_recorder_noted_becomes_notes(tmp_path: Path) -> None:
    for rank in range(3):
        writer = RecordingWriter(tmp_path, rank, ["step", "data_us"])
        writer.row(0, 1)
        writer.event("restart")
        writer.event("collectives", count=0)
        writer.event("note", text="no CUDA events")
    reading = read(RECORDINGS, *(str(path) for path in sorted(tmp_path.iterdir())))
    assert notes_of(reading, NoteKind.RESTARTED) == ["ranks 0-2 were restarted"]
    assert notes_of(reading, NoteKind.NOT_COLLECTIVE) == ["the recorder saw no collectives on ranks 0-2"]
    assert "the recorder of ranks 0-2 says: no CUDA events" in notes_of(reading, NoteKind.LIMITED)


def test_telemetry_between_the_rows_becomes_series(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, 1, COLUMNS, **HEADER)
    writer.event("telemetry", at_ms=1000, sm_mhz=1755, temp_c=61, power_w=None)
    writer.event("telemetry", at_ms=2000, sm_mhz=1065, temp_c=84)
    (telemetry,) = read(RECORDINGS, str(writer.path)).telemetry
    series = {each.metric: each for each in telemetry.series}
    assert set(series) == {Metric.SM_CLOCK, Metric.TEMPERATURE}
    assert series[Metric.SM_CLOCK].values.tolist() == [1755, 1065]
    assert series[Metric.SM_CLOCK].utc_s.tolist() == [1769860801, 1769860802]
    assert series[Metric.SM_CLOCK].gpu.uuid == "GPU-1"


def test_a_step_of_eight_sections_takes_less_than_a_hundred_bytes() -> None:
    columns = [STEP_COLUMN, "start_ms", *(section_column(section) for section in list(Section)[:8])]
    # A million steps of up to a minute, a month after the start.
    row = [999_999, 30 * 86_400_000, *([59_999_999] + [9_999_999] * 6 + [59_999_999])]
    assert len(columns) == len(row)
    assert len(json.dumps(row, separators=(",", ":")) + "\n") <= 100


def test_collectives_of_all_ranks_are_put_on_one_footing(tmp_path: Path) -> None:
    groups = [{"name": "world", "size": 2}, {"name": "dp", "ranks": [0, 1], "what": "mesh_dp"}]
    paths = [
        write(
            tmp_path,
            collectives_name(0),
            collectives_text(
                0, groups, [[3, 1, 0, 10, 500, 4096], [3, 0, 1, 4, 70, None]], world_size=2, host="a"
            ),
        ),
        write(
            tmp_path,
            collectives_name(1),
            collectives_text(1, groups[::-1], [[3, 0, 0, 10, 90, 4096]], world_size=2, host="b"),
        ),
    ]
    assert sniffed(RECORDINGS, paths[0]) == 1
    (found,) = read(RECORDINGS, *paths).collectives
    named = [
        (int(r), found.groups[g].name, found.ops[o], int(q), float(d), int(b))
        for r, g, o, q, d, b in zip(
            found.rank, found.group, found.op, found.seq, found.duration_us, found.num_bytes, strict=True
        )
    ]
    assert named == [
        (0, "dp", "all_reduce", 10, 500.0, 4096),
        (0, "world", "all_gather", 4, 70.0, -1),
        (1, "dp", "all_reduce", 10, 90.0, 4096),
    ]
    assert [place.host for place in found.places] == ["a", "b"] and found.world_size == 2
    assert found.groups[int(found.group[0])].ranks == (0, 1)


def test_collectives_of_unknown_groups_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        [1, 0, 0, 1, 50, 1],
        [1, 9, 0, 2, 50, 1],
        [1, 0, 77, 3, 50, 1],
        [1, 0, 0, 4, None, 1],
        [1, 0, 0, 5, -4, 1],
    ]
    reading = read(RECORDINGS, write(tmp_path, collectives_name(0), collectives_text(0, ["world"], rows)))
    (found,) = reading.collectives
    assert found.seq.tolist() == [1, 3]
    assert [found.ops[index] for index in found.op] == ["all_reduce", "unknown"]
    assert notes_of(reading, NoteKind.DROPPED_VALUES)[0].startswith("3 collectives")


def test_groups_that_are_made_later_are_known(tmp_path: Path) -> None:
    late = json.dumps({"event": "groups", "groups": [{"name": "ep", "size": 4}], "ops": ["all_to_all"]})
    text = collectives_text(0, ["world"], [[1, 0, 0, 1, 50, 1]]) + late + "\n[2,1,2,1,60,1]\n"
    (found,) = read(RECORDINGS, write(tmp_path, collectives_name(0), text)).collectives
    assert found.groups[int(found.group[1])].name == "ep" and found.ops[int(found.op[1])] == "all_to_all"


DOCS = Path(__file__).parents[3] / "docs" / "straggler-recording.md"


def test_the_page_and_the_reader_agree_on_names(tmp_path: Path) -> None:
    page = DOCS.read_text()
    assert all(f"`{section.value}`" in page for section in Section)
    for key in (TIMING_KEY, COLLECTIVES_KEY):
        assert f'{{"{key}": 1,' in page
    for event in ("restart", "collectives", "telemetry", "note", "overhead", "end"):
        assert f"| `{event}` |" in page
    header, _, rest = page.partition('{"distdoctor_timing": 1,')[2].partition("\n\n")
    row = next(line.strip() for line in rest.splitlines() if line.strip().startswith("["))
    text = '{"distdoctor_timing": 1,' + " ".join(header.split()) + "\n" + row + "\n"
    timings = only(read(RECORDINGS, write(tmp_path, "rank-11.timing.jsonl", text)))
    assert timings.places[0].coords == {"pp": 0, "dp": 11}
    assert timings.sections[Section.STEP][0, 0] == pytest.approx(137.261)
    assert len(row) + 1 == 50


def test_the_example_of_collectives_on_the_page_is_read(tmp_path: Path) -> None:
    lines = DOCS.read_text().partition('{"distdoctor_collectives": 1,')[2].partition("\n\n")[0].splitlines()
    header = '{"distdoctor_collectives": 1,' + " ".join(line.strip() for line in lines[:-1])
    (found,) = read(RECORDINGS, write(tmp_path, "a.jsonl", f"{header}\n{lines[-1].strip()}\n")).collectives
    assert (found.groups[int(found.group[0])].ranks, found.ops[int(found.op[0])]) == ((3, 11), "all_reduce")
