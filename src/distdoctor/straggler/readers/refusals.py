"""Kinds of files that people have at hand and that cannot show who is slow: refused, each with the reason in words.

Each is a `Reader` that reads nothing, so that a folder full of files says of each what it is and where it belongs.
Pickles are told by what stands in their first bytes; they are never unpacked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.reading import Reading
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.file_bytes import size_of
from distdoctor.straggler.readers.file_text import text_start

# What a reader that knows a kind better (a trace in JSON, a table in Parquet) outbids.
SURE = 0.96
LIKELY = 0.5
MAYBE = 0.15


def _refusal(name: str, sniff: Callable[[str, bytes], float], why: str) -> Reader:
    def read(paths: Sequence[str], options: ReadOptions) -> Reading:  # noqa: ARG001 - a reader's signature
        return Reading(
            inputs=tuple(
                InputFile(path=path, kind=name, bytes=size_of(path), read=False, why_not=why)
                for path in paths
            )
        )

    return Reader(name=name, sniff=sniff, read=read)


def _ends(*endings: str) -> Callable[[str], bool]:
    return lambda path: path.lower().removesuffix(".gz").endswith(endings)


def _is_json(head: bytes) -> bool:
    return text_start(head)[:1] == b"{"


_SCHEMA = re.compile(rb'"schema"\s*:\s*"\d+\.\d+')


def _execution_trace(_path: str, head: bytes) -> float:
    """PyTorch's ExecutionTraceObserver: `"schema": "1.1.0-chakra.0.0.4"`, then `nodes`."""
    if not _is_json(head) or b'"traceEvents"' in head:
        return 0.0
    return SURE if _SCHEMA.search(head[:4096]) and b'"nodes"' in head else 0.0


_CHAKRA_NODE = re.compile(rb'"(?:ctrlDeps|ctrl_deps|dataDeps|data_deps)"\s*:')


def _chakra(path: str, head: bytes) -> float:
    """MLCommons Chakra: `workload_graph` of nodes in JSON, or `.et` in protobuf."""
    if _is_json(head):
        is_graph = b'"workload_graph"' in head or b'"workload_metadata"' in head
        return SURE if is_graph and (_CHAKRA_NODE.search(head) or b'"comms"' in head) else 0.0
    is_binary = b"\0" in head[:4096] or b"\x0a" in head[:2]
    if path.lower().endswith(".et") and is_binary:
        return 0.9
    return 0.0


_SQLITE = b"SQLite format 3\x00"


def _nsight_systems(path: str, head: bytes) -> float:
    lower = path.lower()
    if lower.endswith((".nsys-rep", ".qdrep", ".qdstrm")) and not _is_json(head):
        return SURE
    if head.startswith(_SQLITE):
        return SURE if b"CUPTI_ACTIVITY" in head or b"NVTX_EVENTS" in head else LIKELY
    return 0.0


def _perfetto(path: str, head: bytes) -> float:
    """A trace of protobuf packets: field 1, length-delimited. Chrome's JSON is read by the reader of traces."""
    named = _ends(".pftrace", ".perfetto-trace", ".perfetto")(path)
    if not named or _is_json(head) or not head:
        return 0.0
    return SURE


def _tensorboard(path: str, head: bytes) -> float:
    if b"brain.Event:" in head[:64]:
        return SURE
    return 0.9 if "tfevents" in path.rpartition("/")[2] else 0.0


# A pickle of protocol 2 to 5: PROTO, version.
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
# Version 2.1 has `version`, `pg_config` and `entries` with `record_id`; later ones more.
_FLIGHT_KEYS = (
    b"nccl_version",
    b"comm_lib_version",
    b"pg_config",
    b"pg_status",
    b"nccl_comm_state",
    b"record_id",
    b"collective_seq_id",
)
_SNAPSHOT_KEYS = (b"device_traces", b"segments", b"allocator_settings", b"total_size", b"active_size")


