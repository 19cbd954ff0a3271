"""A rank that was stopped before it came is ended after the report, too: its launcher would wait for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from typing import Any, cast

from distdoctor.ranks.processes import Life, life_of, read_stat
from distdoctor.ranks.store import Store
from distdoctor.ranks.watchdog import Watchdog
from slowdown import scaled


class _Empty:
    """A store that nobody has told anything."""

    def __getattr__(self, name: str) -> Any:  # Any: whatever the store is asked
        return lambda *_: False


def test_a_rank_of_this_launch_that_never_came_and_is_stopped_is_ended() -> None:
    job = uuid.uuid4().hex
    environ = {**os.environ, "RANK": "1", "TORCHELASTIC_RUN_ID": job}
    command = [sys.executable, "-m", "distdoctor", "explain", "-"]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE) as rank:
        time.sleep(scaled(0.3))
        rank.send_signal(signal.SIGSTOP)
        stat = read_stat(rank.pid)
        assert stat is not None
        until = time.monotonic() + scaled(5)
        while life_of(rank.pid, stat.start_ticks) is not Life.STOPPED and time.monotonic() < until:
            time.sleep(0.02)
        watchdog = Watchdog(
            cast(Store, _Empty()),
            prefix="",
            rank=0,
            world_size=2,
            host="host-a",
            deadline_s=1.0,
            report=lambda _: 3,
            rank_variable="RANK",
            job_variables={"TORCHELASTIC_RUN_ID": job},
        )
        watchdog._end_stopped_neighbours()
        assert rank.wait(timeout=scaled(5)) == -signal.SIGKILL
