"""Logs of any size and state: prefixes of launchers, carriage returns, broken bytes, files that are none."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs import TRAINER_LOG
from distdoctor.straggler.readers.logs.lines import clock_seconds, line_of, time_of
from distdoctor.straggler.readers.logs.relevant_lines import relevant_lines


def line(step: int, time_ms: float = 400.0) -> str:
    return f" iteration {step}/ 99999 | elapsed time per iteration (ms): {time_ms} | lm loss: 1 |\n"


@pytest.mark.parametrize(
    ("raw", "host", "pod", "who", "text"),
    [
        ("[default3]: hello", None, None, "local rank 3", "hello"),
        ("[rank3]:hello", None, None, "rank 3", "hello"),
        ("12: hello", None, None, "task 12", "hello"),
        ("gpu-a01: hello", "gpu-a01", None, None, "hello"),
        ("10.0.0.7: hello", "10.0.0.7", None, None, "hello"),
        ("gpu-a01: [default3]:hello", "gpu-a01", None, "local rank 3", "hello"),
        ("[pod/job-worker-0/pytorch] hello", None, "job-worker-0", None, "hello"),
        ("[1,5]<stdout>:hello", None, None, "rank 5", "hello"),
        ("(TrainWorker pid=123, ip=10.0.0.7) hello", "10.0.0.7", None, None, "hello"),
        ("> \x1b[31mhello\x1b[0m", None, None, None, "hello"),
        ("2024-05-01T00:00:00.123456789Z stdout F hello", None, None, None, "hello"),
        ("WARNING: hello", None, None, None, "WARNING: hello"),
        ("step-1: hello", None, None, None, "step-1: hello"),
        ("step: 10  loss: 3", None, None, None, "step: 10  loss: 3"),
    ],
)
def test_prefixes_of_launchers_are_taken_off_and_kept(
    raw: str, host: str | None, pod: str | None, who: str | None, text: str
) -> None:
    got = line_of(1, raw.encode())
    assert (got.host, got.pod, got.who, got.text) == (host, pod, who, text)


@pytest.mark.parametrize(
    ("text", "utc_s", "zone_known"),
    [
        ("[2024-03-01 00:00:10] x", 1_709_251_210.0, False),
        ("2024-03-01 00:00:10,250 x", 1_709_251_210.25, False),
        ("2024-03-01T00:00:10Z x", 1_709_251_210.0, True),
        ("2024-03-01T02:00:10+02:00 x", 1_709_251_210.0, True),
        ("2024-03-01T00:00:10-0100 x", 1_709_254_810.0, True),
    ],
)
def test_time_stamps_are_read_with_their_zone(text: str, utc_s: float, zone_known: bool) -> None:
    assert time_of(text) == (utc_s, zone_known)


@pytest.mark.parametrize("text", ["no time", "9999-99-99 99:99:99", "version 1.2024-03"])
def test_what_is_no_time_stamp_is_none(text: str) -> None:
    utc_s, _ = time_of(text)
    assert utc_s != utc_s


@pytest.mark.parametrize(
    ("text", "seconds"), [("35", 35.0), ("01:35", 95.0), ("1:01:35", 3695.0), ("1 day, 1:01:35", 90_095.0)]
)
def test_clocks_count_seconds(text: str, seconds: float) -> None:
    assert clock_seconds(text) == seconds


def test_lines_keep_their_numbers_over_chunks_of_any_size() -> None:
    text = b"".join(b"x %d\r\n" % index if index % 7 else b"HIT %d\n" % index for index in range(1, 200))
    for size in (1, 3, 50, 4096):
        chunks = iter([text[at : at + size] for at in range(0, len(text), size)])
        found = list(relevant_lines(chunks, (b"HIT",), lambda: False))
        assert found == [(index, b"HIT %d" % index) for index in range(7, 200, 7)]


def test_a_line_without_an_end_costs_no_memory() -> None:
    chunks = (b"y" * (1 << 20) for _ in range(200))

    def whole() -> object:
        yield b"HIT 1\n"
        yield from chunks
        yield b"\nHIT 3\n"

    tracemalloc.start()
    found = list(relevant_lines(whole(), (b"HIT",), lambda: False))  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [(1, b"HIT 1"), (3, b"HIT 3")]
    assert peak < 20 << 20


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-8-sig"])
def test_encodings_of_other_systems_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "train.log"
    path.write_bytes("".join(line(step) for step in range(1, 500)).encode(encoding))
    (series,) = TRAINER_LOG.read([str(path)], ReadOptions()).series
    assert series.steps.tolist() == list(range(1, 500))


def test_packed_logs_are_read_and_torn_ones_as_far_as_they_go(tmp_path: Path) -> None:
    data = gzip.compress("".join(line(step, 400.0 + step % 7) for step in range(1, 5000)).encode())
    (tmp_path / "whole.log.gz").write_bytes(data)
    (tmp_path / "torn.log.gz").write_bytes(data[: len(data) // 2])
    whole = TRAINER_LOG.read([str(tmp_path / "whole.log.gz")], ReadOptions())
    torn = TRAINER_LOG.read([str(tmp_path / "torn.log.gz")], ReadOptions())
    assert len(whole.series[0].steps) == 4999
    assert 100 < len(torn.series[0].steps) < 4999


def test_one_bad_file_costs_that_file_alone(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(line(1) + line(2))
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "prose.log").write_text("nothing of interest\n" * 100)
    names = ["good.log", "empty.log", "binary.log", "prose.log", "missing.log"]
    paths = [str(tmp_path / name) for name in names]
    reading = TRAINER_LOG.read([*paths, paths[0]], ReadOptions())
    assert [each.path for each in reading.inputs] == paths
    assert [each.read for each in reading.inputs] == [True, False, False, False, False]
    assert all(each.why_not for each in reading.inputs[1:])
    assert len(reading.series) == 1


def test_a_log_torn_by_a_power_cut_gives_what_stands(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(
        line(1).encode()
        + b"\x00" * 60
        + line(2).encode()
        + b"\xff\xfe\x80 iteration\n"
        + line(3).encode()[:40]
    )
    (series,) = TRAINER_LOG.read([str(path)], ReadOptions()).series
    assert series.steps.tolist() == [1, 2]


def test_absurd_steps_and_many_hosts_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        line(10**18) + "".join(f"host-{index}: {line(1)}" for index in range(2000)) + line(5) + line(6)
    )
    reading = TRAINER_LOG.read([str(path)], ReadOptions())
    (series,) = reading.series
    assert series.steps.tolist() == [5, 6]


def test_known_logs_are_recognised_and_other_files_are_not() -> None:
    assert TRAINER_LOG.sniff("job.out", (line(1) + line(2)).encode()) > 0.9
    assert TRAINER_LOG.sniff("job.out", b"starting up\n" * 10) < 0.5
    assert TRAINER_LOG.sniff("job.json", b'{"traceEvents": []}') == 0.0
    assert TRAINER_LOG.sniff("core", bytes(range(256)) * 10) == 0.0
    assert TRAINER_LOG.sniff("job.out", b"") == 0.0


def test_a_restart_is_told_by_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    # Two writers, one a line behind the other: no restart.
    path.write_text("".join(line(step + late) for step in range(1, 40) for late in (1, 0)))
    reading = TRAINER_LOG.read([str(path)], ReadOptions())
    assert not [note for note in reading.notes if note.kind is NoteKind.RESTARTED]
    assert len(reading.series) == 1
