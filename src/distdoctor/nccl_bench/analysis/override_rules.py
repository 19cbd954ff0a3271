"""Which settings of the environment cost speed or make a job fail, and why. One line a rule; sources beside them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from distdoctor.nccl_bench.facts.nccl_log import Override
from distdoctor.report.model import Confidence, Severity
from distdoctor.units import KIB, MIB

GUIDE = "NCCL user guide, environment variables"

# A ring over NVLink uses 16 to 32 channels; with fewer than this a single one becomes the limit. Our own threshold.
FEW_CHANNELS = 4

# NCCL's default is 4 MiB; smaller buffers keep less data in flight. Our own threshold.
SMALL_BUFFER_BYTES = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideRule:
    """Values of a variable that are costly or dangerous; `applies` gets the trimmed value."""

    name: str
    applies: Callable[[str], bool]
    why: str
    """One sentence for the reader who has never seen the variable."""
    needs: str = ""
    """What the log must show for this to hurt: "several hosts", "nvls"; empty: always."""
    severity: Severity = Severity.WARNING
    confidence: Confidence = Confidence.MEDIUM
    source: str = GUIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A setting and the rule that it meets."""

    override: Override
    rule: OverrideRule


_NUMBER = re.compile(r"-?\d{1,18}")
_LIST_VARIABLES = frozenset(
    {"NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_NET_PLUGIN", "NCCL_DEBUG_SUBSYS"}
)
_ALGORITHM_WORDS = frozenset(
    "tree ring collnet collnetdirect collnetchain nvls nvlstree pat none".split()  # noqa: SIM905
)
_PROTOCOL_WORDS = frozenset("ll ll128 simple none".split())  # noqa: SIM905


def _on(value: str) -> bool:
    return value.lower() not in ("", "0", "false", "no", "n")


def _off(value: str) -> bool:
    return value == "0"


def _below(limit: int) -> Callable[[str], bool]:
    return lambda value: _NUMBER.fullmatch(value) is not None and 0 < int(value) < limit


def _one_of(*words: str) -> Callable[[str], bool]:
    return lambda value: value.upper() in words


def _any(value: str) -> bool:
    return bool(value)


