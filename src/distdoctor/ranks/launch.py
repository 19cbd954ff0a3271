"""`--launch N`: the same command on N ranks of this host, and the verdict's exit code.

Commands that need no torch run as plain processes with RANK and WORLD_SIZE set: that starts in a fifth of a
second and works where torch is missing or broken. Commands that measure run under torchrun, as a subprocess,
so that this process imports no torch and the ranks get a store host that outlives them. Either way the rank
that reports leaves its exit code in a file (`status`).

More than one host is torchrun's, Slurm's or Kubernetes' business.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from distdoctor.errors import DistdoctorError
from distdoctor.exit_codes import ExitCode
from distdoctor.ranks.agent_noise import STDERR_IS_TERMINAL, AgentListener
from distdoctor.ranks.deadline import Deadline
from distdoctor.ranks.processes import own_pids, read_environ
from distdoctor.ranks.status import STATUS_VARIABLE, read_status

# What another launcher left in this shell would make every rank believe it is that launcher's.
_LEFT_BY_LAUNCHERS = ("TORCHELASTIC_", "GROUP_", "ROLE_", "PET_")
_LAUNCH_ID = "DISTDOCTOR_LAUNCH_ID"
_RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")

# torch's own default; nobody listens there, for these ranks meet through files.
_MASTER_PORT = "29500"

_POLL_S = 0.05

# Before an interpreter has started and listens, SIGTERM would end it without a word. Our own threshold.
_MIN_LIFE_S = 2.0

# After the report is out the other ranks end within a second or two. Our own threshold.
_AFTER_REPORT_S = 10.0

# After SIGTERM: gathering takes 3 s, last words 8 s, writing a second. torchrun itself gives 30 s.
_AFTER_SIGTERM_S = 20.0
_TORCHRUN_AFTER_SIGTERM_S = 35.0

# Ranks that torchrun left behind notice within seconds that their store is gone, and report; those that had not met yet
# never do. Our own threshold.
_ORPHANS_S = 20.0


def launch(
    num_ranks: int,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    needs_torch: bool = False,
    python: str = sys.executable,
    deadline_s: float | None = None,
    module: str = "distdoctor",
) -> int:
    """Run `python -m distdoctor ARGV` on `num_ranks` ranks of this host; the exit code of the report.

    needs_torch: under torchrun instead of plain processes.
    deadline_s: after it the ranks are told to end, and then ended; None leaves that to the command.
    module: what is run.

    Ctrl-C, SIGTERM and SIGHUP reach the ranks, and no rank outlives this call, nor (on Linux, by more than some seconds)
    this process when it is killed. Without a report the code is rank 0's
    own, or 3 when it was ended by a signal. Raises DistdoctorError when `needs_torch` and `python` has none, and when
    torchrun itself was killed before any report.
    """
    if needs_torch and not _has_torch(python):
        raise DistdoctorError(
            f"torch is not installed for `{python}`",
            hint="install torch there, or give --python the interpreter that the job uses",
        )
    with tempfile.TemporaryDirectory(prefix="distdoctor-launch-") as folder:
        status = Path(folder) / "exit-code"
        listener = None
        base = _environ(env, status)
        if needs_torch:
            command = [python, "-m", "torch.distributed.run", "--standalone"]
            # It makes a folder for logs, also where nothing is logged, and leaves it behind in TMPDIR.
            command += ["--log-dir", folder]
            command += ["--nproc-per-node", str(num_ranks), "-m", module, *argv]
            base[STDERR_IS_TERMINAL] = "1" if sys.stderr.isatty() else ""
            started = [_start(command, base, stderr=subprocess.PIPE)]
            listener = AgentListener(started[0], status)
            patience_s = _TORCHRUN_AFTER_SIGTERM_S
        else:
            command = [python, "-m", module, *argv]
            started = [_start(command, {**base, **_rank(rank, num_ranks)}) for rank in range(num_ranks)]
            patience_s = _AFTER_SIGTERM_S
        launched = _Launched(started, status, patience_s, agents=base[_LAUNCH_ID] if needs_torch else None)
        try:
            with _signals_forwarded(launched):
                launched.wait(deadline_s)
        finally:
            launched.kill()
            if listener is not None:
                listener.finish()
        if launched.killed_by is not None:
            raise DistdoctorError(
                f"torchrun was ended by {launched.killed_by.name} before any rank had reported",
                hint="`dmesg -T | tail` says whether the kernel did it; else ask who uses this host",
            )
        if launched.was_late:
            raise DistdoctorError(
                f"no rank had reported after {deadline_s:g} s, and all were ended",
                hint=f"does `{python} -c 'import torch'` come to an end on this host?",
            )
        if launched.torchrun_failed:
            raise DistdoctorError(
                "torchrun ended with status 1 before any rank had reported",
                hint="what it said stands above: a rank that was killed early, or a torch that cannot be imported",
            )
        return launched.exit_code()


class _Launched:
    """The processes that were started: N ranks, or one torchrun."""

    def __init__(
        self,
        processes: list[subprocess.Popen[bytes]],
        status: Path,
        patience_s: float,
        *,
        agents: str | None,
    ) -> None:
        """`agents`: under torchrun, the launch's id, by which its ranks are known."""
        self._interrupted = False
        self._is_late = False
        self._agents = agents
        self._processes = processes
        self._status = status
        self._patience_s = patience_s
        self._ending: Deadline | None = None
        self._listening = Deadline.after(_MIN_LIFE_S)

    def wait(self, deadline_s: float | None) -> None:
        """Return when all have ended, or have had their time."""
        limit = Deadline.after(deadline_s) if deadline_s is not None else None
        while self._running():
            if self._ending is not None and self._ending.expired:
                return
            if self._ending is None:
                if self._status.exists():
                    self._ending = Deadline.after(_AFTER_REPORT_S)
                elif self._listening.expired and (
                    self._somebody_failed() or (limit is not None and limit.expired)
                ):
                    # As torchrun does: the others are told, report what came, and end.
                    self._is_late = limit is not None and limit.expired
                    self.forward(signal.SIGTERM)
            time.sleep(_POLL_S)
        self._wait_for_orphans()

    @property
    def killed_by(self) -> signal.Signals | None:
        """What ended torchrun before any rank had reported; None where nothing did, or we were told to end it."""
        code = self._processes[0].poll()
        if self._agents is None or self._ending is not None or code is None or code >= 0:
            return None
        return signal.Signals(-code) if read_status(self._status) is None else None

    @property
    def was_late(self) -> bool:
        """The deadline passed, and SIGTERM brought no report either."""
        return self._is_late and self._agents is not None and read_status(self._status) is None

    @property
    def torchrun_failed(self) -> bool:
        """It ended with 1, as Python does after a traceback, and no rank has left a code: a rank with a bug would have."""
        return (
            self._agents is not None
            and self._ending is None
            and self._processes[0].poll() == 1
            and read_status(self._status) is None
        )

    def _wait_for_orphans(self) -> None:
        """A torchrun that was killed leaves its ranks behind: they may still report."""
        if self.killed_by is None:
            return
        until = Deadline.after(_ORPHANS_S)
        while self._orphans() and not until.expired and not self._status.exists():
            time.sleep(_POLL_S * 4)

    def _orphans(self) -> list[int]:
        """Processes of this launch that are not children of ours any more."""
        return [
            pid
            for pid in own_pids()
            if pid != os.getpid() and (read_environ(pid) or {}).get(_LAUNCH_ID) == self._agents
        ]

    def forward(self, number: int) -> None:
        """Send a signal to all that run; after it they have their time to report and end."""
        for process in self._running():
            with contextlib.suppress(OSError):
                process.send_signal(number)
        self._interrupted = self._interrupted or number == signal.SIGINT
        self._ending = Deadline.after(self._patience_s)

    def note_interrupt(self) -> None:
        """The ranks have got SIGINT from the terminal."""
        self._interrupted = True
        self._ending = Deadline.after(self._patience_s)

    def kill(self) -> None:
        """End whatever is left, torchrun's ranks included."""
        running = self._running()
        descendants = [pid for process in running for pid in _descendants(process.pid)]
        for process in running:
            process.kill()
        if self.killed_by is not None:
            descendants += self._orphans()
        for pid in descendants:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def exit_code(self) -> int:
        """The report's, or what stands for it when there is none."""
        told = read_status(self._status)
        if told is not None:
            return told
        if self._interrupted:
            return ExitCode.INTERRUPTED
        if any(process.returncode == ExitCode.USAGE for process in self._processes):
            # All ranks got the same words; rank 0 may have been told to end before it could say so.
            return ExitCode.USAGE
        first = self._processes[0].returncode
        failed = any(process.returncode for process in self._processes)
        if first == 0:
            return ExitCode.UNANSWERED if failed else ExitCode.OK
        return first if first in {int(code) for code in ExitCode} else ExitCode.UNANSWERED

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self._processes if process.poll() is None]

    def _somebody_failed(self) -> bool:
        return any(process.returncode for process in self._processes)


