"""The exit code of a launch, told by the rank that reported: a launcher's own code does not carry it.

`--launch` sets DISTDOCTOR_STATUS_FILE to a path in a private folder; the rank that has written the report puts
the exit code there, one decimal number. torchrun would turn it into 1 and forty lines of traceback.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from distdoctor.exit_codes import ExitCode

STATUS_VARIABLE = "DISTDOCTOR_STATUS_FILE"


def is_launched_by_us(environ: Mapping[str, str]) -> bool:
    """Whether `distdoctor … --launch` started this rank and waits for its exit code."""
    return bool(environ.get(STATUS_VARIABLE))


def write_status(exit_code: int, environ: Mapping[str, str]) -> None:
    """Tell `--launch` the exit code, if it started this rank; whole or not at all."""
    path = environ.get(STATUS_VARIABLE)
    if not path:
        return
    part = Path(f"{path}.{os.getpid()}")
    with contextlib.suppress(OSError):
        part.write_text(f"{int(exit_code)}\n", encoding="ascii")
        part.replace(path)


def read_status(path: Path) -> ExitCode | None:
    """The exit code that a rank left, or None when none did, or nothing that is one."""
    try:
        return ExitCode(int(path.read_text(encoding="ascii")[:16]))
    except (OSError, ValueError):
        return None
