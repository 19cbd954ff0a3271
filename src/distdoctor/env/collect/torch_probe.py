"""Does `import torch` work in the job's interpreter? Tried in a child, so that it may hang, raise or abort."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distdoctor.bounded_child import STEP_FD, ChildEnd, run_bounded
from distdoctor.env.facts.torch import ProbeState, TorchProbe
from distdoctor.env.readers.import_error import read_import_fault

_CHILD = Path(__file__).with_name("torch_probe_child.py")

# Set for the child alone: torch then answers is_available() through NVML, without a CUDA context (torch >= 1.13).
_CHILD_ENVIRON = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}

_MAX_STEPS = 64
_MAX_TEXT = 4000

# faulthandler's dump: 'File "x.py", line 3 in f'. Frames of the import machinery say nothing.
_FRAME = re.compile(r'^  File "(?P<file>[^"<][^"]*)", line (?P<line>\d+) in (?P<name>.+)$', re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: .*$|^(?:Current thread|Thread 0x)", re.MULTILINE)

# Lines on stderr that rules read, although the import went on.
_NOTABLE = re.compile(
    r"pynvml|compiled using NumPy|_ARRAY_API not found|Failed to initialize NumPy|MKL FATAL|OMP: Error|symbol lookup error"
)

TORCH_MISSING = "No module named 'torch'"


class RunningProbe:
    """The child at work. `result` may be called once or often, from any thread."""

    def __init__(self, python: str, environ: Mapping[str, str], timeout_s: float) -> None:
        self._python = python
        self._environ = {**environ, **_CHILD_ENVIRON}
        self._timeout_s = timeout_s
        self._end: ChildEnd | None = None
        self._failure: str | None = None
        # A daemon: when we are told to end, the child's own timer ends it.
        self._thread = threading.Thread(target=self._run, name="torch-probe", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # The text rather than the path: `python -c` has the working folder first in sys.path, as a job has.
        argv = [self._python, "-B", "-c", _CHILD.read_text(encoding="utf-8"), STEP_FD, f"{self._timeout_s:g}"]
        try:
            self._end = run_bounded(argv, self._environ, self._timeout_s, abort_first=True)
        except (OSError, ValueError) as error:
            self._failure = f"{self._python} does not start: {getattr(error, 'strerror', None) or error}"

    def result(self) -> TorchProbe:
        """What the child saw; waits for it, at most its time limit and 3 seconds to kill it."""
        self._thread.join()
        if self._end is None:
            return TorchProbe(
                state=ProbeState.BAD_INTERPRETER, timeout_s=self._timeout_s, error_text=self._failure
            )
        return read_probe(self._end, timeout_s=self._timeout_s, source=f"import torch in {self._python}")


def start_torch_probe(python: str, environ: Mapping[str, str], timeout_s: float) -> RunningProbe:
    """Start `import torch` in `python` with the job's variables; it runs beside everything else.

    timeout_s counts from now. When it passes, SIGABRT makes the child say where it stands, then SIGKILL ends
    its group.
    """
    return RunningProbe(python, environ, timeout_s)


def read_probe(end: ChildEnd, *, timeout_s: float | None, source: str) -> TorchProbe:
    """What a finished child tells. Pure."""
    steps = _steps(end.steps)
    error = steps.get("error", {})
    state = _state(end, steps)
    text = _error_text(end, state, error)
    fault = read_import_fault(text or "") if state is not ProbeState.OK else read_import_fault("")
    reached = [name for name in steps if name != "error"]
    imported = steps.get("import torch", {})
    distributed = steps.get("torch.distributed", {})
    return TorchProbe(
        state=state,
        last_step=reached[-1] if reached else None,
        duration_s=round(end.duration_s, 3),
        timeout_s=timeout_s,
        error_type=_text(error.get("type")),
        error_text=text,
        error_where=_where(end, state, error),
        signal_name=_signal_name(end, state),
        returncode=end.returncode,
        missing_library=fault.missing_library,
        undefined_symbol=fault.undefined_symbol,
        symbol_wanted_by=fault.wanted_by,
        torch_version=_text(imported.get("torch")),
        cuda_build=_text(imported.get("cuda")),
        hip_build=_text(imported.get("hip")),
        import_s=imported.get("seconds") if isinstance(imported.get("seconds"), int | float) else None,
        torch_file=_text(imported.get("file")),
        arch_list=_texts(steps.get("arch list", {}).get("archs")),
        nccl_available=_flag(distributed.get("nccl")),
        gloo_available=_flag(distributed.get("gloo")),
        mpi_available=_flag(distributed.get("mpi")),
        nccl_version=_text(steps.get("nccl", {}).get("version")),
        mapped_libraries=_texts(steps.get("mapped libraries", {}).get("paths")),
        warnings=tuple(line.strip()[:400] for line in end.stderr.splitlines() if _NOTABLE.search(line))[:8],
        sources={"state": source, "arch_list": source, "nccl_version": source, "mapped_libraries": source},
    )


def _steps(text: str) -> dict[str, dict[str, Any]]:
    """The child's lines by step, in order. Any: JSON; each value is checked where it is used."""
    steps: dict[str, dict[str, Any]] = {}
    for line in text.splitlines()[:_MAX_STEPS]:
        try:
            step = json.loads(line)
        except ValueError:
            continue  # cut off by the end of the child
        if isinstance(step, dict) and isinstance(step.get("step"), str):
            steps[step["step"]] = step
    return steps


