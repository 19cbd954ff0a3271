"""Logs that are hostile or broken: no crash, no hang, nothing lost, no number that cannot be."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.oom.messages.from_files import events_from_files, events_from_text
from distdoctor.oom.messages.read import _WORDS, TRIGGER, read_messages
from distdoctor.oom.messages.sizes import parse_size, whole_bytes
from distdoctor.units import GIB
from oom.oom_texts import modern

MESSAGE = modern("2.00 GiB", "79.10 GiB", "1.00 GiB", "70.00 GiB", "6.00 GiB")
NINES = "9" * 5000

# Each of these takes milliseconds; where time grows with the square of a line it takes minutes.
SECONDS = 5.0


@pytest.mark.parametrize(
    ("number", "unit"),
    [
        ("9" * 400, "GiB"),
        ("1" + ",1" * 500, "EiB"),
        ("999999999999", "EiB"),
        ("9" * 5000, "bytes"),
        (".", "GiB"),
    ],
)
def test_a_size_beyond_64_bits_is_none(number: str, unit: str) -> None:
    assert parse_size(number, unit) is None


def test_the_largest_number_of_64_bits_is_read() -> None:
    assert parse_size("17179869184.00", "GiB") == 1 << 64
    assert whole_bytes(str((1 << 64) - 1)) == (1 << 64) - 1
    assert whole_bytes(NINES) is None


@pytest.mark.parametrize(
    "text",
    [
        f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {NINES} bytes",
        f"Out of memory: Killed process {NINES} (python) total-vm:1kB, anon-rss:{NINES}kB",
        f"oom-kill:constraint=CONSTRAINT_MEMCG anon-rss:{NINES}kB",
        f"Sending process {NINES} closing signal SIGKILL\nexitcode: -9 (pid: 1)",
        f"rank      : {NINES} (local_rank: {NINES})\nexitcode  : -9 (pid: {NINES})",
        f"Failed to CUDA malloc {NINES} bytes",
        f"h:1:1 [{NINES}] NCCL WARN Cuda failure 'out of memory'",
        f"h:{NINES}:1 [0] NCCL WARN Cuda failure 'out of memory'",
        f"Allocation on device {NINES} would exceed allowed memory",
        f"(worker pid={NINES}) {MESSAGE}",
        f'Traceback (most recent call last):\n  File "a.py", line {NINES}, in f\n    x()\n{MESSAGE}',
        f"Invalid buffer size: {NINES}.00 GB",
        f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {NINES} bytes.",
        f"Unable to allocate {NINES} GiB for an array with shape (1,)",
        f"{MESSAGE} Process {NINES} has 1.00 GiB memory in use.",
        f"Free memory on device {NINES} (1/2 GiB) on startup is less than desired GPU memory utilization (0.9, 7.0 GiB)",
        f"Free memory on device 0 ({NINES}/2 GiB) on startup is less than desired GPU memory utilization (0.9, 7.0 GiB)",
    ],
)
def test_numbers_of_thousands_of_digits_are_no_crash(text: str) -> None:
    for event in read_messages("job.log", text):
        for number in (event.requested_bytes, event.allocated_bytes, event.pid, event.rank, event.gpu):
            assert number is None or 0 <= number <= 1 << 64


def test_an_allocation_whose_size_is_garbled_is_still_an_event() -> None:
    text = f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {NINES} bytes"
    (event,) = read_messages("job.log", text)
    assert event.requested_bytes is None


@pytest.mark.once
@pytest.mark.parametrize(
    "line",
    [
        "CUDA out of memory. Tried to allocate " + "1" * 3900 + " GiB.",
        "loss step" + " " * 16_000 + "x",
        "a.py:1 in f\n" + (" " * 16_000 + "x\n") * 7,
        "a." * 8000 + " Cuda failure 'out of memory'",
        "RESOURCE_EXHAUSTED: alloc " + "allocat" * 2200,
        "unable to write to file </torch_" + "x" * 16_000,
    ],
    ids=["digits", "step", "pointer", "host", "xla", "shm"],
)
def test_time_grows_with_the_length_of_a_line(line: str) -> None:
    text = f"Traceback (most recent call last):\n{(line + chr(10)) * 20}{MESSAGE}"
    start = time.process_time()
    read_messages("job.log", text)
    assert time.process_time() - start < SECONDS


@pytest.mark.once
def test_messages_without_numbers_are_folded_in_linear_time() -> None:
    bare = "".join(f"[rank{rank}]: RuntimeError: CUDA out of memory\n" for rank in range(8000))
    told = "".join(f"[rank{rank}]: {MESSAGE}\n" for rank in range(8000, 16_000))
    start = time.process_time()
    events = read_messages("job.log", bare + told)
    assert time.process_time() - start < 4 * SECONDS
    assert len(events) == 16_000


@pytest.mark.once
def test_escaped_line_ends_do_not_fill_the_memory() -> None:
    text = ("out of memory" + "a\\n" * 5000 + "\n") * 200
    start = time.process_time()
    events_from_text("job.log", text)
    assert time.process_time() - start < 4 * SECONDS


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_message_far_back_in_one_long_line_is_read(wrapped: bool, tmp_path: Path) -> None:
    log = f"{'words ' * 10}\n" * 2000 + MESSAGE
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"log": log}) if wrapped else "x" * 50_000 + " " + MESSAGE, encoding="utf-8")
    facts, _ = events_from_files([str(path)])
    assert [event.total_bytes is not None for event in facts.events] == [True]


def test_a_rank_is_found_by_pid_and_by_local_rank() -> None:
    table = "  rank      : 13 (local_rank: 5)\n  exitcode  : 1 (pid: 4711)\n"
    by_pid = events_from_text("job.log", f"(worker pid=4711) {MESSAGE}\n\n{table}").events
    by_local = events_from_text("job.log", f"[default5]: {MESSAGE}\n\n{table}").events
    assert [event.rank for event in by_pid] == [event.rank for event in by_local] == [13]


@settings(max_examples=300, deadline=None)
@given(st.from_regex(TRIGGER, fullmatch=True))
def test_whatever_triggers_holds_one_of_the_words(text: str) -> None:
    assert any(word in text for word in _WORDS)


def test_sizes_stay_as_they_were() -> None:
    (event,) = read_messages("job.log", MESSAGE)
    assert event.total_bytes is not None
    assert event.total_bytes > 10 * GIB
