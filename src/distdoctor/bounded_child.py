"""Running a child that may hang, flood its outputs or never die: a deadline and a limit on everything."""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Of each stream the beginning and the end are kept: errors stand at the end, warnings at the beginning.
_KEEP_BYTES = 64 << 10

# A child may leave processes behind that hold its pipes open, so its end is polled for.
_POLL_S = 0.1

# After SIGABRT a Python with faulthandler needs milliseconds to print where it stands.
_ABORT_GRACE_S = 2.0


@dataclass(slots=True)
class Stream:
    """What came from one pipe: its first and its last bytes."""

    keep_bytes: int = _KEEP_BYTES
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        """Append, dropping the middle of what is too long."""
        room = self.keep_bytes - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room > 0 else data
        if len(self.tail) > 2 * self.keep_bytes:
            del self.tail[: -self.keep_bytes]

    def text(self) -> str:
        """As text; undecodable bytes are replaced."""
        return bytes(self.head + self.tail[-self.keep_bytes :]).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """How a child ended. `returncode` is negative for a signal, None when it could not be killed (state D)."""

    returncode: int | None
    timed_out: bool
    duration_s: float
    stdout: str
    stderr: str
    steps: str = ""
    """What it wrote to the pipe that `STEP_FD` in its arguments stands for."""


RUNNING: set[subprocess.Popen[bytes]] = set()
"""Children that a collector waits for. One that was given up leaves its child behind; it ends when we do."""


@atexit.register
def kill_running() -> None:
    """SIGKILL the children that nobody waits for any more, each with its group."""
    for process in tuple(RUNNING):
        kill_group(process, grace_s=0.2)


def kill_group(process: subprocess.Popen[bytes], *, grace_s: float = 1.0) -> None:
    """SIGKILL a child's process group and reap it; give up after `grace_s` (state D cannot be killed)."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    deadline = time.monotonic() + grace_s
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


STEP_FD = "{step_fd}"
"""An argument that is replaced by the number of the inherited pipe."""


def run_bounded(
    argv: Sequence[str],
    environ: Mapping[str, str],
    timeout_s: float,
    *,
    abort_first: bool = False,
    keep_step_bytes: int = _KEEP_BYTES,
) -> ChildEnd:
    """Run `argv` in its own session, without a shell, and wait at most `timeout_s` (plus 3 s to kill it).

    abort_first: SIGABRT before SIGKILL, so that a child with faulthandler says where it hangs.
    keep_step_bytes: of the beginning, and of the end, of what it writes to the pipe for steps.
    Raises OSError when it cannot be started.
    """
    began = time.monotonic()
    step_read, step_write = os.pipe()
    try:
        process = subprocess.Popen(
            [str(step_write) if word == STEP_FD else word for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            pass_fds=(step_write,),
            start_new_session=True,
        )
    except BaseException:
        os.close(step_read)
        raise
    finally:
        os.close(step_write)
    RUNNING.add(process)
    outputs = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    pipes = {
        **{stream.fileno(): Stream() for stream in outputs},
        step_read: Stream(keep_bytes=keep_step_bytes),
    }
    streams = list(pipes.values())
    try:
        with selectors.DefaultSelector() as selector:
            for descriptor in pipes:
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            timed_out = not _wait(process, selector, pipes, began + timeout_s)
            if timed_out and abort_first:
                process.send_signal(signal.SIGABRT)
                _wait(process, selector, pipes, time.monotonic() + _ABORT_GRACE_S)
            # Also what the child left behind; until it is reaped its number names no other group.
            kill_group(process)
            _drain(selector, pipes)
    finally:
        RUNNING.discard(process)
        for stream in outputs:
            stream.close()
        os.close(step_read)
    return ChildEnd(
        returncode=process.poll(),
        timed_out=timed_out,
        duration_s=time.monotonic() - began,
        stdout=streams[0].text(),
        stderr=streams[1].text(),
        steps=streams[2].text(),
    )


def _wait(
    process: subprocess.Popen[bytes],
    selector: selectors.BaseSelector,
    pipes: Mapping[int, Stream],
    deadline: float,
) -> bool:
    """Read what comes until the child ends (True) or the deadline passes (False)."""
    while not _has_ended(process):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if selector.get_map():
            _read_ready(selector, pipes, min(left, _POLL_S))
        else:
            time.sleep(min(left, 0.01))
    return True


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """True once the child has ended; it is not reaped yet."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _drain(selector: selectors.BaseSelector, pipes: Mapping[int, Stream]) -> None:
    """What still lies in the pipes after the end; bounded, for somebody else may go on writing to them."""
    for _ in range(64):
        if not selector.get_map() or not _read_ready(selector, pipes, 0):
            return


def _read_ready(selector: selectors.BaseSelector, pipes: Mapping[int, Stream], wait_s: float) -> bool:
    ready = selector.select(wait_s)
    for key, _ in ready:
        try:
            data = os.read(key.fd, 1 << 16)
        except BlockingIOError:
            continue
        if data:
            pipes[key.fd].add(data)
        else:
            selector.unregister(key.fd)
    return bool(ready)
