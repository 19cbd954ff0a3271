"""One pass over a file: pipes, folders and devices, packed data in any state, encodings, NUL bytes, lines and blocks."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from distdoctor.errors import InputError
from distdoctor.evidence import read_head
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.csv_table import CSV_TABLES
from distdoctor.straggler.readers.file_blocks import FileBlocks
from distdoctor.straggler.readers.file_bytes import FileBytes, size_of
from distdoctor.straggler.readers.file_lines import FileLines
from distdoctor.straggler.readers.file_text import FileText
from distdoctor.straggler.readers.logs import TRAINER_LOG

ROWS = b"".join(b"%d,%d\n" % (step, 100 + step % 7) for step in range(20_000))


def file_of(tmp_path: Path, data: bytes, name: str = "times.csv") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def test_a_file_is_counted_and_hashed_while_it_is_read(tmp_path: Path) -> None:
    file = FileBytes(file_of(tmp_path, ROWS))
    assert b"".join(file.pieces()) == ROWS
    said = file.input_file("rows")
    assert (said.bytes, said.sha256) == (len(ROWS), hashlib.sha256(ROWS).hexdigest())
    assert (said.read, said.why_not) == (True, None)


@pytest.mark.parametrize("name", ["missing", "a\0b", "folder", "/dev/zero", ""])
def test_what_is_no_file_is_refused_in_words(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    path = name if name.startswith("/") else str(tmp_path / name)
    with pytest.raises(InputError):
        list(FileBytes(path).pieces())
    assert size_of(path) is None


def test_a_pipe_without_a_writer_is_empty_and_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="empty"):
        list(FileBytes(str(tmp_path / "pipe")).pieces())


def test_a_pipe_is_read_though_its_kind_was_told_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(ROWS[:4000],))
    writer.start()
    while not (head := _head(str(path))):
        pass
    writer.join(timeout=10)
    assert head == ROWS[:4000]
    assert b"".join(FileBlocks(str(path)).blocks()) == ROWS[:4000]


def _head(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)  # waits for the writer
    try:
        return read_head(path)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("stored_at_once", [2, 3, 7, 4096, 1 << 20])
def test_packed_members_are_joined_wherever_the_pieces_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_at_once: int
) -> None:
    monkeypatch.setattr("distdoctor.evidence.CHUNK_BYTES", stored_at_once)
    parts = [ROWS[:500], b"", ROWS[500:9_000]]
    data = b"".join(gzip.compress(part, mtime=0) for part in parts)
    file = FileBytes(file_of(tmp_path, data + bytes(512)))
    assert b"".join(file.pieces()) == ROWS[:9_000]
    assert file.note is None
    assert file.sha256 == hashlib.sha256(data + bytes(512)).hexdigest()


def test_a_torn_end_of_packed_data_is_told_and_what_came_before_is_kept(tmp_path: Path) -> None:
    data = gzip.compress(ROWS, mtime=0)
    torn = FileBytes(file_of(tmp_path, data[: len(data) // 2]))
    got = b"".join(torn.pieces())
    assert ROWS.startswith(got)
    assert len(got) > 10_000
    assert torn.note is not None
    assert "ends too early" in torn.note
    broken = FileBytes(file_of(tmp_path, data[: len(data) // 2] + b"\xff" * 4000))
    assert ROWS.startswith(b"".join(broken.pieces())[:10_000])
    assert broken.note is not None
    assert broken.sha256 is not None


@pytest.mark.parametrize("data", [b"\x1f\x8b", b"\x1f\x8b\x08" + b"\xff" * 100])
def test_packed_data_that_gives_nothing_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match="does not unpack"):
        list(FileBytes(file_of(tmp_path, data)).pieces())


def test_a_bomb_is_left_and_what_packs_well_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distdoctor.evidence_bytes.MAX_UNPACKED_BYTES", 1 << 20)
    bomb = FileBytes(file_of(tmp_path, gzip.compress(b"0" * (40 << 20), mtime=0)))
    assert sum(map(len, bomb.pieces())) < 20 << 20
    assert bomb.note is not None
    assert "were read" in bomb.note
    lines = b"".join(b"step %d took 400 ms, as all of them\n" % step for step in range(100_000))
    well = FileBytes(file_of(tmp_path, gzip.compress(lines, mtime=0)))
    assert sum(map(len, well.pieces())) == len(lines)
    assert well.note is None


def test_no_more_is_read_than_allowed(tmp_path: Path) -> None:
    path = file_of(tmp_path, ROWS)
    file = FileBytes(path, max_bytes=1000)
    assert b"".join(file.pieces()) == ROWS[:1000]
    assert file.is_longer
    with pytest.raises(InputError, match="more than"):
        FileText(path, max_bytes=1000).whole()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_text_comes_in_utf8_without_marks(tmp_path: Path, encoding: str) -> None:
    text = "step,µs\n" + "17,250\n" * 300_000
    file = FileText(file_of(tmp_path, text.encode(encoding)))
    assert file.whole() == text.encode()
    assert file.num_nul == 0


@pytest.mark.parametrize("size", [3, 64, 1 << 20])
def test_nul_bytes_of_a_power_cut_are_counted_and_do_not_join_halves_of_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    pieces_of(monkeypatch, size)
    data = bytes(100_000) + b"step,ms\n1,2\n" + bytes(60) + b"2,3\n3,4" + bytes(80) + b"5,6\n4,7\n"
    path = file_of(tmp_path, data)
    blocks = FileBlocks(path)
    assert b"".join(blocks.blocks()).splitlines() == [b"step,ms", b"1,2", b"2,3", b"", b"4,7"]
    assert blocks.num_nul == 100_140
    lines = FileLines(path)
    assert list(lines.lines()) == [b"step,ms", b"1,2", b"2,3", b"4,7"]
    assert lines.note is not None
    assert "NUL" in lines.note


def test_halves_of_numbers_beside_nul_bytes_are_no_values(tmp_path: Path) -> None:
    rows = [b"%d,%d,100.5" % (rank, step) for step in range(50) for rank in range(2)]
    rows[31] = rows[31][:-3] + bytes(40) + b"9.5"
    path = file_of(tmp_path, b"rank,step,fwd_ms\n" + b"\n".join(rows) + b"\n")
    (timings,) = CSV_TABLES.read([path], ReadOptions()).steps
    times = timings.sections[Section.FORWARD]
    assert np.nanmax(times) == np.nanmin(times) == np.float32(100.5)
    (tmp_path / "train.log").write_bytes(
        b"".join(
            b" iteration %d/ 99 | elapsed time per iteration (ms): %s | lm loss: 1 |\n"
            % (step, b"40" + bytes(9) + b"0.0" if step == 7 else b"400.0")
            for step in range(1, 20)
        )
    )
    (series,) = TRAINER_LOG.read([str(tmp_path / "train.log")], ReadOptions()).series
    assert series.steps.tolist() == [step for step in range(1, 20) if step != 7]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b" \n\0\0\n", "empty"),
        (bytes(range(256)) * 100, "no text"),
        (b"\xfd7zXZ\x00\x00\x04", "xz"),
        (b"PK\x03\x04", "zip"),
        (b"\x7fELF\x02\x01", "ELF"),
        (b"name".ljust(257, b"\0") + b"ustar", "tar"),
        (gzip.compress(b"name".ljust(257, b"\0") + b"ustar", mtime=0), "tar"),
    ],
)
def test_what_is_no_text_is_refused_with_its_kind(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        list(FileText(file_of(tmp_path, data)).text())


def pieces_of(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("distdoctor.evidence.CHUNK_BYTES", size)


@pytest.mark.parametrize("size", [1, 5, 4096])
def test_lines_are_whole_however_the_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    pieces_of(monkeypatch, size)
    file = FileLines(file_of(tmp_path, b"\xef\xbb\xbffirst\n\n\r\nsecond line\r\nlast"))
    assert list(file.lines()) == [b"first", b"second line\r", b"last"]
    assert file.ended_in_a_line


def test_a_line_that_is_too_long_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdoctor.straggler.readers.file_lines.MAX_LINE_BYTES", 1000)
    pieces_of(monkeypatch, 300)
    file = FileLines(file_of(tmp_path, ROWS + b"x" * 5000 + b"\nlast\n"))
    assert list(file.lines()) == [*ROWS.splitlines(), b"last"]
    assert file.note == "1 line was longer than 1000 B and left out"


def blocks_of(file: FileBlocks) -> Iterator[bytes]:
    for block in file.blocks():
        assert block
        yield block


def test_blocks_are_whole_lines_and_the_last_may_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdoctor.straggler.readers.file_blocks.BLOCK_BYTES", 2000)
    pieces_of(monkeypatch, 700)
    file = FileBlocks(file_of(tmp_path, ROWS[:-1]))
    *blocks, last = blocks_of(file)
    assert len(blocks) > 10
    assert all(block.endswith(b"\n") for block in blocks)
    assert b"".join([*blocks, last]) == ROWS[:-1]
    assert file.is_cut


def test_a_file_without_line_ends_is_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distdoctor.straggler.readers.file_blocks.BLOCK_BYTES", 2000)
    monkeypatch.setattr("distdoctor.straggler.readers.file_blocks.MAX_WITHOUT_END_BYTES", 8000)
    pieces_of(monkeypatch, 700)
    with pytest.raises(InputError, match="a line of more than"):
        list(FileBlocks(file_of(tmp_path, b"x" * 20_000)).blocks())