def _environ(env: Mapping[str, str], status: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in env.items()
        if not name.startswith(_LEFT_BY_LAUNCHERS) and name not in _RANK_VARIABLES
    }
    # torchrun would set it, too, and print six lines about it.
    kept.setdefault("OMP_NUM_THREADS", "1")
    kept[_LAUNCH_ID] = secrets.token_hex(8)
    kept[STATUS_VARIABLE] = str(status)
    # What a launcher gives as well: without a meeting point the ranks would rightly be called misconfigured.
    kept.setdefault("MASTER_ADDR", "127.0.0.1")
    kept.setdefault("MASTER_PORT", _MASTER_PORT)
    return kept


def _rank(rank: int, num_ranks: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(num_ranks),
    }


def _start(
    command: Sequence[str], environ: Mapping[str, str], *, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    # In our process group, so that Ctrl-C reaches the ranks from the terminal.
    return subprocess.Popen(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stderr=stderr,
        preexec_fn=_ended_with_us(),  # noqa: PLW1509 - no thread of ours runs yet
    )


# prctl(2): which signal a process gets when the thread that started it has ended. It outlives exec.
_PR_SET_PDEATHSIG = 1


def _ended_with_us() -> Callable[[], None] | None:
    """For a child, before it runs anything: SIGTERM when this process is killed, so that ranks report and end.

    None where the kernel has no such thing, and in a thread, whose end would count as ours.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return in_child


def _has_torch(python: str) -> bool:
    """Whether `python` can find torch, without importing it."""
    script = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    try:
        done = subprocess.run([python, "-c", script], check=False, timeout=30, capture_output=True)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _descendants(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


@contextlib.contextmanager
def _signals_forwarded(launched: _Launched) -> Iterator[None]:
    """SIGTERM and SIGINT go to the ranks; Ctrl-C at a terminal has reached them already. A terminal that was closed ends
    the job as SIGTERM does, unless `nohup` said otherwise."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT and _from_terminal():
            launched.note_interrupt()
        else:
            launched.forward(signal.SIGTERM if number == signal.SIGHUP else number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    old = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _from_terminal() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
