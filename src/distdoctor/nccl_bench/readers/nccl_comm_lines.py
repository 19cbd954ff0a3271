"""NCCL's lines about communicators: their shape, channels, NVLS, topology, and the algorithms that were chosen.

Formats: NVIDIA/nccl 2.4 to 2.30 (src/init.cc, enqueue.cc, transport/nvls.cc, graph/topo.cc, graph/tuning.cc).
"""

from __future__ import annotations

import re

from distdoctor.nccl_bench.definitions import canonical_name
from distdoctor.nccl_bench.facts.nccl_log import ChosenAlgorithm, CommShape
from distdoctor.nccl_bench.readers.nccl_lines import LogLine
from distdoctor.nccl_bench.readers.nccl_notes import MAX_DISTINCT, Notes

_SHAPE = re.compile(
    r"nRanks (\d{1,7}) nNodes (\d{1,6}) localRanks (\d{1,6})(?: localRank \d+)?(?: MNNVL (\d))?"
)
_INIT = re.compile(
    r"rank \d+ nranks (\d{1,7}) .{0,200}?Init (?:START|COMPLETE)|rank \d+ nranks (\d{1,7}) cudaDev"
)
# aws-ofi-nccl's tuner; ranks are spread evenly over hosts wherever NCCL runs at speed.
_TUNER_SHAPE = re.compile(r"comm with (\d{1,7}) ranks and (\d{1,6}) nodes")
_CHANNELS = re.compile(r"(\d{1,3}) coll channels,")
_NVLS_CHANNELS = re.compile(r"(\d{1,3}) nvls channels")
_P2P_CHANNELS = re.compile(r"(\d{1,3}) p2p channels")
_TIMINGS = re.compile(r"Init timings.{0,60}? total (\d+\.\d+)")
_MULTICAST = re.compile(r"NVLS multicast support is (not )?available")
_NVLS_WORKS = re.compile(r"Connected NVLS tree|NVLS comm \S+ headRank|NVLS Created Multicast group")
_NVLS_FAILS = re.compile(
    r"Failed to bind NVLink SHARP|without NVLS support|NVLS.{0,60}\b(?:failed|failure|disabl)|"
    r"(?:failed|failure).{0,60}\bNVLS\b",
    re.IGNORECASE,
)
_SYSTEM = re.compile(r"=== System : maxBw [\d.]+ totalBw (\d+\.\d+)")
_DIRECT = re.compile(r"isAllDirectP2p (\d)")
_NVLINK = re.compile(r"\+ NVL\[(\d+\.\d+)\] - (GPU|NVS|DEV)/")
_ALGORITHM = re.compile(
    r"(\w+): +([\d,]+) Bytes -> Algo (\S+) proto (\S+?),?(?:\s+channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}|\s|$)"
)
_OTHER_KERNEL = re.compile(r"(\w+) \[(Symmetric|Copy Engine)\]: +([\d,]+) Bytes -> (?:Kernel )?(\w+)")

# By number: NCCL_ALGO_… and NCCL_PROTO_… of NVIDIA/nccl src/include (nccl_common.h, device.h); printed up to 2.22.
ALGORITHMS = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")

_MAX_NVLS_FAILURES = 20


def read_comm_line(line: LogLine, notes: Notes) -> None:
    """Note what one message says about a communicator."""
    text = line.text
    if "Bytes -> " in text:
        _algorithm(line, notes)
    elif "ranks " in text.lower():
        _comm(line, notes)
    if " channels" in text and "coll" in text:
        _channels(line, notes)
    if "NVLS" in text or "NVLink SHARP" in text or "MNNVL" in text:
        _nvls(line, notes)
    if "+ NVL[" in text or "=== System" in text:
        _topology(line, notes)
    if "isAllDirectP2p" in text:
        found = _DIRECT.search(text)
        if found:
            notes.flag("all direct p2p" if found[1] == "1" else "not all direct p2p", line)
    if "Init timings" in text:
        found = _TIMINGS.search(text)
        if found:
            notes.highest("init", float(found[1]), line)


