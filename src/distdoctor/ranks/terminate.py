"""Doing the last thing when the launcher ends the job, even while the main thread is stuck.

When one rank dies, torchrun sends SIGTERM to the others within 0.1 s and SIGKILL 30 s later. Python runs its
signal handlers in the main thread only, which may sit in a collective or a file system that never returns; a
thread that reads from `signal.set_wakeup_fd` sees the signal at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

# How long the main thread, which has been told to hurry, may still take. With gathering's own three seconds
# and the writing of a report this ends well before torchrun's SIGKILL. Our own choice.
DEFAULT_GRACE_S = 8.0

_WRITING_S = 15.0


class Termination:
    """Watches for SIGTERM until `stop`. Use as a context manager around the work."""

    def __init__(
        self,
        last_words: Callable[[], int | None],
        hurry: Callable[[], None] | None,
        grace_s: float,
        *,
        interrupts: bool = False,
    ) -> None:
        self._last_words = last_words
        self._hurry = hurry
        self._grace_s = grace_s
        self._signals = (signal.SIGTERM, *([signal.SIGINT] if interrupts else []), *_hangup())
        self._stopped = threading.Event()
        self._seen: signal.Signals | None = None
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._old_wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._old_handlers = {each: signal.signal(each, _ignore) for each in self._signals}
        self._thread = threading.Thread(target=self._watch, name="distdoctor-sigterm", daemon=True)
        self._thread.start()

    @property
    def seen(self) -> signal.Signals | None:
        """The signal that came first, or None."""
        return self._seen

    def stop(self) -> None:
        """The work is done: give the signal back to whoever had it. Call from the main thread."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        with contextlib.suppress(OSError):
            os.write(self._writer, b"\0")
        self._thread.join(timeout=1.0)
        if not self._thread.is_alive():
            os.close(self._reader)
            os.close(self._writer)

    def __enter__(self) -> Termination:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            select.select([self._reader], [], [])
            came = os.read(self._reader, 512)
            self._seen = next((each for each in self._signals if each in came), None)
            if self._seen is not None:
                break
        if self._stopped.is_set():
            return
        if self._hurry is not None:
            self._hurry()
        if self._stopped.wait(self._grace_s):
            return
        try:
            code = self._last_words()
        except Exception:
            traceback.print_exc()
            code = 1
        if code is None:
            # Another thread of ours writes the report at this moment.
            self._stopped.wait(_WRITING_S)
            code = 0
        if not self._stopped.is_set():
            end_process(code)


def on_terminate(
    last_words: Callable[[], int | None],
    *,
    hurry: Callable[[], None] | None = None,
    grace_s: float | None = None,
    interrupts: bool = False,
) -> Termination:
    """On SIGTERM (or SIGHUP, where it is not ignored) call `hurry`, give the main thread `grace_s` seconds, then speak `last_words` and exit.

    `last_words` runs in its own thread, writes the report of what has arrived, and gives the exit code; None
    only when the main thread is writing it already, which then has 15 s more. Without `hurry` it speaks at
    once. With `interrupts` SIGINT (Ctrl-C) counts like SIGTERM. Call from the main thread.

    Raises ValueError (from `signal`) in any other thread.
    """
    if grace_s is None:
        grace_s = 0.0 if hurry is None else DEFAULT_GRACE_S
    return Termination(last_words, hurry, grace_s, interrupts=interrupts)


def end_process(code: int) -> None:
    """End this process at once, whatever its other threads do: what was printed is flushed, nothing else."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _hangup() -> tuple[signal.Signals, ...]:
    """SIGHUP, which a closed terminal sends to all ranks at once; nothing under `nohup`."""
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)


def _ignore(number: int, frame: FrameType | None) -> None:
    """A Python handler must exist for the wake-up descriptor to be written; the thread does the rest."""
    del number, frame