def _state(end: ChildEnd, steps: Mapping[str, Mapping[str, Any]]) -> ProbeState:
    error = steps.get("error")
    if error is not None:
        absent = error.get("type") == "ModuleNotFoundError" and error.get("module") == "torch"
        if absent:
            return ProbeState.NOT_FOUND
        return ProbeState.EXITED_EARLY if error.get("type") == "SystemExit" else ProbeState.RAISED
    # The last step decides: an `os._exit(0)` inside an import also ends with code 0.
    if "done" in steps:
        return ProbeState.OK
    if end.timed_out:
        return ProbeState.HUNG
    if "start" not in steps:
        return ProbeState.BAD_INTERPRETER
    if end.returncode is not None and end.returncode < 0:
        return ProbeState.ABORTED
    return ProbeState.EXITED_EARLY


def _error_text(end: ChildEnd, state: ProbeState, error: Mapping[str, Any]) -> str | None:
    if state is ProbeState.OK:
        return None
    if error:
        return _text(error.get("text"))
    if state is ProbeState.BAD_INTERPRETER and "SyntaxError" in end.stderr:
        return "this Python is too old to try the import in; 3.7 or newer is needed"
    fatal = _FATAL.search(end.stderr)
    lines = (end.stderr[: fatal.start()] if fatal else end.stderr).strip().splitlines()
    if fatal and fatal.group().startswith("Fatal") and state is ProbeState.ABORTED:  # a hang: our own signal
        lines = [*lines[-3:], fatal.group()]
    return "\n".join(line[:500] for line in lines[-4:])[:_MAX_TEXT] or None


def _where(end: ChildEnd, state: ProbeState, error: Mapping[str, Any]) -> str | None:
    if error:
        return _text(error.get("where"))
    if state not in (ProbeState.ABORTED, ProbeState.HUNG):
        return None
    current = end.stderr.rfind("Current thread")
    frame = _FRAME.search(end.stderr, max(current, 0))
    return f"{frame['file']}:{frame['line']} in {frame['name']}" if frame else None


def _signal_name(end: ChildEnd, state: ProbeState) -> str | None:
    if state is not ProbeState.ABORTED or end.returncode is None:
        return None
    try:
        return signal.Signals(-end.returncode).name
    except ValueError:
        return f"signal {-end.returncode}"


def _text(value: object) -> str | None:
    return value[:_MAX_TEXT] if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _texts(value: object) -> tuple[str, ...]:
    return (
        tuple(each[:500] for each in value if isinstance(each, str))[:_MAX_STEPS]
        if isinstance(value, list)
        else ()
    )