def _comm(line: LogLine, notes: Notes) -> None:
    shape = _SHAPE.search(line.text)
    tuner = None if shape else _TUNER_SHAPE.search(line.text)
    init = None if shape or tuner else _INIT.search(line.text)
    key: tuple[int, int | None, int | None, bool | None]
    if shape:
        mnnvl = None if shape[4] is None else shape[4] != "0"
        key = (int(shape[1]), int(shape[2]), int(shape[3]), mnnvl)
    elif tuner:
        ranks, hosts = int(tuner[1]), int(tuner[2])
        key = (ranks, hosts, ranks // hosts if hosts and ranks % hosts == 0 else None, None)
    elif init:
        key = (int(init[1] or init[2]), None, None, None)
    else:
        return
    if key in notes.comms or len(notes.comms) >= MAX_DISTINCT or not key[0]:
        return
    notes.comms[key] = CommShape(
        num_ranks=key[0],
        num_hosts=key[1],
        local_ranks=key[2],
        mnnvl=key[3],
        line=line.number,
        where=notes.where(line),
    )


def _channels(line: LogLine, notes: Notes) -> None:
    for what, pattern in (
        ("collective channels", _CHANNELS),
        ("nvls channels", _NVLS_CHANNELS),
        ("p2p channels", _P2P_CHANNELS),
    ):
        found = pattern.search(line.text)
        if found:
            notes.highest(what, int(found[1]), line)


def _nvls(line: LogLine, notes: Notes) -> None:
    found = _MULTICAST.search(line.text)
    if found:
        # Newer versions add "transport enabled" or "transport disabled" to it.
        off = found[1] or "transport disabled" in line.text
        notes.flag("nvls unavailable" if off else "nvls available", line)
    elif _NVLS_WORKS.search(line.text):
        notes.flag("nvls set up", line)
    elif "regist" in line.text:
        return  # buffers of the user: NVLS works without them
    elif _NVLS_FAILS.search(line.text) and len(notes.nvls_failures) < _MAX_NVLS_FAILURES:
        notes.nvls_failures.setdefault(line.text[:300])
        notes.mark("nvls failure", line)


def _topology(line: LogLine, notes: Notes) -> None:
    system = _SYSTEM.search(line.text)
    if system:
        notes.highest("system", float(system[1]), line)
    found = _NVLINK.search(line.text)
    if found:
        notes.highest("nvlink", float(found[1]), line)
        if found[2] == "NVS":
            notes.highest("nvlink to switch", float(found[1]), line)


def _algorithm(line: LogLine, notes: Notes) -> None:
    found = _ALGORITHM.search(line.text)
    other = None if found else _OTHER_KERNEL.search(line.text)
    if found:
        algorithm, protocol = _name(found[3], ALGORITHMS), _name(found[4], PROTOCOLS)
        collective, size = found[1], found[2]
        channels = f"{found[5]}-{found[6]}" if found[5] is not None else None
    elif other:
        collective, size, channels = other[1], other[3], None
        algorithm, protocol = f"{other[2].lower()} {other[4]}", ""
    else:
        return
    name = canonical_name(collective) or collective
    size_bytes = int(size.replace(",", "") or 0)
    key = (name, size_bytes, algorithm, protocol, channels)
    if key in notes.algorithms or len(notes.algorithms) >= MAX_DISTINCT:
        return
    notes.algorithms[key] = ChosenAlgorithm(
        collective=name,
        size_bytes=size_bytes,
        algorithm=algorithm,
        protocol=protocol,
        channels=channels,
        line=line.number,
        where=notes.where(line),
    )


def _name(text: str, names: tuple[str, ...]) -> str:
    """The usual spelling of a number or of any spelling: "1", "RING" and "Ring" are "Ring"."""
    if text.isdecimal():
        return names[int(text)] if len(text) == 1 and int(text) < len(names) else text
    plain = text.replace("_", "").lower()
    return next((name for name in names if name.lower() == plain), text)
