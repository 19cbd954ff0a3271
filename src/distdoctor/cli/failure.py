"""How a failure looks: one clear line on stderr; with `--format json` a report on stdout as well."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise

from distdoctor.errors import DistdoctorError


def report_failure(argv: Sequence[str], error: Exception) -> None:
    """Say what is wrong and what to do. Under `--format json` stdout stays JSON, also now."""
    if isinstance(error, DistdoctorError):
        print(f"error: {cleaned(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {cleaned(error.hint)}", file=sys.stderr)
    else:
        where = _innermost(error)
        print(
            f"error: a bug in distdoctor: {type(error).__name__}: {cleaned(str(error))} ({where})",
            file=sys.stderr,
        )
        print("hint: set DISTDOCTOR_DEBUG=1 for the traceback and attach it to a bug report", file=sys.stderr)
    report_as_json(argv, error)


def report_as_json(argv: Sequence[str], error: Exception) -> None:
    """The failure as a report on stdout, when the command line asks for JSON."""
    if not wants_json(argv):
        return
    from distdoctor.cli.output import failure_report
    from distdoctor.report.codec import encode

    command = next((word for word in argv if not word.startswith("-")), "")
    _write_stdout(encode(failure_report(command, error)))


def _write_stdout(data: bytes) -> None:
    """UTF-8 whatever the locale says; a stdout that takes nothing is no second failure."""
    try:
        sys.stdout.flush()
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write(data)
        else:
            sys.stdout.write(data.decode())
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def wants_json(argv: Sequence[str]) -> bool:
    """True when the command line asks for JSON on stdout; looked up without parsing, for failures of parsing too."""
    return "--format=json" in argv or any(
        word == "--format" and following == "json" for word, following in pairwise(argv)
    )


def cleaned(text: str) -> str:
    """A message without secrets and control characters: it may quote a command line or a file."""
    from distdoctor.report.mask import mask_text
    from distdoctor.report.seal import visible

    return mask_text(visible(text))[0]


def _innermost(error: Exception) -> str:
    trace = error.__traceback__
    where = "unknown place"
    while trace is not None:
        where = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return where
