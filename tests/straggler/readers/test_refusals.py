"""Files that cannot show who is slow are refused, each with what it is and where it belongs."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import pytest

from distdoctor.evidence import read_head
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.nccl_inspector import NCCL_INSPECTOR
from distdoctor.straggler.readers.op_trace import OP_TRACES
from distdoctor.straggler.readers.prometheus import PROMETHEUS
from distdoctor.straggler.readers.refusals import REFUSALS

CASES = Path(__file__).parents[4] / "shared/cases"


def refusal(path: Path) -> str:
    """What the surest of all refusals, and of this folder's readers, says of a file."""
    head = read_head(str(path))
    best = max(
        (*REFUSALS, NCCL_INSPECTOR, OP_TRACES, PROMETHEUS), key=lambda reader: reader.sniff(str(path), head)
    )
    assert best.sniff(str(path), head) >= 0.5
    reading = best.read([str(path)], ReadOptions())
    (entry,) = reading.inputs
    assert entry.read is False and entry.why_not and "\n" not in entry.why_not
    assert not (reading.steps or reading.collectives or reading.telemetry)
    return f"{entry.kind}: {entry.why_not}"


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


FLIGHT = {
    "version": "2.10",
    "nccl_version": "2.27.5",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 3}},
    "entries": [],
}


def test_execution_traces_name_the_trace_that_would_help(tmp_path: Path) -> None:
    trace = {
        "schema": "1.1.1-chakra.0.0.4",
        "pid": 1,
        "time": "",
        "start_ts": 4,
        "nodes": [{"id": 2, "ctrl_deps": 1}],
    }
    packed = write(tmp_path / "et.json.gz", gzip.compress(json.dumps(trace).encode()))
    assert "PyTorch execution trace" in refusal(packed)
    graph = {
        "workload_graph": [{"Id": 216, "Name": "aten::add", "NodeType": 4, "ctrlDeps": [3], "data_deps": []}]
    }
    assert "Chakra" in refusal(write(tmp_path / "chakra.0.json", json.dumps(graph, indent=2)))
    assert "Chakra" in refusal(write(tmp_path / "chakra.0.et", b"\x0a\x0a\x05\x30\x2e\x30\x2e\x34\x00" * 9))


def test_recordings_of_other_profilers_are_refused(tmp_path: Path) -> None:
    database = tmp_path / "report.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT)")
    connection.close()
    assert "Nsight" in refusal(database)
    assert "Nsight" in refusal(write(tmp_path / "report1.nsys-rep", b"NVTX\x00\x01binary"))
    assert "Perfetto" in refusal(write(tmp_path / "trace.pftrace", b"\x0a\x1e\x10\x01\x32"))
    event = (
        b"\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\x22\x09\x00\x00\xc0\x1b\x02\xd9\x41\x1a\x0dbrain.Event:2"
    )
    assert "TensorBoard" in refusal(write(tmp_path / "events.out.tfevents.1714557600.node-1", event))


@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_are_sent_where_they_belong_and_never_unpacked(tmp_path: Path, protocol: int) -> None:
    flight = refusal(write(tmp_path / "nccl_trace_rank_0", pickle.dumps(FLIGHT, protocol)))
    assert "distdoctor hang" in flight
    snapshot = {"segments": [{"device": 0, "total_size": 2, "active_size": 1}], "device_traces": [[]]}
    assert "distdoctor oom explain" in refusal(
        write(tmp_path / "snapshot.pickle", pickle.dumps(snapshot, protocol))
    )

    assert "never unpacked" in refusal(write(tmp_path / "x.pkl", pickle.dumps(Evil(tmp_path), protocol)))
    assert not (tmp_path / "touched").exists()


class Evil:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.folder / "touched",)


def test_flight_recorder_dumps_in_json_are_for_hang_too(tmp_path: Path) -> None:
    assert "distdoctor hang" in refusal(write(tmp_path / "dump.json", json.dumps(FLIGHT)))


