"""What torchrun itself says on standard error, kept from people once the report is out.

torchrun answers every rank that fails with forty lines of traceback, after the report has said who it was and
why. Lines of the ranks pass at once, also those that are read a moment after the report was noted as written. From
the agent's first word after the report on, all is held, and shown only when there was no report.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

STDERR_IS_TERMINAL = "DISTDOCTOR_STDERR_IS_TERMINAL"
"""Variable that tells a rank, whose standard error is a pipe to us, that people watch its other end."""

# The agent's own log lines: `W1130 08:49:38.496000 602 torch/distributed/run.py:874] …`.
_AGENT_LINE = re.compile(rb"^[IWEC]\d{4} [\d:.]+ \d+ .*torch/distributed/(?:run|elastic|launcher)")

# Where the agent, or Python for it, begins to speak of a rank that failed.
_AGENT_BEGINS = re.compile(rb"torch[./]distributed|^Traceback \(most recent call last\)")

_CHUNK_BYTES = 4096
_MAX_HELD_BYTES = 1 << 20


class AgentListener:
    """Passes a torchrun's standard error on to ours, in a thread of its own."""

    def __init__(self, torchrun: subprocess.Popen[bytes], report_is_out: Path) -> None:
        """`report_is_out`: the file that a rank makes when it has reported."""
        self._stream = torchrun.stderr
        self._report_is_out = report_is_out
        self._held = b""
        self._thread = threading.Thread(target=self._listen, name="distdoctor-torchrun", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """The launch is over: show what was held if nobody has reported."""
        self._thread.join(timeout=2.0)
        if self._held and not self._report_is_out.exists():
            _pass_on(self._held)
        self._held = b""

    def _listen(self) -> None:
        if self._stream is None:
            return
        line = b""
        while chunk := self._stream.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]  # a BufferedReader
            *lines, line = (line + chunk).splitlines(keepends=True) or [b""]
            if line.endswith(b"\n"):
                lines.append(line)
                line = b""
            for each in lines:
                self._take(each)
            if line.startswith(b"\r"):
                # A line that is written over and over has no end: people want to see it now.
                self._take(line)
                line = b""
        self._take(line)

    def _take(self, line: bytes) -> None:
        if self._held or (_AGENT_BEGINS.search(line) and self._report_is_out.exists()):
            self._held = (self._held + line)[-_MAX_HELD_BYTES:]
        elif line and not _AGENT_LINE.match(line):
            _pass_on(line)


def _pass_on(data: bytes) -> None:
    try:
        sys.stderr.buffer.write(data)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return  # nobody listens any more
