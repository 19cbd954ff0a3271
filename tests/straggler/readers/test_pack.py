"""Packing: what goes in comes out, section by section, and nothing is overwritten."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.errors import InputError, OutputError
from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.pack import pack
from distdoctor.straggler.packed_format import METADATA_KEY, stretches
from distdoctor.straggler.readers.arrow_table import ARROW_TABLES
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.csv_table import CSV_TABLES
from distdoctor.straggler.readers.kineto import KINETO
from distdoctor.straggler.readers.packed import PACKED_FILES, PackedSections
from distdoctor.straggler.readers.recording import RECORDINGS
from straggler.readers.kineto_traces import rank_trace
from straggler.readers.row_builders import RecordingWriter, csv_text, notes_of, only, read, sniffed, write

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SECTIONS = [Section.DATA, Section.FORWARD, Section.WAIT]


def recorded(
    folder: Path, *, ranks: list[int], steps: list[int], a_host: int = 2, world_size: int = 8
) -> list[str]:
    paths = []
    for rank in ranks:
        writer = RecordingWriter(
            folder, rank, ["step", "start_ms", "data_us", "forward_us", "wait_us"], host=f"node-{rank // a_host}",
            local_rank=rank % a_host, world_size=world_size, coords={"dp": rank}, started_utc="2026-01-31T12:00:00Z",
            gpu={"uuid": f"GPU-{rank}"},
        )  # fmt: skip
        for step in steps:
            writer.row(step, step * 10, rank * 1000 + step, None if step % 3 == 0 else 40_000 + rank, 5_000)
        paths.append(str(writer.path))
    return paths


def same(one: StepTimings, other: StepTimings) -> None:
    assert one.places == other.places
    assert one.world_size == other.world_size and one.source == other.source
    np.testing.assert_array_equal(one.steps, other.steps)
    assert set(one.sections) == set(other.sections)
    for section in one.sections:
        np.testing.assert_array_equal(one.sections[section], other.sections[section])
    if one.started_s is None:
        assert other.started_s is None
    else:
        assert other.started_s is not None
        np.testing.assert_array_equal(one.started_s, other.started_s)


def test_what_was_recorded_comes_back_from_one_file_a_host(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "raw", ranks=list(range(8)), steps=list(range(10)))
    result = pack([str(tmp_path / "raw")], str(tmp_path / "packed"))
    assert [Path(path).name for path in result.written] == [f"node-{host}.parquet" for host in range(4)]
    assert all(
        sniffed(PACKED_FILES, path) == 1 and sniffed(ARROW_TABLES, path) == 0 for path in result.written
    )
    packed = read(PACKED_FILES, *result.written)
    same(only(read(RECORDINGS, *paths)), only(packed))
    assert not packed.notes and not result.notes
    assert isinstance(only(packed).sections, PackedSections)


def test_ranks_without_hosts_go_into_files_of_128_named_by_the_ranks_in_them(tmp_path: Path) -> None:
    rows = [
        {"rank": rank, "step": step, "data_ms": rank + step}
        for rank in (0, 127, 128, 300)
        for step in range(3)
    ]
    write(tmp_path, "a.csv", csv_text(rows))
    result = pack([str(tmp_path / "a.csv")], str(tmp_path / "packed"))
    assert [Path(path).name for path in result.written] == [
        "ranks-0-127.parquet",
        "ranks-128-128.parquet",
        "ranks-300-300.parquet",
    ]
    same(only(read(CSV_TABLES, str(tmp_path / "a.csv"))), only(read(PACKED_FILES, *result.written)))


@settings(max_examples=40)
@given(data=st.data())
def test_any_rows_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("pack")
    ranks = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=6, unique=True))
    all_steps = data.draw(st.lists(st.integers(0, 2**40), min_size=1, max_size=12, unique=True))
    value = st.none() | st.integers(0, 10**9) | st.integers(0, 3000)
    hosts = data.draw(st.sampled_from([["a", "b/c", "ü.x"], ["only"], [None]]))
    for rank in ranks:
        writer = RecordingWriter(
            folder / "raw",
            rank,
            ["step", *(f"{each.value}_us" for each in SECTIONS)],
            host=hosts[rank % len(hosts)],
        )
        for step in data.draw(st.lists(st.sampled_from(all_steps), min_size=1, max_size=15)):
            writer.row(step, *(data.draw(value) for _ in SECTIONS))
    raw = [str(path) for path in sorted((folder / "raw").iterdir())]
    direct = read(RECORDINGS, *raw)
    if not any(timings.sections for timings in direct.steps):
        with pytest.raises(InputError):
            pack(raw, str(folder / "packed"))
        return
    packed = only(read(PACKED_FILES, *pack(raw, str(folder / "packed")).written))
    expected = only(direct)
    assert set(packed.ranks) <= set(expected.ranks)
    for section in packed.sections:
        by_rank = dict(zip(packed.ranks, packed.sections[section], strict=True))
        for rank, row in zip(expected.ranks, expected.sections[section], strict=True):
            told = (
                dict(zip(packed.steps.tolist(), by_rank[rank].tolist(), strict=True))
                if rank in by_rank
                else {}
            )
            for step, value_ms in zip(expected.steps.tolist(), row.tolist(), strict=True):
                found = told.get(step, math.nan)
                assert found == value_ms or (math.isnan(found) and math.isnan(value_ms))


@given(steps=st.lists(st.integers(0, 2**50), min_size=1, max_size=60, unique=True).map(sorted))
def test_steps_are_told_in_stretches_without_loss(steps: list[int]) -> None:
    told = stretches(np.array(steps, dtype=np.int64))
    assert [first + gap * index for first, count, gap in told for index in range(count)] == steps
    assert len(stretches(np.arange(0, 50_000, 10))) == 1


def test_one_step_of_two_ranks_is_packed(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "raw", ranks=[0, 1], steps=[5], world_size=2)
    same(only(read(RECORDINGS, *paths)), only(read(PACKED_FILES, *pack(paths, str(tmp_path / "p")).written)))


def test_missing_ranks_are_told_once_and_again_when_read(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "raw", ranks=[0, 1, 4, 6], steps=[1, 2])
    result = pack(paths, str(tmp_path / "p"))
    expected = ["4 of 8 ranks have no file here: 2-3,5,7"]
    assert [note.text for note in result.notes if note.kind is NoteKind.MISSING_RANKS] == expected
    assert notes_of(read(PACKED_FILES, *result.written), NoteKind.MISSING_RANKS) == expected


def test_notes_of_what_was_packed_are_told_when_it_is_read(tmp_path: Path) -> None:
    (path,) = recorded(tmp_path / "raw", ranks=[0], steps=[1, 2], world_size=1)
    with Path(path).open("a") as file:
        file.write("[3,4")
    (written,) = pack([path], str(tmp_path / "p")).written
    assert "end" in notes_of(read(PACKED_FILES, written), NoteKind.CUT_SHORT)[0]


def test_a_range_of_steps_is_read(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "raw", ranks=[0, 1, 2, 3], steps=list(range(0, 100, 5)))
    written = pack(paths, str(tmp_path / "p")).written
    timings = only(read(PACKED_FILES, *written, first_step=20, last_step=31))
    same(only(read(RECORDINGS, *paths, first_step=20, last_step=31)), timings)
    assert timings.steps.tolist() == [20, 25, 30]


def test_hosts_that_saw_different_steps_are_put_side_by_side(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "raw", ranks=[0, 1], steps=[0, 1, 2]) + recorded(
        tmp_path / "raw", ranks=[2, 3], steps=[2, 3, 9]
    )
    same(only(read(RECORDINGS, *paths)), only(read(PACKED_FILES, *pack(paths, str(tmp_path / "p")).written)))


def test_ranks_scattered_over_hosts_come_back_in_order(tmp_path: Path) -> None:
    rows = [
        {"rank": rank, "step": step, "host": f"h{rank % 3}", "data_ms": rank * 10 + step}
        for rank in range(7)
        for step in range(4)
    ]
    write(tmp_path, "a.csv", csv_text(rows))
    written = pack([str(tmp_path / "a.csv")], str(tmp_path / "p")).written
    timings = only(read(PACKED_FILES, *written))
    assert timings.sections[Section.DATA][:, 0].tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert sum(block.shape[0] for _, block in timings.sections.blocks(Section.DATA)) == 7


def test_a_file_whose_rows_were_shuffled_or_thinned_is_read_by_rank_and_step(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "raw", ranks=[0, 1], steps=list(range(6)), world_size=2)
    (written,) = pack(paths, str(tmp_path / "p")).written
    table = pq.read_table(written)
    order = np.random.default_rng(0).permutation(table.num_rows)[:9]
    pq.write_table(table.take(order), written)
    timings = only(read(PACKED_FILES, written))
    kept = {(int(table["rank"][i].as_py()), int(table["step"][i].as_py())) for i in order}
    whole = only(read(RECORDINGS, *paths)).sections[Section.DATA]
    for row in range(2):
        for column in range(6):
            found = timings.sections[Section.DATA][row, column]
            assert found == whole[row, column] if (row, column) in kept else math.isnan(found)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "raw", ranks=[0, 1], steps=[1])
    target = write(tmp_path, "p/node-0.parquet", "precious")
    with pytest.raises(OutputError, match=r"node-0.parquet` is there already"):
        pack(paths, str(tmp_path / "p"))
    assert Path(target).read_text() == "precious"
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["node-0.parquet"]


def test_several_runs_are_not_packed_into_one_folder(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "one", ranks=[0], steps=[1, 2]) + recorded(
        tmp_path / "two", ranks=[0], steps=[1, 2]
    )
    with pytest.raises(InputError, match="several runs"):
        pack(paths, str(tmp_path / "p"))


def test_what_cannot_be_packed_is_said_for_each_file(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, "notes.txt", "hello\n"),
        write(tmp_path, "one.csv", "step,step_ms\n" + "".join(f"{step},140\n" for step in range(9))),
        write(tmp_path, "bad.csv", "0,0,61.7\n0,1,61.7\n"),
    ]
    with pytest.raises(InputError, match="nothing to pack: ") as raised:
        pack(paths, str(tmp_path / "p"))
    why = raised.value.message
    assert f"`{paths[0]}`: no line in it tells a step time" in why
    assert f"`{paths[1]}`: it tells no times of single ranks and steps" in why
    assert f"`{paths[2]}`: the first line has no names" in why


def test_timers_of_megatron_lm_are_packed(tmp_path: Path) -> None:
    block = "times across ranks (ms):\n  forward-compute:\n" + "".join(
        f"     rank {rank:2d}: {100 + rank}.00\n" for rank in range(8)
    )
    text = "".join(
        f" iteration {step}/ 100 | elapsed time per iteration (ms): 420.5 | lm loss: 2.1 |\n{block}"
        for step in range(1, 5)
    )
    path = write(tmp_path, "train.log", text)
    result = pack([path], str(tmp_path / "p"))
    assert [Path(each).name for each in result.written] == ["ranks-0-7.parquet"]
    packed = only(read(PACKED_FILES, *result.written))
    assert packed.sections[Section.FORWARD_WALL][:, 0].tolist() == [100.0 + rank for rank in range(8)]
    assert result.inputs[0].read


def test_kineto_traces_are_packed(tmp_path: Path) -> None:
    paths = [
        rank_trace(rank, world_size=2).write(tmp_path / f"rank-{rank}.pt.trace.json") for rank in range(2)
    ]
    result = pack(paths, str(tmp_path / "p"))
    same(only(read(KINETO, *paths)), only(read(PACKED_FILES, *result.written)))


def test_two_kinds_of_evidence_of_the_same_ranks_are_not_packed_together(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "raw", ranks=[0, 1], steps=[1, 2])
    rows = [{"rank": rank, "step": step, "data_ms": 1} for rank in range(2) for step in range(3)]
    paths.append(write(tmp_path, "a.csv", csv_text(rows)))
    with pytest.raises(InputError, match="tell of the same ranks"):
        pack(paths, str(tmp_path / "p"))


def test_packed_files_are_not_packed_again(tmp_path: Path) -> None:
    written = pack(recorded(tmp_path / "raw", ranks=[0, 1], steps=[1]), str(tmp_path / "p")).written
    with pytest.raises(InputError, match="it is packed already"):
        pack(list(written), str(tmp_path / "q"))


def test_a_bad_file_costs_only_itself(tmp_path: Path) -> None:
    paths = recorded(tmp_path / "raw", ranks=[0, 1], steps=[1, 2])
    bad = write(tmp_path, "raw/rank-7.timing.jsonl", '{"distdoctor_timing":99,"rank":7,"columns":["step"]}\n')
    result = pack([*paths, bad], str(tmp_path / "p"))
    assert [file.path for file in result.inputs if not file.read] == [bad] and len(result.written) == 1


def test_a_packed_file_cut_or_of_a_newer_version_costs_only_itself(tmp_path: Path) -> None:
    first, second, third = pack(
        recorded(tmp_path / "raw", ranks=list(range(6)), steps=[1, 2], world_size=6), str(tmp_path / "p")
    ).written
    Path(first).write_bytes(Path(first).read_bytes()[:-20])
    table = pq.read_table(second)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: b'{"packed": 7}'}), second)
    reading = read(PACKED_FILES, first, second, third)
    assert [file.read for file in reading.inputs] == [False, False, True]
    assert "newer distdoctor" in (reading.inputs[1].why_not or "")
    assert reading.steps[0].ranks == (4, 5)


def test_a_page_that_is_damaged_gives_nothing_and_is_named(tmp_path: Path) -> None:
    first, second = pack(
        recorded(tmp_path / "raw", ranks=[0, 1, 2, 3], steps=list(range(50)), world_size=4),
        str(tmp_path / "p"),
    ).written
    timings = only(read(PACKED_FILES, first, second))
    data = bytearray(Path(first).read_bytes())
    data[4:-2000] = bytes(len(data) - 2004)
    Path(first).write_bytes(data)
    values = timings.sections[Section.DATA]
    assert np.all(np.isnan(values[:2])) and not np.any(np.isnan(values[2:]))
    assert isinstance(timings.sections, PackedSections) and list(timings.sections.damaged) == [first]


@pytest.mark.parametrize(
    "metadata",
    [b"{", b"[]", b'{"packed": 1}', b'{"packed":1,"source":"x","places":[],"steps":[]}',
     b'{"packed":1,"source":"x","places":[{"rank":1},{"rank":0}],"steps":[[0,1,1]]}',
     b'{"packed":1,"source":"x","places":[{"rank":0}],"steps":[[0,1000000000000,1]]}',
     b'{"packed":1,"source":"x","places":[{"rank":0}],"steps":[[5,2,0]]}', b"[" * 100_000],
)  # fmt: skip
def test_broken_metadata_are_refused_in_one_line(tmp_path: Path, metadata: bytes) -> None:
    table = pa.table({"rank": [0], "step": [0], "data_ms": pa.array([1.0], pa.float32())})
    path = str(tmp_path / "x.parquet")
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: metadata}), path)
    (file,) = read(PACKED_FILES, path).inputs
    assert not file.read and file.why_not and "\n" not in file.why_not


def test_sections_are_read_when_asked_for_and_not_kept(tmp_path: Path) -> None:
    written = pack(recorded(tmp_path / "raw", ranks=[0, 1], steps=[1, 2]), str(tmp_path / "p")).written
    sections = only(read(PACKED_FILES, *written)).sections
    assert sections[Section.DATA] is not sections[Section.DATA]
    assert Section.GC not in sections
    with pytest.raises(KeyError):
        sections[Section.GC]


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    pack(
        recorded(tmp_path / "raw", ranks=[0, 1, 2], steps=[1]),
        str(tmp_path / "p"),
        ReadOptions(progress=told.append),
    )
    assert told == ["1 files packed", "2 files packed"]