def test_tables_of_nccl_tests_are_for_nccl_bench(tmp_path: Path) -> None:
    text = (
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20\n#\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
        "           8             2     float     sum      -1    33.61    0.00    0.00      0\n"
    )
    assert "distdoctor nccl-bench FILE" in refusal(write(tmp_path / "all_reduce.txt", text))


def test_archives_are_to_be_unpacked_first(tmp_path: Path) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("rank0.json"), io.BytesIO())
    assert "unpack it first" in refusal(write(tmp_path / "traces.tar", tar.getvalue()))
    assert "unpack it first" in refusal(write(tmp_path / "traces.tar.gz", gzip.compress(tar.getvalue())))
    zipped = tmp_path / "traces.zip"
    with zipfile.ZipFile(zipped, "w") as files:
        files.writestr("rank0.json", "{}")
    assert "unpack it first" in refusal(zipped)
    assert "unpack it first" in refusal(write(tmp_path / "a.xz", b"\xfd7zXZ\x00\x00\x04\xe6"))
    assert "unpack it first" in refusal(write(tmp_path / "a.zst", b"\x28\xb5\x2f\xfd\x04\x00"))
    assert "drawn from" in refusal(write(tmp_path / "chart.png", b"\x89PNG\r\n\x1a\n\x00"))


@pytest.mark.parametrize(
    ("path", "head"),
    [
        (
            "rank-0.pt.trace.json",
            b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X"}]}',
        ),
        ("steps.csv", b"rank,step,forward_ms\n0,1,3.5\n"),
        ("steps.jsonl", b'{"rank": 0, "step": 1, "forward": 3.5}\n'),
        ("train.log", b"step: 10  loss:  2.1  tps: 1,234\n"),
        ("trace.json", b'{"nodes": 4, "schema": "mine", "entries": []}'),
        ("BZhang.txt", b"BZhang's training log\nstep 1\n"),
        ("a.parquet", b"PAR1\x15\x04\x15"),
        ("a.arrow", b"ARROW1\x00\x00"),
        ("empty", b""),
        ("report.et", b"rank 0 took 3 ms\n"),
    ],
)
def test_what_can_be_used_is_not_refused(path: str, head: bytes) -> None:
    assert {reader.name: reader.sniff(path, head) for reader in REFUSALS} == dict.fromkeys(
        (reader.name for reader in REFUSALS), 0.0
    )


def test_every_file_given_is_listed_once(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / name, b"\x80\x04x")) for name in ("a.pkl", "b.pkl")]
    reader = next(reader for reader in REFUSALS if reader.name == "pickle")
    assert [(entry.path, entry.bytes) for entry in reader.read(paths, ReadOptions()).inputs] == [
        (path, 3) for path in paths
    ]


def test_published_execution_traces_archives_and_dumps_are_refused() -> None:
    if not CASES.is_dir():
        pytest.skip("no ../shared/cases beside the project: published files are not tested")
    straggler = CASES / "straggler"
    assert "PyTorch execution trace" in refusal(straggler / "param/resnet_2gpu_et.json.gz")
    assert "unpack it first" in refusal(straggler / "chakra/json_trace.tar.gz")
    assert "results of StragglerAnalysis" in refusal(straggler / "bytedance_stragglers/result-AR.json")
    dumps = [
        path
        for path in (CASES / "fr_dumps").rglob("*")
        if path.is_file() and (read_head(str(path))[:1] == b"\x80" or path.name.startswith("rank_"))
    ]
    assert dumps
    for dump in dumps:
        assert "distdoctor hang" in refusal(dump)


def test_published_chakra_graphs_are_refused(tmp_path: Path) -> None:
    packed = CASES / "straggler/chakra/json_trace.tar.gz"
    if not packed.is_file():
        pytest.skip(f"no {packed} beside the project: published files are not tested")
    with tarfile.open(packed) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                assert "Chakra" in refusal(write(tmp_path / Path(member.name).name, content.read()))
