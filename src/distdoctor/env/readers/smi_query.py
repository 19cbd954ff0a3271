"""`nvidia-smi -q`, whole or as an excerpt, as GPU facts.

The text is a tree by indentation. An excerpt may begin anywhere and may have lost its indentation, so values are
found by their nearest heading and their own label rather than by a full path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import UNKNOWN_INDEX, GpuDevice, GpuFacts, GpuProcess, NvmlState
from distdoctor.env.readers.smi_table import NOT_REPORTED
from distdoctor.env.readers.smi_values import CONVERT, FIELDS, THROTTLE_WORDS, mib
from distdoctor.report.model import SkipCause

_GPU = re.compile(r"^\s*GPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_VALUE = re.compile(r"^(?P<indent>\s*)(?P<key>[A-Za-z][^:|]{0,60}?)\s+: ?(?P<value>.*)$")
# A table pasted through a ticket may lose the run of spaces before its colon; only known labels are taken then.
_TIGHT = re.compile(r"^(?P<indent>\s*)(?P<key>[A-Za-z][^:|]{2,40}): (?P<value>[^:|]+)$")
_HEADING = re.compile(r"^(?P<indent>\s*)(?P<key>[A-Z][A-Za-z0-9 ./()-]{1,50})$")
_LOG = re.compile(r"=[ \t]*NVSMI LOG[ \t]*=")

# Sections that alone show that a text is such a log, even when its head is missing.
_TELLING = frozenset(
    ("clocks throttle reasons", "clocks event reasons", "ecc errors", "remapped rows", "retired pages", "fabric",
     "fb memory usage", "gpu link info", "gpu power readings", "power readings", "ecc mode", "mig mode")
)  # fmt: skip

LOST = re.compile(r"\[?GPU is lost\]?", re.IGNORECASE)
_RESET = re.compile(r"\[?GPU requires reset\]?", re.IGNORECASE)
_UNKNOWN = re.compile(r"\[?Unknown Error\]?|\[?ERR!\]?", re.IGNORECASE)


@dataclass(slots=True)
class _Block:
    """One GPU's part of the log."""

    pci: str | None
    fields: dict[str, object] = field(default_factory=dict)
    unread: dict[str, Unread] = field(default_factory=dict)
    throttle: dict[str, bool] = field(default_factory=dict)
    sums: dict[str, dict[str, int]] = field(default_factory=dict)
    processes: list[dict[str, str]] = field(default_factory=list)
    has_processes: bool = False


def has_query(text: str) -> bool:
    """True for the head of the log, or for a section that only it has, followed by a value."""
    if _LOG.search(text):
        return True
    lines = text.split("\n")
    for heading, below in pairwise(lines):
        if heading.strip().lower().rstrip(":") not in _TELLING:
            continue
        # "ECC Errors" is followed by a value or by "Volatile"; prose below the same words is not.
        if _VALUE.match(below) or below.strip() in ("Volatile", "Aggregate", "Current", "PCIe Generation"):
            return True
    return False


def read_query(text: str, origin: str) -> GpuFacts:
    """Driver and GPUs of the log. A GPU of an excerpt without a head has index `UNKNOWN_INDEX`."""
    top: dict[str, str] = {}
    blocks = _blocks(text, top)
    source = f"{origin}: nvidia-smi -q"
    attached = top.get("attached gpus", "")
    # Blocks come in NVML's order; with `-i` only some are there and their order says nothing.
    whole = attached.isdigit() and int(attached) == len([block for block in blocks if block.pci])
    devices = tuple(
        _device(block, number if whole else UNKNOWN_INDEX, source) for number, block in enumerate(blocks)
    )
    version, cuda = top.get("driver version", ""), top.get("cuda version", "")
    return GpuFacts(
        nvml_state=NvmlState.OK if devices else None,
        driver_version=version if version[:1].isdigit() else None,
        cuda_driver_version=cuda if cuda[:1].isdigit() else None,
        devices=devices or None,
        sources=dict.fromkeys(("driver_version", "cuda_driver_version", "devices"), source),
    )


def _blocks(text: str, top: dict[str, str]) -> list[_Block]:
    blocks: list[_Block] = []
    for path, value in _values(text):
        if path[0] == "gpu":
            blocks.append(_Block(pci=value if len(value) > 12 else f"0000{value}"))
        elif len(path) == 1 and path[0] in ("driver version", "cuda version", "attached gpus", "timestamp"):
            top.setdefault(path[0], value)
        else:
            headless = not blocks and (len(path) > 1 or path[0] in FIELDS)
            if headless:
                blocks.append(_Block(pci=None))
            if blocks:
                _take(blocks[-1], path, value)
    return [block for block in blocks if block.pci or block.fields or block.throttle or block.sums]


