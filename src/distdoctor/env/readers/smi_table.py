"""The default table of nvidia-smi, from driver 331 to 590, as GPU facts.

Every GPU is a block of two or three rows between rules. Cells are found by their words rather than by their
columns, because the columns moved in 4xx, 53x and again later, and tickets lose spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, GpuProcess, MigInstance, NvmlState
from distdoctor.report.model import SkipCause
from distdoctor.units import MIB

_HEADER = re.compile(
    r"\|\s*NVIDIA-SMI\s+(?P<smi>[\d.]+)\s+(?:KMD|Driver) Version:\s*(?P<driver>[\w.]+|N/A|ERR!?)(?=\s+(?:CUDA|\|))"
    r"(?:\s+CUDA(?: UMD)? Version:\s*(?P<cuda>[\w./!]+)(?=\s*\|))?"
)
_PCI = r"(?:[0-9A-Fa-f]{4}|[0-9A-Fa-f]{8}):[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
# "|   0  Tesla V100-SXM2...   On  | 00000000:1C:00.0 Off |      0 |"; MIG devices put "On" in place of the ECC count.
_FIRST = re.compile(
    rf"^\|\s*(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A|TCC|WDDM|MCDM|ERR!)\s*\|"
    rf"\s*(?P<pci>{_PCI})\s+(?P<display>On|Off|N/A|ERR!)\s*\|\s*(?P<ecc>\S[^|]*?)\s*\|"
)
_PERF = re.compile(
    r"^\|\s*(?P<fan>N/A|ERR!|\d+%)?\s+(?P<temp>N/A|ERR!|\d+C)\s+(?P<perf>P\d+|N/A|ERR!|\?\S*)\s"
)
_POWER = re.compile(r"(?P<used>N/A|ERR!|\d+W)\s*/\s*(?P<cap>N/A|ERR!|\d+W)")
_MEMORY = re.compile(r"(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB")
_UTIL = re.compile(
    r"\|\s*(?P<util>\d+%|N/A|ERR!|\[N/A\])\s+(?P<mode>Default|E\. ?Process|E\. ?Thread|Prohibited|N/A|ERR!)"
)
_MIG_CELL = re.compile(r"\|\s*(?P<mig>Enabled\*?|Disabled\*?|N/A|ERR!)\s*\|\s*$")
_MIG_ROW = re.compile(
    r"^\|\s*(?P<gpu>\d+)\s+(?P<gi>\d+)\s+(?P<ci>\d+)\s+(?P<dev>\d+)\s*\|\s*(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB"
)
_PROCESS = re.compile(
    r"^\|\s*(?P<gpu>\d+)\s+(?:(?P<gi>N/A|\d+)\s+(?P<ci>N/A|\d+)\s+)?(?P<pid>\d+)\s+(?P<type>[CGM](?:\+[CGM])*)\s+"
    r"(?P<name>\S.*?)\s+(?P<used>\d+MiB|N/A)\s*\|"
)
_LOST = re.compile(r"GPU (?:is|has) (?:lost|fallen off)|Unknown Error", re.IGNORECASE)

COMPUTE_MODES = {
    "default": "default",
    "e.process": "exclusive_process",
    "e.thread": "exclusive_thread",
    "prohibited": "prohibited",
}

ERR = Unread(cause=SkipCause.FAILED, reason="nvidia-smi prints ERR! here: the GPU did not answer this query")
MIG_PENDING = Unread(
    cause=SkipCause.NOT_IN_EVIDENCE,
    reason="a star beside the MIG mode says that it changes at the next reset; which mode is in force is not said",
    how="run `nvidia-smi --query-gpu=mig.mode.current,mig.mode.pending --format=csv`",
)
NOT_REPORTED = Unread(cause=SkipCause.UNSUPPORTED, reason="nvidia-smi prints N/A here")


@dataclass(slots=True)
class _Row:
    """A GPU block under construction."""

    index: int
    fields: dict[str, object]
    unread: dict[str, Unread]
    mig: list[MigInstance]
    processes: list[GpuProcess]
    is_closed: bool = False
    """Its last cell, or the rule below it, was seen; a row that a copy cut is not."""


def has_table(text: str) -> bool:
    """True when the text holds the header or at least one GPU row of the table."""
    return bool(_HEADER.search(text)) or any(_FIRST.match(line.strip()) for line in text.split("\n"))


def read_table(text: str, origin: str) -> GpuFacts:
    """Driver and GPUs of the table; of several tables of the same GPUs, the last. Cells with N/A are None."""
    header = _last_header(text)
    rows = _rows(text)
    source = f"{origin}: nvidia-smi"
    sources = dict.fromkeys(("driver_version", "cuda_driver_version", "smi_version", "devices"), source)
    driver = _version(header["driver"]) if header else None
    return GpuFacts(
        nvml_state=NvmlState.OK if header else None,
        smi_version=header["smi"] if header else None,
        driver_version=driver,
        cuda_driver_version=_version(header["cuda"]) if header and header["cuda"] else None,
        devices=tuple(_device(row, source) for row in rows) or None,
        sources=sources,
    )


def _last_header(text: str) -> re.Match[str] | None:
    found = None
    for found in _HEADER.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return found


def _version(text: str | None) -> str | None:
    return text if text and text[0].isdigit() else None


def _rows(text: str) -> list[_Row]:
    rows: dict[int, _Row] = {}
    current: _Row | None = None
    section = "gpus"
    processes_seen = False
    for raw in text.split("\n"):
        line = raw.strip()
        if line.startswith("+") and current is not None:
            current.is_closed = True
        if not line.startswith("|"):
            continue
        if _HEADER.match(line):
            section, current, rows, processes_seen = "gpus", None, {}, False
        elif line.startswith("| MIG devices"):
            section = "mig"
        elif line.startswith("| Processes"):
            section, processes_seen = "processes", True
        first = _FIRST.match(line) if section == "gpus" else None
        if first:
            current = _first_line(first)
            rows[current.index] = current
        elif section == "gpus" and current is not None:
            _second_line(current, line)
        elif section == "mig" and (mig := _MIG_ROW.match(line)) and int(mig["gpu"]) in rows:
            rows[int(mig["gpu"])].mig.append(
                MigInstance(
                    profile=f"GI {mig['gi']} CI {mig['ci']}", memory_total_bytes=int(mig["total"]) * MIB
                )
            )
        elif section == "processes" and (process := _PROCESS.match(line)) and int(process["gpu"]) in rows:
            used = process["used"]
            rows[int(process["gpu"])].processes.append(
                GpuProcess(
                    pid=int(process["pid"]),
                    name=process["name"],
                    used_bytes=None if used == "N/A" else int(used.removesuffix("MiB")) * MIB,
                )
            )
    if processes_seen:
        for row in rows.values():
            row.fields["processes"] = tuple(row.processes)
    return [row for row in rows.values() if row.is_closed]


def _first_line(match: re.Match[str]) -> _Row:
    row = _Row(index=int(match["index"]), fields={}, unread={}, mig=[], processes=[])
    name = match["name"].strip()
    if name.startswith("ERR"):
        row.unread["name"] = ERR
    else:
        row.fields["name"] = name
    if name.startswith("ERR") and match["persistence"].startswith("ERR"):
        row.fields["lost"] = True
        row.fields["lost_reason"] = "nvidia-smi prints ERR! for its name and its modes"
    row.fields["pci"] = match["pci"] if len(match["pci"]) > 12 else f"0000{match['pci']}"
    if match["persistence"] in ("On", "Off"):
        row.fields["persistence_mode"] = match["persistence"] == "On"
    if match["display"] in ("On", "Off"):
        row.fields["display_active"] = match["display"] == "On"
    ecc = match["ecc"].strip()
    if ecc.isdigit():
        # The column is headed "Volatile Uncorr. ECC"; a number also says that ECC is on.
        row.fields["ecc_uncorrected_volatile"] = int(ecc)
        row.fields["ecc_mode"] = True
    elif ecc == "Off":
        row.fields["ecc_mode"] = False
    elif ecc.startswith("ERR"):
        row.unread["ecc_uncorrected_volatile"] = ERR
    else:
        row.unread["ecc_uncorrected_volatile"] = NOT_REPORTED
    return row


def _second_line(row: _Row, line: str) -> None:
    """Temperature, power, memory, utilisation and compute mode; the MIG mode has a line of its own."""
    perf = _PERF.match(line)
    if perf:
        _put(row, "temperature_c", perf["temp"].rstrip("C"), int)
        row.fields["_perf"] = perf["perf"]
        if perf["temp"] == perf["perf"] == "ERR!":
            # One bad sensor is one ERR!; temperature and state together mean that the GPU does not answer.
            row.fields["lost"] = True
            row.fields["lost_reason"] = "nvidia-smi prints ERR! for its temperature and performance state"
    power = _POWER.search(line)
    if power:
        _put(row, "power_w", power["used"].rstrip("W"), float)
        _put(row, "power_limit_w", power["cap"].rstrip("W"), float)
    memory = _MEMORY.search(line)
    if memory:
        row.fields["memory_used_bytes"] = int(memory["used"]) * MIB
        row.fields["memory_total_bytes"] = int(memory["total"]) * MIB
    # Not in the first cell: fan and temperature can both be ERR! or N/A.
    second_cell = line.find("|", 1)
    util = _UTIL.search(line, second_cell) if second_cell > 0 else None
    if util:
        _put(row, "utilisation_pct", util["util"].strip("[]").rstrip("%"), int)
        mode = COMPUTE_MODES.get(util["mode"].replace(" ", "").lower())
        if mode:
            row.fields["compute_mode"] = mode
        row.is_closed = True
    mig = None if util else _MIG_CELL.search(line)
    if mig:
        word = mig["mig"]
        if word.endswith("*"):
            row.unread["mig_mode"] = MIG_PENDING
        elif word in ("Enabled", "Disabled"):
            row.fields["mig_mode"] = word == "Enabled"
    if _LOST.search(line):
        row.fields["lost"] = True
        row.fields["lost_reason"] = line.strip("| ").strip()


def _put(row: _Row, name: str, text: str, kind: type[int] | type[float]) -> None:
    if text.isdigit():
        row.fields[name] = kind(text)
    else:
        row.unread[name] = ERR if text.startswith("ERR") else NOT_REPORTED


def _device(row: _Row, source: str) -> GpuDevice:
    fields = {name: value for name, value in row.fields.items() if not name.startswith("_")}
    sources = dict.fromkeys(fields, source)
    if row.mig:
        fields["mig_instances"] = tuple(row.mig)
    return GpuDevice(index=row.index, sources=sources, unread=row.unread, **fields)  # type: ignore[arg-type]