RULES: tuple[OverrideRule, ...] = (
    OverrideRule(
        name="NCCL_P2P_DISABLE",
        applies=_on,
        confidence=Confidence.HIGH,
        why="GPUs of one host no longer exchange data directly, not even over NVLink",
    ),
    OverrideRule(
        name="NCCL_P2P_LEVEL",
        applies=_one_of("LOC", "0"),
        confidence=Confidence.HIGH,
        why="GPUs of one host no longer exchange data directly",
    ),
    OverrideRule(
        name="NCCL_SHM_DISABLE",
        applies=_on,
        why="GPUs without a direct path exchange data over the network, even inside one host",
    ),
    OverrideRule(
        name="NCCL_IB_DISABLE",
        applies=_on,
        needs="sockets",
        why="NCCL's own RDMA is off, and data between hosts goes over TCP sockets unless a plugin carries it",
    ),
    OverrideRule(
        name="NCCL_NET",
        applies=lambda value: value.lower() == "socket",
        needs="several hosts",
        confidence=Confidence.HIGH,
        why="data between hosts goes over TCP sockets, whatever hardware is there",
    ),
    OverrideRule(
        name="NCCL_ALGO",
        applies=_any,
        why="every collective of every size is held to these algorithms; since NCCL 2.24 Ring is no longer added",
        source="NCCL user guide, NCCL_ALGO: meant for debugging",
    ),
    OverrideRule(
        name="NCCL_PROTO",
        applies=_any,
        why="one protocol for all sizes: LL halves bandwidth, Simple slows small messages, forced LL128 can corrupt data",
        source="NCCL user guide, NCCL_PROTO: users are discouraged from setting it",
    ),
    OverrideRule(
        name="NCCL_NET_GDR_LEVEL",
        applies=_one_of("LOC", "0", "PIX", "1"),
        needs="gpudirect missing",
        why="NICs reach GPU memory directly only where both sit below one PCIe switch, or never (LOC)",
    ),
    OverrideRule(
        name="NCCL_MAX_NCHANNELS",
        applies=_below(FEW_CHANNELS + 1),
        why=f"at most this many channels; up to {FEW_CHANNELS} cannot fill NVLink or several NICs",
        source=f"{GUIDE}; that {FEW_CHANNELS} are few is our own threshold",
    ),
    OverrideRule(
        name="NCCL_MAX_CTAS",
        applies=_below(FEW_CHANNELS + 1),
        why=f"at most this many channels; up to {FEW_CHANNELS} cannot fill NVLink or several NICs",
        source=f"{GUIDE}; that {FEW_CHANNELS} are few is our own threshold",
    ),
    OverrideRule(
        name="NCCL_BUFFSIZE",
        applies=_below(SMALL_BUFFER_BYTES),
        why="buffers smaller than 1 MiB (default 4 MiB) keep little data in flight",
        source=f"{GUIDE}; 1 MiB is our own threshold",
    ),
    OverrideRule(
        name="NCCL_P2P_NET_CHUNKSIZE",
        applies=_below(64 * KIB),
        why="chunks smaller than 64 KiB make send/recv between hosts slow",
        source=f"{GUIDE}; 64 KiB is our own threshold",
    ),
    OverrideRule(
        name="NCCL_NVLS_ENABLE",
        applies=_off,
        needs="nvls",
        why="the reduction in the NVSwitch is off: 19 to 24 % less on large all_reduce with Hopper and newer",
        source="NCCL user guide; stas00/ml-engineering, network: 482 and 368 GB/s on 8 H200",
    ),
    OverrideRule(
        name="NCCL_HOSTID",
        applies=_any,
        why="NCCL takes ranks with different values for different hosts and joins them over the network",
    ),
    OverrideRule(
        name="NCCL_PXN_DISABLE",
        applies=_on,
        severity=Severity.INFO,
        why="NICs of other GPUs of the host are not used: alltoall over many rails gets slower",
    ),
    OverrideRule(
        name="NCCL_CUMEM_ENABLE",
        applies=_off,
        severity=Severity.INFO,
        why="without cuMem allocations user buffers cannot be registered, and newer NCCL has no NVLS",
    ),
)


def judge(override: Override) -> OverrideRule | None:
    """The first rule that a setting meets."""
    value = override.value.strip()
    return next((rule for rule in RULES if rule.name == override.name and rule.applies(value)), None)


def malformed(override: Override) -> str | None:
    """What is wrong with the form of a value: an empty element, quotes, an unknown word; None when nothing is."""
    value = override.value.strip()
    if value[:1] in "\"'" and value:
        return "the value holds quotes, which NCCL takes as part of it"
    if override.name not in _LIST_VARIABLES:
        return None
    for elements in _lists(override.name, value):
        if len(elements) > 1 and any(not element.strip() for element in elements):
            return "the list holds an empty element"
        if any(element != element.strip() for element in elements):
            return "the list holds blanks, which NCCL does not strip"
    return _unknown_word(override.name, value)


def _lists(name: str, value: str) -> list[list[str]]:
    """The comma lists of a value; algorithms and protocols have one for each function: "allreduce:tree;ring"."""
    if name in ("NCCL_ALGO", "NCCL_PROTO"):
        return [part.split(":", 1)[-1].lstrip("^").split(",") for part in value.split(";") if part]
    return [value.lstrip("^=").split(",")]


def _unknown_word(name: str, value: str) -> str | None:
    known = {"NCCL_ALGO": _ALGORITHM_WORDS, "NCCL_PROTO": _PROTOCOL_WORDS}.get(name)
    if known is None:
        return None
    for element in (each.strip() for elements in _lists(name, value) for each in elements):
        if element and element.lower() not in known:
            return f"`{element[:40]}` is no name that NCCL knows; since 2.24 that is an error"
    return None