def _flight_recorder(path: str, head: bytes) -> float:
    if _PICKLE.match(head):
        # No other pickle has process groups; of a dump that was cut nothing else may be left.
        return SURE if b"pg_config" in head or sum(key in head for key in _FLIGHT_KEYS) >= 2 else 0.0
    if _is_json(head):
        found = sum(b'"%s"' % key in head for key in _FLIGHT_KEYS)
        return SURE if found >= 2 and (b'"entries"' in head or b'"version"' in head) else 0.0
    return 0.9 if re.search(r"(?:nccl|comm_lib)_trace_rank_?\d+$", path) and b"\x80" in head[:1] else 0.0


def _memory_snapshot(_path: str, head: bytes) -> float:
    if not _PICKLE.match(head):
        return 0.0
    return SURE if sum(key in head for key in _SNAPSHOT_KEYS) >= 2 else 0.0


def _other_pickle(_path: str, head: bytes) -> float:
    return LIKELY if _PICKLE.match(head) else 0.0


_NCCL_TESTS = re.compile(rb"#\s+(?:nThread\s+\d+\s+nGpus|out-of-place\b|size\s+count\s+type\s+redop)")


def _nccl_tests(_path: str, head: bytes) -> float:
    """Tables of nccl-tests and rccl-tests: `# nThread 1 nGpus 8 minBytes …`, `algbw   busbw`."""
    if b"\0" in head[:256] or not _NCCL_TESTS.search(head):
        return 0.0
    return SURE if b"busbw" in head or b"# nThread" in head else 0.0


_PACKED = (
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
)


def _archive(_path: str, head: bytes) -> float:
    if head[257:262] == b"ustar":
        return SURE
    is_packed = any(head.startswith(magic) for magic, _ in _PACKED)
    # Without reading on, text may well begin with these three letters.
    return (0.9 if b"\0" in head[:512] or head[3:4].isdigit() else 0.0) if is_packed else 0.0


def _image(_path: str, head: bytes) -> float:
    return 0.9 if head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF-")) else 0.0


REFUSALS: tuple[Reader, ...] = (
    _refusal(
        "Chakra execution trace",
        _chakra,
        "a Chakra execution trace is one rank's graph of operations, made for simulators: it does not tell who waits "
        "for whom; give the Kineto traces it was made from",
    ),
    _refusal(
        "PyTorch execution trace",
        _execution_trace,
        "an execution trace has operations and their inputs, but no durations: give the Kineto traces of the same steps "
        "(torch.profiler)",
    ),
    _refusal(
        "Nsight Systems report",
        _nsight_systems,
        "reports of Nsight Systems are not read: record the same steps with torch.profiler on every rank, and give its "
        "traces",
    ),
    _refusal(
        "Perfetto trace",
        _perfetto,
        "binary Perfetto traces are not read: give the trace as the profiler wrote it, in JSON",
    ),
    _refusal(
        "TensorBoard events",
        _tensorboard,
        "TensorBoard event files are not read: export the scalars as CSV, or give the job's log",
    ),
    _refusal(
        "Flight Recorder dump",
        _flight_recorder,
        "a Flight Recorder dump tells what hangs, that is for `distdoctor hang`",
    ),
    _refusal(
        "CUDA memory snapshot",
        _memory_snapshot,
        "a memory snapshot has no times of steps; `distdoctor oom explain FILE` reads it",
    ),
    _refusal(
        "pickle",
        _other_pickle,
        "a pickle is never unpacked here: write the times as CSV, JSON lines or Parquet",
    ),
    _refusal(
        "nccl-tests table",
        _nccl_tests,
        "a table of nccl-tests tells bandwidth, not who is slow in a job: `distdoctor nccl-bench FILE` reads it",
    ),
    _refusal("archive", _archive, "an archive or a compressed file: unpack it first and give the folder"),
    _refusal("picture or PDF", _image, "a picture or a PDF: give the data that it was drawn from"),
)
"""Readers of what cannot be used; none outbids a reader of the same file."""
