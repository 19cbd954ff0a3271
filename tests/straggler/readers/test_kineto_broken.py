"""Kineto traces that are cut, broken, huge or absurd: one costs itself only, and what was lost is said."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.kineto import KINETO
from distdoctor.straggler.readers.kineto.intervals import Busy, union_us
from straggler.readers.kineto_traces import NCCL, TraceBuilder, rank_trace


def read(*paths: str | Path) -> Reading:
    return KINETO.read([str(path) for path in paths], ReadOptions())


def notes(reading: Reading, kind: NoteKind) -> list[str]:
    return [note.text for note in reading.notes if note.kind is kind]


@pytest.fixture
def good(tmp_path: Path) -> str:
    return rank_trace(1).write(tmp_path / "rank-1.json")


@pytest.mark.parametrize("style", ["spaced", "compact", "indented"])
def test_of_a_cut_trace_marks_and_collectives_are_kept_but_no_sums(
    tmp_path: Path, good: str, style: str
) -> None:
    text = rank_trace(0).text(style)
    path = tmp_path / "rank-0.json"
    path.write_text(text[: int(len(text) * 0.8)])
    reading = read(path, good)
    compute = reading.steps[0].sections[Section.COMPUTE]
    assert np.all(np.isnan(compute[0]))
    assert compute[1].tolist() == [pytest.approx(3.0)] * 3
    assert not np.isnan(reading.steps[0].sections[Section.STEP][0, 0])
    assert set(reading.collectives[0].rank.tolist()) == {0, 1}
    (note,) = notes(reading, NoteKind.CUT_SHORT)
    assert "`rank-0.json` ends in the middle" in note
    assert "events up to there were read" in note


def test_a_cut_inside_compressed_data_is_a_cut(tmp_path: Path, good: str) -> None:
    rng = random.Random(0)
    trace = rank_trace(0)
    for index in range(500):
        trace.event("cpu_op", f"aten::op{rng.random()}", 1_000_000 + index, rng.random())
    data = gzip.compress(trace.text().encode())
    path = tmp_path / "rank-0.json.gz"
    path.write_bytes(data[: len(data) // 2])
    reading = read(path, good)
    assert notes(reading, NoteKind.CUT_SHORT)
    assert all(file.read for file in reading.inputs)


def test_every_possible_cut_is_read_without_an_error(tmp_path: Path) -> None:
    data = rank_trace(0, num_steps=1, world_size=1).text().encode()
    path = tmp_path / "rank-0.json"
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        (file,) = read(path).inputs
        assert file.read or file.why_not


def test_a_broken_event_costs_itself(tmp_path: Path, good: str) -> None:
    trace = rank_trace(0)
    trace.event("cpu_op", "aten::mm", 1_000_000, 5.0, {"x": "BROKEN"})
    text = trace.text().replace('"BROKEN"', '"a" "b"')
    path = tmp_path / "rank-0.json"
    path.write_text(text)
    reading = read(path, good)
    assert "1 of " in notes(reading, NoteKind.DROPPED_VALUES)[0]
    assert not notes(reading, NoteKind.CUT_SHORT)


def test_numbers_that_are_no_json_are_read_as_null(tmp_path: Path) -> None:
    trace = rank_trace(0, world_size=1)
    for event in trace.events:
        event["args"]["memory bandwidth (GB/s)"] = "INF"
    path = tmp_path / "rank-0.json"
    path.write_text(trace.text().replace('"INF"', "inf"))
    reading = read(path)
    assert reading.steps[0].sections[Section.COMPUTE].tolist() == [[pytest.approx(3.0)] * 3]
    assert not notes(reading, NoteKind.DROPPED_VALUES)


@pytest.mark.parametrize("value", ["-5.0", "1e308", "null", '"soon"', "1e400", "99999999999999999999"])
def test_absurd_durations_are_left_out_and_counted(tmp_path: Path, value: str) -> None:
    trace = rank_trace(0, world_size=1)
    trace.kernel(1_000_800, 123.456, launched=1_000_700)
    path = tmp_path / "rank-0.json"
    path.write_text(trace.text().replace("123.456", value))
    reading = read(path)
    assert reading.steps[0].sections[Section.STEP][0, 0] == pytest.approx(9.9)
    assert "1 of " in notes(reading, NoteKind.DROPPED_VALUES)[0]


@pytest.mark.parametrize("rank", ["1000000000000000000", "-1", '"x"', "1e300", "null", "[]"])
def test_an_absurd_rank_is_none(tmp_path: Path, rank: str) -> None:
    path = tmp_path / "rank-3.json"
    path.write_text(rank_trace(77).text().replace('"rank": 77', f'"rank": {rank}'))
    assert read(path).steps[0].ranks == (3,)


def test_metadata_that_is_no_json_still_gives_the_rank(tmp_path: Path) -> None:
    trace = rank_trace(4, world_size=8, extra={"job": "PLACE"})
    path = tmp_path / "trace.json"
    path.write_text(trace.text().replace('"PLACE"', '"C:\\new"x"'))
    timings = read(path).steps[0]
    assert timings.ranks == (4,)
    assert timings.world_size == 8


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 5000,
        b'{"schemaVersion": 1, "traceEvents": []}',
        b'{"schemaVersion": 1, "traceEvents": [' + b"[" * 100_000,
        b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "args": ' + b'{"a": ' * 100_000,
        b'{"schemaVersion": 1, "nodes": [1, 2]}',
        b'{"traceEvents": [{"ph": "X", "cat": "xla", "name": "fusion", "ts": 1, "dur": 2}]}',
        b"\x1f\x8b\x08\x00nonsense",
        '{"schemaVersion": 1, "traceEvents": []}'.encode("utf-16"),
    ],
)
def test_what_is_no_trace_costs_only_itself(tmp_path: Path, good: str, data: bytes) -> None:
    path = tmp_path / "rank-0.json"
    path.write_bytes(data)
    reading = read(path, good)
    assert reading.steps[0].ranks == (1,)
    assert [file.read for file in reading.inputs] == [False, True]
    assert reading.inputs[0].why_not


def test_files_that_cannot_be_opened_cost_only_themselves(tmp_path: Path, good: str) -> None:
    (tmp_path / "folder.json").mkdir()
    reading = read(tmp_path / "missing.json", tmp_path / "folder.json", good, good)
    assert [file.read for file in reading.inputs] == [False, False, True]
    assert reading.steps[0].ranks == (1,)


def test_nothing_but_bad_files_gives_no_facts(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    reading = read(path)
    assert not reading.steps
    assert not reading.collectives


def test_blocks_are_cut_between_events_whatever_stands_in_strings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdoctor.straggler.readers.kineto.blocks.BLOCK_BYTES", 4096)
    monkeypatch.setattr("distdoctor.evidence.CHUNK_BYTES", 1500)
    for style in ("spaced", "compact", "behind", "indented", "name first"):
        trace = TraceBuilder(world_size=1)
        trace.step(1, 0, 10_000_000)
        for index in range(300):
            name = 'x {"ph": "X"}, {"name": 1}, \\" ]} {lambda()#1}, {lambda' + "y" * (index % 90)
            trace.kernel(100.0 + 20 * index, 10.0, name, nested=[{"a": 1}, {"b": [{"c": {}}]}], grid=[1, 2])
        reading = read(trace.write(tmp_path / "rank-0.json", style))
        assert reading.steps[0].sections[Section.COMPUTE][0, 0] == pytest.approx(3.0), style
        assert not [note for note in reading.notes if note.kind is not NoteKind.NOT_COLLECTIVE], style


def test_a_bomb_of_collectives_is_not_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distdoctor.straggler.readers.kineto.gather.MAX_COLLECTIVES", 100)
    monkeypatch.setattr("distdoctor.straggler.readers.kineto.blocks.BLOCK_BYTES", 4096)
    monkeypatch.setattr("distdoctor.evidence.CHUNK_BYTES", 4096)
    trace = TraceBuilder(world_size=1)
    for index in range(5000):
        trace.kernel(index, 0.5, NCCL)
    reading = read(trace.write(tmp_path / "rank-0.json"))
    assert notes(reading, NoteKind.CUT_SHORT)
    assert len(reading.collectives[0].rank) < 2000


def test_hundreds_of_traces_with_a_bad_one_are_read(tmp_path: Path) -> None:
    paths = []
    for rank in range(200):
        trace = TraceBuilder(rank=rank, world_size=200)
        trace.step(1, 0, 1000)
        trace.kernel(100, 200 + rank)
        paths.append(trace.write(tmp_path / f"rank-{rank}.json"))
    Path(paths[77]).write_bytes(b"\0")
    reading = read(*paths)
    assert reading.steps[0].num_ranks == 199
    assert [file.path for file in reading.inputs if not file.read] == [paths[77]]


TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=30)


@settings(max_examples=100, deadline=None)
@given(TIMES, st.integers(0, 90))
def test_unions_are_what_counting_microseconds_gives(times: list[tuple[int, int]], until: int) -> None:
    covered = {at for start, dur in times for at in range(start, start + dur)}
    start = np.array([start for start, _ in times], dtype=float)
    end = start + np.array([dur for _, dur in times], dtype=float)
    assert union_us(start, end) == len(covered)
    assert Busy.of(start, end).until(np.array([float(until)]))[0] == len([at for at in covered if at < until])


def test_json_of_the_builder_is_json() -> None:
    for style in ("spaced", "compact", "behind", "indented", "name first"):
        assert json.loads(rank_trace(0).text(style))["traceEvents"]
