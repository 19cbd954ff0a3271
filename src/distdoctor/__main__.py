"""Entry point: errors that a user can mend become one line and an exit code; everything else is a bug."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from distdoctor import __version__
from distdoctor.errors import DistdoctorError
from distdoctor.exit_codes import ExitCode

# Set by launchers that end all ranks when one has failed: torchrun, and our own `--launch`.
_ENDS_ALL_RANKS = ("TORCHELASTIC_RUN_ID", "DISTDOCTOR_LAUNCH_ID")

# What writing to a full disk, a quota, a size limit or a broken device says.
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


def main() -> None:
    """Run the command line and exit."""
    argv = sys.argv[1:]
    _open_closed_streams()
    sys.stderr = cast(TextIO, _Forgiving(sys.stderr))
    if argv[:1] == ["env"] and not os.environ.keys().isdisjoint(_ENDS_ALL_RANKS):
        # A rank that dies at once makes its launcher end the others before they have imported anything; the
        # report must still come out. `run_as_rank` takes over, and torchrun waits 30 s before it kills.
        signal.signal(signal.SIGTERM, _note_termination)
    elif signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # `timeout 10 distdoctor …`: end in order, so that no child is left behind.
        signal.signal(signal.SIGTERM, _end)
    from distdoctor.cli.speaking import keep_still_unless_reporter

    keep_still_unless_reporter()
    sys.exit(run(argv))


def _open_closed_streams() -> None:
    """A caller may close stdout or stderr (`>&-`); then a report goes to its files alone."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Open for as long as the process lives.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


class _Forgiving:
    """stderr that loses lines rather than the report: its disk may be full, its reader gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:  # Any: whatever the stream has
        return getattr(self._stream, name)


def _drop_stdout() -> None:
    """What is still buffered goes nowhere, also when the interpreter flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _note_termination(*_: object) -> None:
    from distdoctor.cli.speaking import terminated_early

    terminated_early()


def run(argv: Sequence[str]) -> int:
    """The exit code of one command line; prints one line for an error, a short notice for a bug."""
    from distdoctor.cli.failure import report_failure
    from distdoctor.cli.main import run_app

    try:
        if list(argv) in (["--version"], ["-V"]):
            print(f"distdoctor {__version__}")
            code = int(ExitCode.OK)
        else:
            code = run_app(argv)
        sys.stdout.flush()
        return code
    except DistdoctorError as error:
        report_failure(argv, error)
        return _told(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone (`| head`); nothing is left to say, also not at interpreter shutdown.
        _drop_stdout()
        return int(ExitCode.OK)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
            _drop_stdout()
            print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
            return int(ExitCode.USAGE)
        if os.environ.get("DISTDOCTOR_DEBUG"):
            raise
        report_failure(argv, error)
        return _told(ExitCode.BUG)


def _told(code: ExitCode) -> int:
    """The exit code, told to `--launch` as well: a launcher between us and it turns every code into 1."""
    from distdoctor.ranks.quiet import should_speak
    from distdoctor.ranks.status import write_status

    if should_speak(os.environ):
        write_status(code, os.environ)
    return int(code)


if __name__ == "__main__":
    main()
