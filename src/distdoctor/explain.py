"""What is this file, and who reads it? One tuple of readers; a room that learns a new kind adds one line.

Rooms are named, not imported: a reader holds the dotted name of the function that makes a report of its files,
and whoever wires the command line imports it when it is needed.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, find_files, read_ends
from distdoctor.evidence_bytes import decode, looks_binary
from distdoctor.pasted import clean_pasted
from distdoctor.report.model import Report

# Enough to meet the first telling line of any log or paste. Our own choice.
HEAD_BYTES = 256 * 1024
# Enough for the traceback of a few ranks and what the launcher says after them. Our own choice.
TAIL_BYTES = 128 * 1024

_FIRST_LINE_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceReader:
    """Who reads which kinds of files.

    sniff: path and first bytes (unpacked when gzip) → how sure, from 0 to 1. The surest reader gets the file.
    handler: dotted name of the room's function that reads such files ("module:function").
    """

    name: str
    kinds: str
    """The kinds in words, for "known kinds: …"."""
    sniff: Callable[[str, bytes], float]
    handler: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFile:
    """A file that no reader knows."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedEvidence:
    """Files by reader, in the order of the tuple, and those that nobody knows."""

    by_reader: tuple[tuple[EvidenceReader, tuple[str, ...]], ...]
    unknown: tuple[UnknownFile, ...]


_ENV_LINES = re.compile(
    r"^[ \t]*Collecting environment information|^[ \t]*PyTorch version\s*:|\|\s*NVIDIA-SMI\s+[\d.]|NVSMI LOG|"
    r"^[ \t]*GPU \d+: .+\(UUID: |^[ \t]*GPU0\s+GPU1|^[ \t]*(?:Clocks (?:Throttle|Event) Reasons|ECC Errors|Remapped Rows)[ \t]*$|"
    r"Failed to initialize NVML|couldn't communicate with the NVIDIA driver|Unable to determine the device handle for|"
    r"^[ \t]*No devices were found|Infiniband device '|^[ \t]*CA '[\w.-]+'|^[ \t]*hca_id:|==> \S+ \((?:Up|Down)\)|"
    r"^[ \t]*\d+: [\w.@-]+: <[A-Z,_]+>|NVRM: |SXid \(|fallen off the bus|[Oo]ut of memory: Kill|oom-kill:constraint|"
    r"mlx5_core [0-9a-f:.]+|nv-fabricmanager|nvidia-fabricmanager|^[ \t]*(?:export )?NCCL_[A-Z0-9_]+=|"
    r"\[\s*\d+\.\d{6}\] |^\d+,\d+,\d+,[-c+][^;]*;|kernel: |utilization\.gpu|"
    r"(?:utilization|temperature|memory|power|clocks|ecc\.mode|remapped_rows|"
    r"retired_pages)\.\w+(?: \[\S+\])?,|clocks_(?:throttle|event)_reasons\.|ecc\.errors\.|pcie\.link\.|No module named 'torch'",
    re.MULTILINE,
)
_OWN_REPORT = re.compile(rb'"tool"\s*:\s*\{[^{}]{0,400}"name"\s*:\s*"distdoctor"')


def _sniff_report(_path: str, head: bytes) -> float:
    """A report of our own, in JSON."""
    starts_as_object = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
    return 1.0 if starts_as_object and _OWN_REPORT.search(head) else 0.0


def _sniff_env(_path: str, head: bytes) -> float:
    """Text of tools that describe a host: unsure when only one line speaks for it, as in a job's log."""
    hits = len(_ENV_LINES.findall(clean_pasted(decode(head))))
    return 0.0 if not hits else 0.5 if hits == 1 else 0.6


def _sniff_bench(path: str, head: bytes) -> float:
    """A table of bandwidths, or what NCCL itself logged."""
    from distdoctor.nccl_bench.readers.nccl_log import sniff_nccl_log
    from distdoctor.nccl_bench.readers.sniff import sniff_table, sniff_table_json

    return max(sniff_table(path, head), sniff_table_json(path, head), sniff_nccl_log(path, head))


def _sniff_oom(path: str, head: bytes) -> float:
    """A message of memory that was refused, or a snapshot of torch's allocator."""
    from distdoctor.oom.messages.sniff import sniff_oom
    from distdoctor.oom.snapshots.files import sniff_snapshot

    return max(sniff_oom(path, head), sniff_snapshot(path, head))


def _sniff_timing(path: str, head: bytes) -> float:
    """Timing of ranks: traces, logs of step times, tables. Unsure of a log, which may be about something else too."""
    from distdoctor.straggler.sniff import sniff_timing

    return sniff_timing(path, head)


# What launch configurations are called; a log that quotes one is no configuration.
_CONFIG_SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".py", ".sh", ".sbatch", ".slurm")


def _sniff_config(path: str, head: bytes) -> float:
    """A launch configuration, by its name and its keys."""
    from distdoctor.oom.configs.read import MIN_SCORE, best_score

    if not path.lower().endswith(_CONFIG_SUFFIXES) or looks_binary(head):
        return 0.0
    score = best_score(path, decode(head))
    return score if score >= MIN_SCORE else 0.0


