"""Words of the command line of `oom reproduce` that cannot be: one clear line each, before any rank is started."""

from __future__ import annotations

import pytest

from distdoctor.__main__ import run
from distdoctor.units import parse_bytes

COMMAND = ["oom", "reproduce", "--model", "tiny", "--launch", "2"]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("", "no size is given"),
        (" ", "no size is given"),
        ("0", "`0` is not a whole number of bytes, at least 1"),
        ("-1", "`-1` is no size"),
        ("1e9", "`1e9` is no size"),
        ("2,5G", "`2,5G` is no size"),
        ("much", "`much` is no size"),
        ("1PiB", "`1PiB` is larger than 1 TiB, more than any rank has"),
        ("2000T", "`2000T` is larger than 1 TiB, more than any rank has"),
        ("9" * 300, f"`{'9' * 40}…` is larger than 1 TiB"),
    ],
)
def test_a_memory_limit_that_cannot_be_is_one_line(
    capsys: pytest.CaptureFixture[str], size: str, words: str
) -> None:
    assert run([*COMMAND, "--memory-limit", size]) == 2
    first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: --memory-limit: {words}")
    assert all(line.startswith("hint: ") for line in more) and len(more) <= 1


@pytest.mark.parametrize("size", ["2gb", "2 GiB", "2G", "2048 mib", "2147483648", "0.001953125 TiB"])
def test_sizes_are_understood_as_people_write_them(size: str) -> None:
    assert parse_bytes(size) == 2 << 30
