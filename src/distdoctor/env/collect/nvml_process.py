"""Runs the NVML child with a deadline and turns its lines into facts about GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import distdoctor
from distdoctor.bounded_child import kill_group
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, NvmlState, PairLink
from distdoctor.report.model import SkipCause

# What a host with 16 GPUs, 36 links each, prints is about 150 kB.
MAX_OUTPUT_BYTES = 4 << 20

_STATES = {
    0: NvmlState.OK,
    4: NvmlState.NO_PERMISSION,
    9: NvmlState.DRIVER_NOT_LOADED,
    12: NvmlState.NO_LIBRARY,
    17: NvmlState.NO_PERMISSION,
    18: NvmlState.VERSION_MISMATCH,
}

_CAUSES = {
    3: SkipCause.UNSUPPORTED,
    4: SkipCause.NEEDS_ROOT,
    6: SkipCause.UNSUPPORTED,
    10: SkipCause.TIMED_OUT,
    13: SkipCause.UNSUPPORTED,
    17: SkipCause.IN_CONTAINER,
    21: SkipCause.UNSUPPORTED,
    22: SkipCause.UNSUPPORTED,
    25: SkipCause.UNSUPPORTED,
    26: SkipCause.UNSUPPORTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlAnswers:
    """What NVML said. `devices` is None when it was never reached; partial when it hung."""

    state: NvmlState
    error: str | None = None
    system: Mapping[str, str] = field(default_factory=dict)
    shadowed: bool | None = None
    devices: tuple[GpuDevice, ...] | None = None
    pair_links: tuple[PairLink, ...] = ()
    num_forbidden_nodes: int | None = None
    unread: Mapping[str, Unread] = field(default_factory=dict)


def ask_nvml(environ: Mapping[str, str], *, timeout_s: float) -> NvmlAnswers:
    """All that NVML says, asked in a child process of this interpreter; never longer than `timeout_s`.

    environ: variables of the child; LD_LIBRARY_PATH decides which libnvidia-ml.so.1 it loads.
    """
    if not sys.executable:
        return _not_asked("this Python does not know its own executable")
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "distdoctor.env.collect.nvml_child"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environ(environ),
            # The current folder is on the child's import path; the root holds no modules.
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return _not_asked(f"the NVML child does not start: {error}")
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as expired:
        kill_group(process)
        lines = parse_lines(expired.output or b"")
        return read_answers(lines, stopped=f"no answer in {timeout_s:g} s", hung=True)
    lines = parse_lines(out)
    stopped = None if any("done" in line for line in lines) else _how_it_ended(process.returncode, err)
    return read_answers(lines, stopped=stopped)


def child_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` for a child that imports this very package, wherever it lies."""
    package_parent = str(Path(distdoctor.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [package_parent, *(str(Path(folder).resolve()) for folder in inherited if folder)]
    return {**environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders))}


def parse_lines(output: bytes) -> list[dict[str, Any]]:  # Any: JSON of our own child
    """The child's JSON lines; a line cut in half or foreign text is left out."""
    lines = []
    for text in output[:MAX_OUTPUT_BYTES].splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append(line)
    return lines


def read_answers(lines: list[dict[str, Any]], *, stopped: str | None, hung: bool = False) -> NvmlAnswers:
    """The child's lines as facts. `stopped` says why the last one is missing."""
    state: NvmlState | None = None
    error: str | None = None
    system: dict[str, Any] = {}
    devices: list[GpuDevice] = []
    pairs: tuple[PairLink, ...] = ()
    forbidden: int | None = None
    asking = "the driver"
    for line in lines:
        match line:
            case {"binding": reason}:
                return _not_asked(str(reason))
            case {"state": int(code)}:
                state = _STATES.get(code, NvmlState.UNKNOWN_ERROR)
                error = line.get("error")
                system = line.get("system", {})
            case {"device": dict(fields)}:
                devices.append(_device(fields, line.get("errors", {})))
            case {"pairs": list(found)}:
                pairs = msgspec.convert(found, tuple[PairLink, ...])
            case {"forbidden_nodes": int(count)}:
                forbidden = count
            case {"asking": str(what)}:
                asking = what
    if stopped is not None:
        error = f"{stopped}, while asking {asking}"
        state = NvmlState.HUNG if hung else NvmlState.UNKNOWN_ERROR
    reached = state is NvmlState.OK or bool(devices)
    return NvmlAnswers(
        state=state or NvmlState.UNKNOWN_ERROR,
        error=error,
        system={name: value for name, value in system.items() if isinstance(value, str)},
        shadowed=system.get("shadowed"),
        devices=tuple(devices) if reached else None,
        pair_links=pairs,
        num_forbidden_nodes=forbidden,
        unread=_system_unread(system, reached=reached, state=state, error=error),
    )


def _device(fields: dict[str, Any], errors: dict[str, Any]) -> GpuDevice:
    known = {name: value for name, value in fields.items() if name in GpuDevice.__dataclass_fields__}
    unread = {name: unread_for(name, int(code), str(text)) for name, (code, text) in errors.items()}
    sources = dict.fromkeys((name for name in known if name not in ("index", "lost")), "NVML")
    return msgspec.convert({**known, "unread": msgspec.to_builtins(unread), "sources": sources}, GpuDevice)


def unread_for(field_name: str, code: int, text: str) -> Unread:
    """Why a field has no value, by NVML's code."""
    cause = _CAUSES.get(code, SkipCause.FAILED)
    reason = f"NVML: {text} ({code})" if code else text
    how = "run as root" if cause is SkipCause.NEEDS_ROOT else None
    return Unread(cause=cause, reason=f"{field_name}: {reason}", how=how)


def _system_unread(
    system: dict[str, Any], *, reached: bool, state: NvmlState | None, error: str | None
) -> dict[str, Unread]:
    unread = {
        name.removesuffix("_error"): unread_for(name.removesuffix("_error"), int(value[0]), str(value[1]))
        for name, value in system.items()
        if name.endswith("_error") and isinstance(value, list)
    }
    if not reached:
        cause = SkipCause.TIMED_OUT if state is NvmlState.HUNG else SkipCause.FAILED
        why = Unread(cause=cause, reason=f"NVML: {error or 'no answer'}")
        unread |= {"devices": why, "driver_version": why, "pair_links": why}
    return unread


def _not_asked(reason: str) -> NvmlAnswers:
    why = Unread(cause=SkipCause.FAILED, reason=reason)
    names = ("nvml_state", "devices", "driver_version", "pair_links")
    return NvmlAnswers(state=NvmlState.NOT_ASKED, error=reason, unread=dict.fromkeys(names, why))


def _how_it_ended(returncode: int, err: bytes) -> str:
    if returncode < 0:
        return f"the NVML library crashed with {signal.Signals(-returncode).name}"
    last = err.decode("utf-8", "replace").strip().splitlines()[-1:]
    return f"the NVML child ended early ({last[0][:200] if last else f'exit status {returncode}'})"
