"""Ending ranks of ours that were stopped: a launcher waits for ever for a process in state T."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from distdoctor.ranks.processes import (
    PROC,
    Life,
    find_ranks,
    life_of,
    read_command_line,
    read_stat,
    runs_distdoctor,
)

# A scheduler that suspends a job stops its processes one after the other; only what is still stopped after
# this is ended. Our own choice: longer than a suspension's spread, shorter than anybody's patience.
STILL_STOPPED_S = 1.0


_MAX_ANCESTORS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedRank:
    """A rank's process on this host, named by id and start time."""

    rank: int
    pid: int
    start_ticks: int


def end_stopped_peers(
    registered: Iterable[StoppedRank] = (),
    *,
    rank_variable: str | None = None,
    job_variables: Mapping[str, str] | None = None,
    still_stopped_s: float = STILL_STOPPED_S,
) -> tuple[StoppedRank, ...]:
    """SIGKILL for ranks of this job on this host that stay in state T; says which were ended.

    Only processes of our own user and program, by the id and start time that they registered. With `rank_variable` and
    `job_variables` also ranks of the same launch that were stopped before they could register. Never this process, its ancestors, nor a process held
    by a debugger. Takes `still_stopped_s` seconds when any is stopped, a few milliseconds otherwise.
    """
    candidates = {peer.pid: peer for peer in registered}
    if rank_variable and job_variables:
        for rank, stat in find_ranks(rank_variable, job_variables).items():
            candidates.setdefault(
                stat.pid, StoppedRank(rank=rank, pid=stat.pid, start_ticks=stat.start_ticks)
            )
    for pid in _self_and_ancestors():
        candidates.pop(pid, None)
    stopped = [peer for peer in candidates.values() if _is_stopped(peer) and _is_one_of_us(peer.pid)]
    if not stopped:
        return ()
    time.sleep(still_stopped_s)
    return tuple(peer for peer in stopped if _end(peer))


def _is_stopped(peer: StoppedRank) -> bool:
    return life_of(peer.pid, peer.start_ticks) is Life.STOPPED


def _end(peer: StoppedRank) -> bool:
    """Kill through a pidfd, so that an id reused between look and signal cannot hit a stranger."""
    try:
        handle = os.pidfd_open(peer.pid)
    except (OSError, AttributeError):
        return _is_stopped(peer) and _kill(peer.pid)  # kernels before 5.3
    try:
        return _is_stopped(peer) and _kill(peer.pid, handle)
    finally:
        os.close(handle)


def _kill(pid: int, handle: int | None = None) -> bool:
    try:
        if handle is None:
            os.kill(pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    return True


def _is_one_of_us(pid: int) -> bool:
    """Our user, and our program: distdoctor on its command line, or the script that runs here.

    What a peer registered is not taken on trust.
    """
    try:
        if (PROC / str(pid)).stat().st_uid != os.geteuid():
            return False
    except OSError:
        return False
    words = read_command_line(pid)
    if runs_distdoctor(words):
        return True
    return len(words) > 1 and words[:2] == read_command_line(os.getpid())[:2]


def _self_and_ancestors() -> list[int]:
    pids = [os.getpid()]
    while len(pids) < _MAX_ANCESTORS:
        stat = read_stat(pids[-1])
        if stat is None or stat.parent_pid <= 0:
            break
        pids.append(stat.parent_pid)
    return pids
