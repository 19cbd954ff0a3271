"""Tables in Parquet and Arrow files."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.arrow_table import ARROW_TABLES
from straggler.readers.row_builders import notes_of, only, read, sniffed, why_not, write

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def table(**more: object) -> object:
    columns = {
        "rank": [0, 1, 0, 1],
        "step": [1, 1, 2, 2],
        "host": ["a", "b", "a", "b"],
        "fwd_ms": [4.0, 5.0, 6.0, None],
        "loss": [1.0, 2.0, 3.0, 4.0],
    }
    return pa.table({**columns, **more})


def parquet(folder: Path, data: object, **options: object) -> str:
    path = str(folder / "t.parquet")
    pq.write_table(data, path, **options)
    return path


def ipc_file(folder: Path, data: object) -> str:
    path = str(folder / "t.arrow")
    with pa.ipc.new_file(path, data.schema) as writer:
        writer.write_table(data, max_chunksize=3)
    return path


def ipc_stream(folder: Path, data: object) -> str:
    path = str(folder / "t.arrows")
    with pa.ipc.new_stream(path, data.schema) as writer:
        writer.write_table(data, max_chunksize=3)
    return path


@pytest.mark.parametrize("writer", [parquet, ipc_file, ipc_stream])
def test_a_table_is_read_with_its_hosts(tmp_path: Path, writer) -> None:
    path = writer(tmp_path, table())
    assert sniffed(ARROW_TABLES, path) >= 0.5
    reading = read(ARROW_TABLES, path)
    timings = only(reading)
    assert timings.sections[Section.FORWARD][0].tolist() == [4, 6]
    assert str(timings.sections[Section.FORWARD][1, 1]) == "nan"
    assert [place.host for place in timings.places] == ["a", "b"]
    assert notes_of(reading, NoteKind.DROPPED_VALUES) == ["columns that are not used: `loss`"]


def test_row_groups_and_dictionaries_are_read(tmp_path: Path) -> None:
    data = table(host=pa.array(["a", "b", "a", "b"]).dictionary_encode())
    timings = only(read(ARROW_TABLES, parquet(tmp_path, data, row_group_size=1)))
    assert timings.sections[Section.FORWARD][0].tolist() == [4, 6]
    assert timings.places[1].host == "b"


def test_small_floats_are_read(tmp_path: Path) -> None:
    data = table(wait_us=pa.array(np.array([1, 2, 3, 4], np.float16)))
    timings = only(read(ARROW_TABLES, ipc_file(tmp_path, data)))
    assert timings.sections[Section.WAIT][1, 1] == pytest.approx(0.004)


def test_times_and_durations_bring_their_own_unit(tmp_path: Path) -> None:
    data = table(
        ts=pa.array([1_760_000_000_000_000] * 4, pa.timestamp("us", tz="UTC")),
        data=pa.array([timedelta(milliseconds=2)] * 4, pa.duration("us")),
    )
    timings = only(read(ARROW_TABLES, parquet(tmp_path, data)))
    assert timings.sections[Section.DATA][0, 0] == pytest.approx(2)
    assert timings.started_s is not None and timings.started_s[0] == 1_760_000_000


def test_a_time_of_day_without_a_zone_is_noted(tmp_path: Path) -> None:
    data = table(ts=pa.array([1_760_000_000_000_000] * 4, pa.timestamp("us")))
    reading = read(ARROW_TABLES, parquet(tmp_path, data))
    started = only(reading).started_s
    assert started is not None and started[0] == 1_760_000_000
    assert any("no zone" in text for text in notes_of(reading, NoteKind.LIMITED))


@pytest.mark.parametrize(
    ("column", "what"),
    [(["4.0"] * 4, "is text"), ([[1.0]] * 4, "is of type list"), ([{"a": 1}] * 4, "is of type struct")],
)
def test_times_that_are_no_numbers_are_refused_in_words(tmp_path: Path, column: object, what: str) -> None:
    text = why_not(read(ARROW_TABLES, parquet(tmp_path, table(fwd_ms=column))))
    assert text.startswith("column `fwd_ms`") and what in text


def test_a_time_without_a_unit_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, table(bwd=[1.0] * 4))
    assert why_not(read(ARROW_TABLES, path)).startswith(
        "column `bwd` has no unit: name it bwd_ms or give `--unit ms`"
    )


@pytest.mark.parametrize("writer", [parquet, ipc_file, ipc_stream])
def test_a_file_cut_anywhere_is_refused_in_one_line_or_read_in_part(tmp_path: Path, writer) -> None:
    whole = Path(writer(tmp_path, table())).read_bytes()
    for num_bytes in range(4, len(whole), max(1, len(whole) // 23)):
        path = write(tmp_path, "cut.bin", whole[:num_bytes])
        sniffed(ARROW_TABLES, path)
        (file,) = read(ARROW_TABLES, path).inputs
        assert file.read or (file.why_not and "\n" not in file.why_not)


def test_without_pyarrow_one_line_says_what_to_install(tmp_path: Path) -> None:
    path = parquet(tmp_path, table())
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from distdoctor.straggler.readers.arrow_table import ARROW_TABLES\n"
        "from distdoctor.straggler.readers.packed import PACKED_FILES\n"
        "from distdoctor.straggler.readers.base import ReadOptions\n"
        f"print(ARROW_TABLES.sniff({path!r}, b'PAR1') > 0, PACKED_FILES.sniff({path!r}, b'PAR1'))\n"
        f"print(ARROW_TABLES.read([{path!r}], ReadOptions()).inputs[0].why_not)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == (
        'True 0.0\nParquet and Arrow files need pyarrow; pip install "distdoctor[parquet]"\n'
    )
