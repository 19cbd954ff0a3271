"""What commands that work on ranks with torch share: importing it, who tells of an obstacle, progress, the exit code."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distdoctor.cli.output import Prepared, emit
from distdoctor.cli.speaking import speak, speak_for_host
from distdoctor.cli.waiting import START_OF_LINE
from distdoctor.errors import DistdoctorError
from distdoctor.exit_codes import ExitCode
from distdoctor.ranks.agent_noise import STDERR_IS_TERMINAL
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.meeting import JOIN_TIMEOUT_S
from distdoctor.ranks.quiet import should_speak
from distdoctor.ranks.status import is_launched_by_us, write_status

if TYPE_CHECKING:
    from distdoctor.ranks.progress import Progress
    from distdoctor.report.model import Report

# Lines of torch that are of no use to anybody here: warnings about names that do not resolve, and stack frames.
_QUIET = {"TORCH_CPP_LOG_LEVEL": "FATAL", "TORCH_SHOW_CPP_STACKTRACES": "0"}

# How long a rank that is silent holds its failure back, for the one that speaks. A launcher cuts it short. Our own.
_GIVE_WAY_S = 5.0


def import_quiet_torch(identity: RankIdentity) -> float:
    """Import torch with a deadline, without its lines that are of no use to anybody here; the seconds that it took.

    Raises DistdoctorError where it fails.
    """
    from distdoctor.ranks.group.importing import import_torch

    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    return import_torch(identity, limit_s=JOIN_TIMEOUT_S, speak=speak)


def is_under_launcher(identity: RankIdentity) -> bool:
    """Whether somebody else's launcher, which makes noise of exit codes, started this rank among others."""
    return not is_launched_by_us(os.environ) and identity.world_size > 1


@contextmanager
def giving_way(launch: str) -> Iterator[None]:
    """All ranks meet the same obstacle, one tells it: a launcher ends that one as soon as another has failed."""
    try:
        yield
    except DistdoctorError:
        if not should_speak(os.environ):
            time.sleep(_GIVE_WAY_S)
            # Still alive: the obstacle may be this host's alone, and nobody else would tell of it.
            speak_for_host(launch)
        raise


def take_over_screen() -> None:
    """This rank reports: it may speak, and the report begins on a line of its own."""
    speak()
    clear_progress()


def emit_of_ranks(report: Report, prepared: Prepared, *, under_launcher: bool, by_user: bool) -> int:
    """Write the report of all ranks; the exit code for this process. `by_user`: somebody ended the work early."""
    code = emit(report, prepared, under_launcher=under_launcher)
    if by_user and code in (ExitCode.OK, ExitCode.UNANSWERED):
        code = int(ExitCode.INTERRUPTED)
    write_status(code, os.environ)
    # Told by file: as a rank's own exit code torchrun would take it for a crash.
    return 0 if is_launched_by_us(os.environ) else code


class ProgressLine:
    """One line on a terminal, written over; off a terminal a line for each new text."""

    def __init__(self) -> None:
        self._last = ""
        self._is_terminal = _people_watch()

    def __call__(self, progress: Progress) -> None:
        """Show it."""
        line = f"[{progress.done + 1}/{progress.total}] {progress.text}, at most {progress.left_s:.0f} s left"
        if self._is_terminal:
            # A line that the terminal breaks cannot be written over.
            columns = shutil.get_terminal_size(fallback=(80, 24)).columns
            print(f"{START_OF_LINE}{line[: columns - 1]}", end="", file=sys.stderr, flush=True)
        elif progress.text.partition(":")[0] != self._last:
            self._last = progress.text.partition(":")[0]
            print(line, file=sys.stderr, flush=True)


def _people_watch() -> bool:
    return sys.stderr.isatty() or bool(os.environ.get(STDERR_IS_TERMINAL))


def clear_progress() -> None:
    """The report begins on a line of its own, whichever stream it goes to."""
    if _people_watch():
        print(START_OF_LINE, end="", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Tell something on stderr before the report, with secrets masked."""
    from distdoctor.report.mask import mask_text
    from distdoctor.report.seal import visible

    start = START_OF_LINE if _people_watch() else ""
    print(f"{start}{mask_text(visible(text))[0]}", file=sys.stderr, flush=True)
