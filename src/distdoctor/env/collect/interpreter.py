"""Asking a Python interpreter about itself: a short child that prints JSON, with a deadline."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from distdoctor.bounded_child import run_bounded
from distdoctor.env.facts.base import UnreadError
from distdoctor.report.model import SkipCause

# An interpreter on a slow shared file system starts within a second or two; one that needs longer is stuck.
TIMEOUT_S = 5.0

# Runs in any Python from 3.6 on; "" stands first in sys.path, as for `python -c "import torch"`.
_QUESTION = """
import json, os, sys
def here(entry):
    try:
        return os.path.abspath(entry)
    except OSError:
        return ""
json.dump({"distdoctor": 1, "executable": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3],
           "prefix": sys.prefix, "base_prefix": getattr(sys, "base_prefix", sys.prefix),
           "search_path": [here(entry) for entry in sys.path]}, sys.stdout)
"""

# Shells and launchers in a job's process tree are no interpreters; what they say about our question helps nobody.
_PYTHON_NAME = re.compile(r"(?:python|pypy)[\d.tw]*(?:\.exe)?$", re.IGNORECASE)

_HOW = "give the job's interpreter: --python /path/to/bin/python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """What an interpreter says about itself."""

    executable: str
    version: str
    prefix: str
    base_prefix: str
    search_path: tuple[str, ...]


def ask_interpreter(executable: str, environ: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> Interpreter:
    """Run `executable` with `environ` and let it describe itself.

    Raises UnreadError, with words for the user, when it is missing, is no program, is no Python, or hangs.
    """
    if not os.path.exists(executable):  # noqa: PTH110 - the text is wanted unchanged
        raise UnreadError(SkipCause.ABSENT, f"{executable}: there is no such file", _HOW)
    if os.path.isdir(executable):  # noqa: PTH112
        raise UnreadError(
            SkipCause.FAILED,
            f"{executable} is a folder, not a program",
            f"perhaps --python {executable.rstrip('/')}/bin/python",
        )
    if not os.access(executable, os.X_OK):
        raise UnreadError(SkipCause.FAILED, f"{executable} may not be executed by this user", _HOW)
    return _parse(executable, _run(executable, environ, timeout_s))


def _run(executable: str, environ: Mapping[str, str], timeout_s: float) -> str:
    try:
        end = run_bounded([executable, "-B", "-c", _QUESTION], environ, timeout_s)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UnreadError(SkipCause.FAILED, f"{executable} does not start: {why}", _HOW) from error
    if end.timed_out:
        raise UnreadError(
            SkipCause.TIMED_OUT,
            f"{executable} did not answer in {timeout_s:g} s",
            f"timeout 30 {shlex.quote(executable)} -c pass",
        )
    if end.returncode != 0 and _PYTHON_NAME.match(PurePath(executable).name) is None:
        raise UnreadError(SkipCause.FAILED, f"{executable} is no Python", _HOW)
    if end.returncode != 0:
        last = [line for line in end.stderr.strip().splitlines()[-1:] if "import json" not in line]
        said = f": {last[0][:200]}" if last else ""
        raise UnreadError(
            SkipCause.FAILED, f"{executable} does not run as a Python (code {end.returncode}{said})", _HOW
        )
    return end.stdout


def _parse(executable: str, answer: str) -> Interpreter:
    """The JSON at the end of the answer: a sitecustomize may have printed before it."""
    mark = answer.rfind('"distdoctor": 1')
    start = answer.rfind("{", 0, mark) if mark >= 0 else -1  # Python 2 orders the keys otherwise
    try:
        data: dict[str, Any] = json.loads(answer[start:]) if start >= 0 else {}
        return Interpreter(
            executable=str(data["executable"] or executable),
            version=str(data["version"]),
            prefix=str(data["prefix"]),
            base_prefix=str(data["base_prefix"]),
            search_path=tuple(dict.fromkeys(str(entry) for entry in data["search_path"] if entry)),
        )
    except (ValueError, KeyError, TypeError):
        raise UnreadError(SkipCause.FAILED, f"{executable} is no Python interpreter", _HOW) from None
