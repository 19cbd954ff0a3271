"""Which rank speaks? Help, usage errors and reports come from one rank; the others keep still."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping

from distdoctor.ranks.identity import rank_in
from distdoctor.ranks.processes import entered_container_from_outside


class Silence:
    """Standard output and error of a rank that does not speak, kept so that they can be given back."""

    def __init__(self) -> None:
        self._kept: tuple[int, int] | None = None

    @property
    def silent(self) -> bool:
        """Whether output goes nowhere at the moment."""
        return self._kept is not None

    def begin(self) -> None:
        """Send file descriptors 1 and 2 to /dev/null, so that C libraries and children are silent, too."""
        if self._kept is not None:
            return
        self._flush()
        try:
            self._kept = (os.dup(1), os.dup(2))
        except OSError:
            return  # closed by whoever started us: silent already
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def end(self) -> None:
        """Speak again: this rank has taken over from a dead rank 0."""
        if self._kept is None:
            return
        self._flush()
        for target, kept in zip((1, 2), self._kept, strict=True):
            os.dup2(kept, target)
            os.close(kept)
        self._kept = None

    @staticmethod
    def _flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            # A reader that went away is no reason to stop.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()


def should_speak(
    environ: Mapping[str, str],
    entered_from_outside: Callable[[str], bool] = entered_container_from_outside,
) -> bool:
    """Whether this process prints: rank 0, a process that stands alone, and any whose rank is unclear.

    Never raises: it is asked before the command line is understood.
    """
    return rank_in(environ, entered_from_outside) in (None, 0)


def silence_other_ranks(environ: Mapping[str, str]) -> Silence:
    """Silence this process unless it is the one that speaks; for `__main__`, before the command line is read."""
    silence = Silence()
    if not should_speak(environ):
        silence.begin()
    return silence
