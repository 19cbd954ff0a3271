"""Messages and snapshots of one failure in one report."""

from __future__ import annotations

from pathlib import Path

from distdoctor.cli.output import OutputOptions
from distdoctor.cli.request import make_request
from distdoctor.oom.explain.files import report_of_files
from distdoctor.report.model import Report, Status
from distdoctor.units import GIB, MIB
from oom.snapshot_world import SnapshotWorld

MESSAGE = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of "
    "8.00 GiB of which 0.50 GiB is free. Including non-PyTorch memory, this process has 7.50 GiB memory in use. Of the "
    "allocated memory 6.90 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"
)
FORWARD = ("/job/model.py:88:forward", "/job/train.py:210:train_step")


def explained(*paths: Path) -> Report:
    return report_of_files(
        make_request(OutputOptions(), command="oom-explain"), [str(path) for path in paths]
    )


def snapshot(path: Path, *, fails: bool) -> Path:
    world = SnapshotWorld(total=8 * GIB, outside=0)
    for _ in range(6 if not fails else 12):
        world.alloc(900 * MIB, *FORWARD)
    world.write(path)
    return path


def test_a_snapshot_without_a_failure_cannot_say_why(tmp_path: Path) -> None:
    report = explained(snapshot(tmp_path / "rank3.pickle", fails=False))
    assert report.verdict.status is Status.UNKNOWN
    assert report.verdict.title == "cannot tell why: no failure is recorded; 5.3 GiB were in use"


def test_a_snapshot_with_its_failure_answers(tmp_path: Path) -> None:
    report = explained(snapshot(tmp_path / "rank3.pickle", fails=True))
    assert report.verdict.status is Status.CRITICAL
    assert report.series, "pictures of the snapshot"


def test_the_message_speaks_first_and_the_snapshot_stands_beside_it(tmp_path: Path) -> None:
    log = tmp_path / "rank3.log"
    log.write_text(MESSAGE)
    report = explained(log, snapshot(tmp_path / "rank3.pickle", fails=False))
    assert report.verdict.status is Status.CRITICAL
    assert "rank 3" in report.verdict.title
    assert {each.kind for each in report.inputs} == {"out-of-memory messages", "torch memory snapshot"}
    assert {"oom-events", "oom-live-by-category"} <= {table.name for table in report.tables}


def test_an_unreadable_file_beside_a_good_one_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "memory_snapshot.pickle"
    bad.write_bytes(b"\x80\x04cos\nsystem\n.")
    log = tmp_path / "rank3.log"
    log.write_text(MESSAGE)
    report = explained(log, bad)
    (unread,) = [each for each in report.inputs if not each.read]
    assert unread.path == str(bad) and unread.why_not
    assert report.verdict.status is Status.CRITICAL
