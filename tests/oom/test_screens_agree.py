"""What one command says, another does not contradict: idle memory, roundings, records of `oom reproduce`."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from distdoctor.errors import InputError
from distdoctor.oom.failed import Failure
from distdoctor.oom.fit import Fit, Fits, left_words
from distdoctor.oom.memory.log import MemoryLog
from distdoctor.oom.messages.from_files import events_from_files
from distdoctor.oom.reproduction.log_file import write_log
from distdoctor.report.assemble import MAX_TITLE, clip_title
from distdoctor.units import GIB


def failure(*, idle: float, requested: float = 3.9, cause: str = "") -> Failure:
    return Failure(
        path="x.json",
        rank=3,
        total_bytes=79 * GIB,
        allocated_bytes=70 * GIB,
        requested_bytes=int(requested * GIB),
        phase="backward",
        idle_bytes=int(idle * GIB),
        cause=cause,
    )


def test_idle_memory_beyond_a_tenth_of_the_card_is_fragmentation() -> None:
    assert failure(idle=9).is_fragmented


def test_little_idle_memory_is_none_though_it_is_more_than_was_asked_for() -> None:
    assert not failure(idle=5.6).is_fragmented


def test_less_idle_memory_than_was_asked_for_is_none() -> None:
    assert not failure(idle=9, requested=10).is_fragmented


def test_explains_cause_is_believed_and_another_cause_takes_nothing_back() -> None:
    assert failure(idle=5.6, cause="fragmentation").is_fragmented
    assert failure(idle=9, cause="other-process").is_fragmented
    assert not failure(idle=5.6, cause="capacity").is_fragmented


def test_what_is_left_at_least_is_rounded_down() -> None:
    fit = Fit(answer=Fits.YES, need_low=49.6 * GIB, need_high=50.6 * GIB, capacity=79.1 * GIB)
    assert left_words(fit) == "28 or more"


def test_a_long_title_ends_behind_a_whole_word() -> None:
    title = clip_title("cannot tell by simulation: " + "word " * 20)
    assert len(title) <= MAX_TITLE
    assert title.endswith(" word…")
    assert clip_title("short") == "short"


def test_a_record_of_reproduce_is_named_as_one(tmp_path: Path) -> None:
    path = tmp_path / "oom-rank0-0-ddp.json.gz"
    write_log(path, MemoryLog(places=[], storages=[], events=[]), [])
    assert gzip.decompress(path.read_bytes())
    with pytest.raises(InputError, match="oom reproduce"):
        events_from_files([str(path)])