READERS: tuple[EvidenceReader, ...] = (
    EvidenceReader(
        name="report",
        kinds="distdoctor report (JSON)",
        sniff=_sniff_report,
        handler="distdoctor.report.codec:decode",
    ),
    EvidenceReader(
        name="nccl-bench",
        kinds="nccl-tests and rccl-tests tables and results, NCCL_DEBUG logs",
        sniff=_sniff_bench,
        handler="distdoctor.nccl_bench.readers.files:facts_from_files",
    ),
    EvidenceReader(
        name="oom",
        kinds="out-of-memory messages, memory snapshots",
        sniff=_sniff_oom,
        handler="distdoctor.oom.explain.files:report_of_files",
    ),
    EvidenceReader(
        name="oom config",
        kinds="launch configurations (DeepSpeed, accelerate, TorchTitan, Megatron-LM, Kubernetes …)",
        sniff=_sniff_config,
        handler="distdoctor.oom.configs.files:report_of_configs",
    ),
    EvidenceReader(
        name="straggler",
        kinds="timing of ranks (Kineto traces, trainer logs, NCCL Inspector, DCGM exports, tables of step times)",
        sniff=_sniff_timing,
        handler="distdoctor.straggler.from_files:report_of_files",
    ),
    EvidenceReader(
        name="env",
        kinds="collect_env, nvidia-smi, ibstat and ibstatus, ip addr, kernel log, environment variables",
        sniff=_sniff_env,
        handler="distdoctor.env.from_text:facts_from_files",
    ),
)


def sort_evidence(paths: Sequence[str], *, readers: Sequence[EvidenceReader] = READERS) -> SortedEvidence:
    """Each file of `paths` (folders are walked) to the reader that knows it best; the first wins a tie.

    Raises InputError when a path is not there or there is no file.
    """
    files: dict[str, list[str]] = {reader.name: [] for reader in readers}
    unknown: list[UnknownFile] = []
    for path in find_files(paths):
        try:
            head = read_ends(path, head_bytes=HEAD_BYTES, tail_bytes=TAIL_BYTES)
        except InputError as error:
            unknown.append(UnknownFile(path=path, why=error.message))
            continue
        reader = best_reader(path, head, readers=readers)
        if reader is None:
            unknown.append(UnknownFile(path=path, why=_describe(path, head)))
        else:
            files[reader.name].append(path)
    found = tuple((reader, tuple(files[reader.name])) for reader in readers if files[reader.name])
    return SortedEvidence(by_reader=found, unknown=tuple(unknown))


def best_reader(
    path: str, head: bytes, *, readers: Sequence[EvidenceReader] = READERS
) -> EvidenceReader | None:
    """The reader that is surest of a file by its name and first bytes; None when none knows it."""
    scored = [(reader.sniff(path, head), -number, reader) for number, reader in enumerate(readers)]
    score, _, reader = max(scored, key=lambda entry: entry[:2])
    return reader if score > 0 else None


def explain(
    paths: Sequence[str],
    build: Callable[[EvidenceReader, Sequence[str]], Report],
    *,
    readers: Sequence[EvidenceReader] = READERS,
) -> tuple[list[Report], tuple[UnknownFile, ...]]:
    """One report a reader, made by `build` of its files, and the files that nobody knows or could read.

    Raises InputError when no file is known or none can be read; of an unknown one its message shows how it begins,
    its hint what is known.
    """
    found = sort_evidence(paths, readers=readers)
    if not found.by_reader:
        first = found.unknown[0]
        more = f" (and {len(found.unknown) - 1} more)" if len(found.unknown) > 1 else ""
        raise InputError(f"{first.why}{more}", hint=f"known kinds: {known_kinds(readers)}")
    reports: list[Report] = []
    unknown = list(found.unknown)
    failures: list[InputError] = []
    for reader, files in found.by_reader:
        try:
            reports.append(build(reader, files))
        except InputError as error:
            failures.append(error)
            unknown += [UnknownFile(path=path, why=error.message) for path in files]
    if not reports:
        raise failures[0]
    return reports, tuple(unknown)


def known_kinds(readers: Sequence[EvidenceReader] = READERS) -> str:
    """The kinds of all readers, in words."""
    return "; ".join(reader.kinds for reader in readers)


def load_handler(reader: EvidenceReader) -> Callable[..., object]:
    """The function that `reader.handler` names. The names are ours, never from evidence."""
    module, _, name = reader.handler.partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), name)
    return function


def _describe(path: str, head: bytes) -> str:
    """ "`x.txt` is of no kind that is known; it begins `…`"."""
    name = "standard input" if path == STDIN else f"`{path}`"
    if not head.strip():
        return f"{name} is empty"
    lines = (line.strip() for line in clean_pasted(decode(head[:4096])).split("\n"))
    first = next((line for line in lines if line and line.isprintable()), "")
    if not first:
        suffix = PurePath(path).suffix
        return (
            f"{name} is of no kind that is known, and has no readable line{f' ({suffix})' if suffix else ''}"
        )
    if looks_binary(head):
        return f"{name} is no text"
    shown = first if len(first) <= _FIRST_LINE_CHARACTERS else first[: _FIRST_LINE_CHARACTERS - 1] + "…"
    return f"{name} is of no kind that is known; it begins `{shown}`"
