"""NCCL's lines about settings and warnings, and the table of ranks that nccl-tests prints between them.

Formats: NVIDIA/nccl src/misc/param.cc and everywhere "set by environment"; WARN of src/debug.cc;
NVIDIA/nccl-tests src/common.cu ("#  Rank  0 Group  0 Pid  12 on  host device  0 [0x07] NVIDIA A100…").
"""

from __future__ import annotations

import re

from distdoctor.nccl_bench.facts.nccl_log import LoggedWarning, Override
from distdoctor.nccl_bench.readers.nccl_lines import LogLine
from distdoctor.nccl_bench.readers.nccl_notes import MAX_DISTINCT, MAX_WARNINGS, Notes

_OVERRIDE = re.compile(r"\b((?:R?NCCL|RCCL)_[A-Z0-9_]{2,60}) (?:is )?set (?:by environment )?to ?(.{0,500})$")
_PLUGIN_NAME = re.compile(
    r"NET/Plugin ?: Plugin name set by env to (\S.{0,200})$|^Plugin name set by env to (\S.{0,200})$"
)
_INVALID = re.compile(r"Invalid value .{0,100} for (?:NCCL_|RCCL_)\w+")
_AFFINITY = re.compile(r"Setting affinity for GPU (\d+) to ([0-9a-fA-F,]+)$")
_WHOLE_MASK = re.compile(r"[137fF]?[fF]*(?:,[fF]{8})*$")

# Info lines that tell of the same failures as warnings do; NCCL repeats them while it retries.
_TELLING_INFO = re.compile(
    r"Call to connect|socketStartConnect|socketPollConnect|Connection closed by remote peer|Got completion|"
    r"async (?:fatal )?event|exceeded timeouts|Connect to .{1,80} failed",
)
# The files of NCCL's own calls: an error that reaches them is handed to the program. Deeper files return errors that
# NCCL gets over, such as a network that is not there ("net.cc:55 -> 3").
_RETURNED = re.compile(r"\b(?:init|group|enqueue|collectives)\.cc?[up]{0,2}:\d+ -> [1-9]\d?\b")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_RANK_ROW = re.compile(
    r"#\s+Rank\s+\d+\s+(?:Group\s+\d+\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+\[[^\]]{1,20}\]\s+(\S.{1,80}?)\s*$"
)


def read_setting_line(line: LogLine, notes: Notes) -> None:
    """Note an override, an invalid value, an affinity or a warning."""
    text = line.text
    if line.level == "WARN" or (line.level == "INFO" and _TELLING_INFO.search(text)):
        _warning(line, notes)
    if " -> " in text and line.level == "INFO" and _RETURNED.search(text):
        notes.returned_errors += 1
        notes.mark("returned error", line)
    if " set " in text:
        _override(line, notes)
    if text.startswith("Invalid value") and _INVALID.search(text) and len(notes.invalid) < MAX_WARNINGS:
        notes.invalid.setdefault(text[:300])
        notes.mark("invalid", line)
    if "ffinity for GPU" in text:
        found = _AFFINITY.search(text)
        if found and _WHOLE_MASK.match(found[2]):
            notes.unplaced.add(f"{line.host or ''}/{found[1]}")
            notes.mark("affinity", line)


def read_rank_row(number: int, text: str, notes: Notes) -> None:
    """A row of nccl-tests' table of ranks: GPU model, host and device."""
    found = _RANK_ROW.search(text)
    if found and len(notes.devices) < MAX_DISTINCT:
        notes.hosts.setdefault(found[2])
        notes.devices.setdefault(found[2], set()).add(int(found[3]))
        notes.gpu_models.setdefault(found[4])
        notes.lines.setdefault("gpu model", number)


def _override(line: LogLine, notes: Notes) -> None:
    plugin = _PLUGIN_NAME.search(line.text)
    found = None if plugin else _OVERRIDE.search(line.text)
    if plugin:
        name, value = "NCCL_NET_PLUGIN", plugin[1] or plugin[2]
    elif found:
        name, value = found[1], found[2]
    else:
        return
    value = value.strip()
    # Numbers are printed with a full stop after them, texts are not.
    if value.endswith(".") and value[:-1].lstrip("-").isdigit():
        value = value[:-1]
    if len(notes.overrides) < MAX_DISTINCT:
        notes.overrides.setdefault(
            (name, value), Override(name=name, value=value, line=line.number, where=notes.where(line))
        )


def _warning(line: LogLine, notes: Notes) -> None:
    text = line.text[:500].strip()
    if not text:
        return
    key = _NUMBERS.sub("#", text)
    if key in notes.warnings:
        notes.warning_counts[key] += 1
    elif len(notes.warnings) < MAX_WARNINGS:
        notes.warning_counts[key] = 1
        notes.warnings[key] = LoggedWarning(text=text, host=line.host, where=notes.where(line))
