"""Reading a file that somebody gives as evidence: bounded, decoded, and one clear line when it cannot be."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import pytest

from distdoctor.errors import InputError
from distdoctor.evidence import MAX_LINES, find_files, read_bounded, read_evidence, read_head
from distdoctor.evidence_bytes import decode, looks_binary
from distdoctor.pasted import clean_pasted


def write(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


def test_a_text_file_comes_with_its_size_and_checksum(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"PyTorch version: 2.9.0\n")
    evidence = read_evidence(path)
    file = evidence.input_file("collect_env")
    assert evidence.text == "PyTorch version: 2.9.0\n"
    assert (file.bytes, file.kind, file.why_not) == (23, "collect_env", None)
    assert file.sha256 == hashlib.sha256(b"PyTorch version: 2.9.0\n").hexdigest()


def test_of_a_long_log_start_and_end_are_kept_and_the_gap_is_told(tmp_path: Path) -> None:
    lines = b"".join(b"line %06d\n" % number for number in range(10_000))
    evidence = read_evidence(write(tmp_path, "long.log", lines), keep_bytes=1000)
    assert evidence.text.startswith("line 000000\n")
    assert evidence.text.endswith("line 009999\n")
    assert evidence.left_out_bytes == len(lines) - 2000
    assert "left out" in (evidence.input_file("kernel log").why_not or "")
    assert all(len(line) in (0, 11) for line in evidence.text.split("\n"))


@pytest.mark.parametrize("torn", [0, 7])
def test_gzip_is_unpacked_even_when_its_end_is_missing(tmp_path: Path, torn: int) -> None:
    data = gzip.compress(b"GPU 0: something\n" * 3000)
    path = write(tmp_path, "log.gz", data[: len(data) - torn])
    assert read_evidence(path).text.startswith("GPU 0: something\n")
    assert read_head(path, max_bytes=16) == b"GPU 0: something"


def test_a_gzip_bomb_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distdoctor.evidence_bytes.MAX_UNPACKED_BYTES", 1 << 20)
    path = write(tmp_path, "bomb.gz", gzip.compress(b"a" * (8 << 20)))
    assert len(read_evidence(path, keep_bytes=1 << 16).text) < 1 << 18


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (bytes(range(256)) * 40, "is no text"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "ELF"),
        (b"PK\x03\x04rest", "zip"),
        (b"\xfd7zXZ\x00rest", "xz"),
        (b"\x89PNG\r\n\x1a\n", "image"),
        (b"x" * 257 + b"ustar" + b"y" * 300, "tar"),
        (b"\x1f\x8b\x08\x00broken", "does not unpack"),
    ],
)
def test_what_is_no_text_gives_one_line(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_evidence(write(tmp_path, "file", data))
    assert "\n" not in caught.value.message


def test_missing_files_folders_and_devices_give_one_line(tmp_path: Path) -> None:
    for path, words in (("nowhere", "not there"), (str(tmp_path), "folder"), ("/dev/null", "device")):
        with pytest.raises(InputError, match=words):
            read_evidence(path)


def test_a_pipe_without_a_writer_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="empty"):
        read_evidence(str(tmp_path / "pipe"))


def test_a_pipe_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"Collecting environment information...\n")
    os.close(writer)
    assert read_evidence(f"/dev/fd/{reader}").text == "Collecting environment information...\n"
    os.close(reader)


def test_folders_are_walked_in_order_and_hidden_files_left_out(tmp_path: Path) -> None:
    for name in ("b.txt", "a/x.txt", ".git/config", "a/.hidden"):
        write(tmp_path, name, b"x")
    assert [Path(path).name for path in find_files([str(tmp_path)])] == ["b.txt", "x.txt"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no files"):
        find_files([str(tmp_path / "empty")])


def test_utf16_and_byte_order_marks_are_understood() -> None:
    text = "NVIDIA-SMI 570.86\r\nDriver Version\r\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"):
        data = text.encode(encoding)
        assert decode(data).lstrip("\ufeff") == text
        assert not looks_binary(data)


def test_a_log_torn_by_a_power_cut_is_still_text() -> None:
    assert not looks_binary(b"kernel: line\n" * 50 + b"\x00" * 300 + b"kernel: line\n" * 50)


def test_paste_artefacts_go_and_lines_stay() -> None:
    pasted = (
        "<details>\r\n<summary>env</summary>\r\n\r\n```text\r\n"
        "\x1b[31mGPU 0\x1b[0m: A&amp;B &lt;inactive&gt;\x00\u200b\r\n```\r\n> > quoted\u00a0text\r\n"
    )
    lines = clean_pasted(pasted).split("\n")
    assert lines == ["", "env", "", "", "GPU 0: A&B <inactive>", "", "quoted text", ""]


def test_angle_brackets_that_are_no_tags_stay() -> None:
    assert clean_pasted("1: lo: <LOOPBACK,UP> mtu\nLink 3: <inactive>") == (
        "1: lo: <LOOPBACK,UP> mtu\nLink 3: <inactive>"
    )


def test_very_long_lines_are_cut() -> None:
    assert len(clean_pasted("x" * 10_000_000)) < 20_000


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_of_too_many_lines_both_ends_are_kept(tmp_path: Path, end: str) -> None:
    (tmp_path / "log").write_bytes(("first" + end + ("x" + end) * (MAX_LINES + 5) + "last" + end).encode())
    evidence = read_evidence(str(tmp_path / "log"))
    lines = evidence.text.split("\n")
    assert (lines[0], lines[-2]) == ("first", "last")
    assert len(lines) == MAX_LINES + 1
    assert "7 lines in the middle were left out" in (evidence.note or "")


def test_a_bounded_read_shows_that_there_is_more(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"12345678")
    assert read_bounded(tmp_path / "key", 100) == b"12345678"
    assert len(read_bounded(tmp_path / "key", 4)) == 5
    for path, words in (("/dev/zero", "device"), (tmp_path, "folder"), (tmp_path / "none", "No such")):
        with pytest.raises(OSError, match=words):
            read_bounded(path, 4)