def _values(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """(headings and label, value) for every value line; ("gpu",) with its address where a GPU's part begins.

    A line that belongs to no such log ends the tree, so that other tools' output below is not taken.
    """
    stack: list[tuple[int, str]] = []
    flat = not any(_VALUE.match(line) and line[0].isspace() for line in text.split("\n") if line)
    for line in text.split("\n"):
        gpu = _GPU.match(line)
        if gpu:
            stack = []
            yield ("gpu",), gpu["pci"]
            continue
        value = _VALUE.match(line) or _tight(line)
        heading = None if value else _HEADING.match(line)
        match = value or heading
        if match is None:
            if line.strip() and not _LOG.search(line):
                stack = []
            continue
        key, indent = match["key"].strip().lower(), len(match["indent"].expandtabs(8))
        stack = stack[-1:] if flat and value else [entry for entry in stack if entry[0] < indent]
        if value is None:
            stack.append((indent, key))
            continue
        path = tuple(name for _, name in stack)
        yield (*path, key), value["value"].strip()
        # "HW Slowdown : Active" is a value and the heading of its two parts.
        if key in ("hw slowdown", "processes", "process id", "process"):
            stack.append((indent, key))


def _tight(line: str) -> re.Match[str] | None:
    match = _TIGHT.match(line)
    known = match is not None and match["indent"] and match["key"].strip().lower() in _TIGHT_LABELS
    return match if known else None


_TIGHT_LABELS = frozenset(THROTTLE_WORDS) | {"pending", "remapping failure occurred", "dram uncorrectable"}


def _take(block: _Block, path: tuple[str, ...], value: str) -> None:
    if "mig device" in path or "mig devices" in path:
        return
    if LOST.fullmatch(value):
        block.fields["lost"] = True
        block.fields["lost_reason"] = value.strip("[]")
        return
    if _RESET.fullmatch(value):
        block.fields["_reset_required"] = True
        return
    *headings, label = path
    section = headings[-1] if headings else ""
    if any(heading.startswith(("clocks throttle reasons", "clocks event reasons")) for heading in headings):
        if label in THROTTLE_WORDS and value in ("Active", "Not Active"):
            block.throttle[THROTTLE_WORDS[label]] = value == "Active"
        return
    if "ecc errors" in headings or section in ("volatile", "aggregate", "single bit", "double bit"):
        _take_ecc(block, tuple(headings), label, value)
        return
    if "processes" in headings or label == "processes":
        _take_process(block, label, value)
        return
    name = FIELDS.get(f"{section}/{label}") or (FIELDS.get(label) if not section else None)
    if name is not None:
        _put(block, name, value)


def _put(block: _Block, name: str, value: str) -> None:
    if name in block.fields:
        return
    if _UNKNOWN.fullmatch(value):
        block.unread[name] = Unread(
            cause=SkipCause.FAILED, reason=f"nvidia-smi prints `{value.strip('[]')}` here"
        )
        return
    converted = CONVERT[name](value)
    if converted is None:
        block.unread.setdefault(name, NOT_REPORTED)
    else:
        block.fields[name] = converted


def _take_ecc(block: _Block, headings: tuple[str, ...], label: str, value: str) -> None:
    """Counts by life time and kind; parts are added up, and a printed total stands for its parts."""
    life = next((word for word in ("volatile", "aggregate") if word in headings), None)
    if label == "sram threshold exceeded":
        _put(block, "sram_threshold_exceeded", value)
        return
    number = value.split(" ", maxsplit=1)[0]
    if life is None or not number.isdigit():
        return
    if "single bit" in headings or (label.endswith("correctable") and "uncorrectable" not in label):
        kind = "corrected"
    elif "double bit" in headings or "uncorrectable" in label:
        kind = "uncorrected"
    else:
        return
    parts = block.sums.setdefault(f"ecc_{kind}_{life}", {})
    # Early Ampere drivers print one "SRAM Uncorrectable", later ones its parity and SEC-DED parts.
    parts.setdefault(label, int(number))


def _take_process(block: _Block, label: str, value: str) -> None:
    block.has_processes = True
    if label in ("process id", "pid"):
        block.processes.append({"pid": value})
    elif block.processes and label in ("name", "used gpu memory", "type"):
        block.processes[-1][label] = value


def _device(block: _Block, index: int, source: str) -> GpuDevice:
    fields = dict(block.fields)
    if block.pci:
        fields["pci"] = block.pci
    if block.throttle:
        fields["throttle_reasons"] = tuple(name for name, active in block.throttle.items() if active)
    for name, parts in block.sums.items():
        if name == "ecc_corrected_aggregate":
            continue  # corrected errors over a GPU's life decide nothing
        fields[name] = parts["total"] if "total" in parts else sum(parts.values())
    if block.has_processes:
        fields["processes"] = tuple(_process(process) for process in block.processes)
    pages = [fields.pop(name, None) for name in ("_retired_single", "_retired_double")]
    known = [number for number in pages if isinstance(number, int)]
    if known:
        fields["retired_pages"] = sum(known)
    if fields.pop("_reset_required", None) is True:
        fields.setdefault("recovery_action", 1)
    unread = {
        name: why for name, why in block.unread.items() if name not in fields and not name.startswith("_")
    }
    return GpuDevice(index=index, sources=dict.fromkeys(fields, source), unread=unread, **fields)  # type: ignore[arg-type]


def _process(process: dict[str, str]) -> GpuProcess:
    pid = process["pid"]
    return GpuProcess(
        pid=int(pid) if pid.isdigit() else None,
        name=process.get("name"),
        used_bytes=mib(process.get("used gpu memory", "")),
    )
