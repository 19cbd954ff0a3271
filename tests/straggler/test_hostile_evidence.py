"""Tables that were not written for this: what is refused says why, and what is not read is not judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from distdoctor.cli.main import run_app
from distdoctor.errors import InputError
from distdoctor.straggler.from_files import read_evidence_files
from distdoctor.straggler.readers.base import ReadOptions


def refusal(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_evidence_files([str(path)], ReadOptions())
    return raised.value.message


def csv_of(header: str, rows: Iterable[tuple[object, ...]]) -> str:
    return "\n".join([header, *(",".join(str(value) for value in row) for row in rows)]) + "\n"


def micro_batches() -> str:
    return csv_of(
        "step,rank,microbatch,forward_ms",
        [(step, rank, m, 100 + m) for step in range(30) for m in range(4) for rank in range(4)],
    )


def ten_jobs() -> str:
    """One rank of each of ten jobs: two of them share a number."""
    return csv_of(
        "time,job,rank,step,compute_ms",
        [(second, job, job % 8, second, 100 * (job + 1)) for second in range(60) for job in range(10)],
    )


def one_part_a_row() -> str:
    return "".join(
        json.dumps({"step": step, "rank": rank, name: 100.0}) + "\n"
        for step in range(30)
        for rank in range(4)
        for name in ("forward_ms", "backward_own_ms")
    )


@pytest.mark.parametrize("table", [micro_batches, ten_jobs, one_part_a_row])
def test_several_rows_a_step_are_refused_and_not_taken_for_a_restart(
    table: Callable[[], str], tmp_path: Path
) -> None:
    name = "steps.jsonl" if table is one_part_a_row else "steps.csv"
    message = refusal(tmp_path / name, table())
    assert "rank 0 has several rows for one step" in message
    assert "for step 0" in message


def test_a_restart_and_rows_that_were_written_twice_are_read(tmp_path: Path) -> None:
    steps = [*range(40), *range(20, 60)]
    rows = [(step, rank, 100 + index) for index, step in enumerate(steps) for rank in range(4)]
    twice = [row for row in rows for _ in range(2)]
    for number, told in enumerate((rows, twice)):
        path = tmp_path / f"{number}.csv"
        path.write_text(csv_of("step,rank,compute_ms", told))
        (timings,) = read_evidence_files([str(path)], ReadOptions()).steps
        assert (timings.num_ranks, timings.num_steps) == (4, 60)


@pytest.mark.parametrize("rows", [[], [(1, 2, 300, 4)] * 20], ids=["none", "all too wide"])
def test_a_table_without_rows_is_not_said_to_have_no_column_of_times(
    rows: list[tuple[int, ...]], tmp_path: Path
) -> None:
    message = refusal(tmp_path / "steps.csv", csv_of("step,rank,compute_ms", rows))
    assert message.endswith("no rows in it, or none as wide as its header")


def test_names_of_hosts_are_as_long_from_a_large_table_as_from_a_small_one(tmp_path: Path) -> None:
    """Large tables are read by pyarrow where it is there."""
    host = f" {'x' * 10_000} "
    for num_steps in (10, 400):
        path = tmp_path / f"{num_steps}.csv"
        path.write_text(
            csv_of(
                "step,rank,host,compute_ms",
                [(step, rank, host, 300) for step in range(num_steps) for rank in range(4)],
            )
        )
        (timings,) = read_evidence_files([str(path)], ReadOptions()).steps
        assert timings.places[0].host == "x" * 255


def test_pack_writes_no_control_character_of_the_evidence_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "junk\x1b[2J.csv").write_bytes(b"\x00\x01" * 500)
    (folder / "steps.csv").write_text(
        csv_of(
            "step,rank,compute_ms,\x1b[31mx", [(step, rank, 300, 1) for step in range(9) for rank in range(4)]
        )
    )
    assert run_app(["straggler", "pack", str(folder), "--to", str(tmp_path / "packed")]) == 0
    told = capsys.readouterr()
    assert "\\x1b[31mx" in told.err
    assert "not packed: " in told.err
    assert "\x1b" not in told.out + told.err
