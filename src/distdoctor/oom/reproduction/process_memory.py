"""What this process holds in RAM by the kernel's count: beside the tracker's, it has what no tensor is for."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_PROC = Path("/proc/self")

# What /proc/PID/clear_refs takes to set the peak (VmHWM) back: proc(5), since Linux 4.0.
_RESET_PEAK = "5"

_LINE = re.compile(r"^(VmHWM|VmRSS):\s+(\d+) kB$", re.MULTILINE)


def reset_peak(proc: Path = _PROC) -> str:
    """Let the peak begin anew; why that is not possible, or an empty text."""
    try:
        (proc / "clear_refs").write_text(_RESET_PEAK)
    except OSError as error:
        return f"the kernel does not set the peak back: {error.strerror or error}"
    return ""


def resident_bytes(proc: Path = _PROC) -> tuple[int | None, int | None]:
    """(resident now, at the peak); None where the kernel does not tell."""
    try:
        text = (proc / "status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None, None
    found = {name: int(number) * 1024 for name, number in _LINE.findall(text)}
    return found.get("VmRSS"), found.get("VmHWM")


def give_back() -> None:
    """Let the C library return what is free to the kernel, so that one program does not count for the next."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
