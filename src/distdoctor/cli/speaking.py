"""Which rank speaks, and a rank's last words: one report comes out, also when the launcher is ending everybody."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from distdoctor.errors import OutputError
from distdoctor.ranks.quiet import Silence, should_speak

if TYPE_CHECKING:
    from distdoctor.env.live import RankCollection

# One per process: file descriptors 1 and 2 are the process' own, and so are signals.
_SILENCE = Silence()
_TERMINATED_EARLY = threading.Event()
_CLAIMS: list[socket.socket] = []


def terminated_early() -> None:
    """SIGTERM came before this rank could listen to it: its report is due at once."""
    _TERMINATED_EARLY.set()


def keep_still_unless_reporter() -> None:
    """Silence this process unless it is the rank that speaks; before the command line is read."""
    if not should_speak(os.environ):
        _SILENCE.begin()


def speak() -> None:
    """Give a silenced rank its voice: it has taken over from a dead rank 0."""
    _SILENCE.end()


def speak_for_host(name: str) -> None:
    """Give a silenced rank its voice for an error of its own, one rank of each host: 64 would say the same.

    `name` stands for the launch. Rank 0 has its voice and may say the same a second time.
    """
    from distdoctor.ranks.first_of_host import claim_on_host

    if not _SILENCE.silent:
        return
    claim = claim_on_host(f"{name}|error")
    if claim is not None:
        _CLAIMS.append(claim)  # held until this process ends
        _SILENCE.end()


def run_as_rank(
    collection: RankCollection, work: Callable[[], None], report: Callable[[], int | None]
) -> int:
    """Do this rank's work, then report if it falls to this rank; the exit code.

    `report` gives None when another rank reports. SIGTERM, which a launcher sends when one rank has died,
    cuts waiting short: the report of what arrived comes out before the launcher kills.
    """
    from distdoctor.ranks.terminate import on_terminate

    def conclude() -> int | None:
        code = report()
        if code is not None:
            collection.gathering.finish(code)
        return code

    def last_words() -> int | None:
        code = conclude()
        # Another rank has reported; or the main thread of this one is writing at this moment.
        return 0 if code is None and not collection.gathering.reporting else code

    with on_terminate(last_words, hurry=collection.hurry):
        if _TERMINATED_EARLY.is_set():
            collection.hurry()
        try:
            work()
        except OutputError as error:
            print(f"error: {error.message}", file=sys.stderr)
        return conclude() or 0
