"""Evidence of rows with bytes changed, cut out, doubled or lost: read in part or refused in one line, never a traceback."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.straggler.pack import pack
from distdoctor.straggler.readers.arrow_table import ARROW_TABLES
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.csv_table import CSV_TABLES
from distdoctor.straggler.readers.jsonl_table import JSON_ROWS
from distdoctor.straggler.readers.packed import PACKED_FILES
from distdoctor.straggler.readers.recording import RECORDINGS
from distdoctor.straggler.readers.torchtitan import TORCHTITAN_LOGS
from straggler.readers.row_builders import RecordingWriter, collectives_text, csv_text, jsonl_text, write

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROW_READERS = (PACKED_FILES, RECORDINGS, TORCHTITAN_LOGS, JSON_ROWS, CSV_TABLES, ARROW_TABLES)
ROWS = [
    {
        "rank": rank,
        "step": step,
        "ts": 1.76e9 + step,
        "host": f"h{rank}",
        "fwd_ms": 3.5,
        "bwd_ms": 7,
        "wait_ms": 2.25,
    }
    for step in range(6)
    for rank in range(3)
]
JUNK = [
    b"NaN",
    b"null",
    b"-1",
    b"1e308",
    b"1e999",
    b'"',
    b"[",
    b"{",
    b"\0" * 40,
    b"\xff\xfe",
    b"9" * 25,
    b"\n",
    b",",
    b"true",
]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A whole file of each kind."""
    folder = tmp_path_factory.mktemp("originals")
    table = pa.table({name: [row[name] for row in ROWS] for name in ROWS[0]})
    pq.write_table(table, folder / "t.parquet")
    with pa.ipc.new_file(str(folder / "t.arrow"), table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(str(folder / "t.arrows"), table.schema) as stream:
        stream.write_table(table)
    recording = RecordingWriter(
        folder, 0, ["step", "start_ms", "data_us", "wait_us"], started_utc="2026-01-31T12:00:00Z"
    )
    for step in range(6):
        recording.row(step, step * 100, 1500, None)
    recording.event("telemetry", at_ms=5, sm_mhz=1755)
    write(folder, "t.csv", csv_text(ROWS))
    write(folder, "t.jsonl", jsonl_text(ROWS))
    write(
        folder,
        "rank-0.collectives.jsonl",
        collectives_text(0, [{"name": "w", "size": 2}], [[1, 0, 0, 1, 50, 8]] * 4),
    )
    write(
        folder,
        "training.global_rank_0.jsonl",
        "".join(
            f'{{"rank":0,"step":{step},"time_us":{1_760_000_000_000_000 + step},"log_type_name":"{span}","value":2.5}}\n'
            for step in range(4)
            for span in ("step_start", "fetching_batch_end", "step_end")
        ),
    )
    (packed,) = pack([str(folder / "t.csv")], str(folder / "packed"), readers=ROW_READERS).written[:1]
    Path(packed).rename(folder / "packed.parquet")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.once
@settings(max_examples=400)
@given(data=st.data())
def test_damage_never_raises(
    originals: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(originals)))
    damaged = bytearray(originals[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        match data.draw(st.sampled_from(["junk", "byte", "lose", "cut", "double"])):
            case "junk":
                damaged[at : at + 4] = data.draw(st.sampled_from(JUNK))
            case "byte":
                damaged[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
            case "lose":
                del damaged[at : at + data.draw(st.integers(1, 200))]
            case "cut":
                del damaged[at:]
            case "double":
                damaged[at:at] = damaged[: data.draw(st.integers(0, 200))]
    path = write(tmp_path_factory.getbasetemp(), name, bytes(damaged))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for reader in ROW_READERS:
            assert 0 <= reader.sniff(path, bytes(damaged[:65_536])) <= 1
            reading = reader.read([path], ReadOptions(unit="ms"))
            (file,) = reading.inputs
            assert file.why_not is None or "\n" not in file.why_not
            for timings in reading.steps:
                for section in timings.sections:
                    values = timings.sections[section]
                    assert values.shape == (timings.num_ranks, timings.num_steps)
                    assert not np.any(np.isinf(values)) and not np.any(values < 0)
