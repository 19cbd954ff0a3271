"""A module that `launch` runs on ranks: `python -m launched_rank WHAT`."""

from __future__ import annotations

import os
import signal
import sys

# As `__main__` does: SIGTERM that comes while modules are imported makes the rank hurry, not vanish.
TERMINATED_EARLY: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: TERMINATED_EARLY.append(number))

# ruff: noqa: E402
import json
import time
from pathlib import Path

from distdoctor.ranks.gather import Gathered, Gathering
from distdoctor.ranks.identity import detect_identity
from distdoctor.ranks.terminate import on_terminate


def report(gathering: Gathering, rank: int) -> int | None:
    outcome = gathering.conclude()
    if not isinstance(outcome, Gathered):
        return None if gathering.reporting else 0
    told = {
        "launcher": detect_identity(os.environ).launcher.value,
        "ranks": sorted(outcome.payloads),
        "missing": {each.rank: each.absence.name for each in outcome.missing},
        "argv": sys.argv[1:],
    }
    Path(os.environ["TMPDIR"], f"report.{rank}.json").write_text(json.dumps(told))
    gathering.finish(11)
    return 0 if "TORCHELASTIC_RUN_ID" in os.environ else 11


def main(what: str) -> int:
    rank = int(os.environ["RANK"])
    match (what, rank):
        case ("fail", 1):
            return 7
        case ("usage", _):
            return 2
        case ("die", 0):
            os.kill(os.getpid(), signal.SIGKILL)
        case ("nothing", _):
            return 0
        case ("silent", _):
            Path(os.environ["TMPDIR"], f"pid.{rank}").write_text(str(os.getpid()))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
    gathering = Gathering(detect_identity(os.environ), folder=None, deadline_s=60)
    gathering.announce()
    Path(os.environ["TMPDIR"], f"pid.{rank}").write_text(str(os.getpid()))
    if (what, rank) == ("stop", 1):
        os.kill(os.getpid(), signal.SIGSTOP)
    gathering.submit(b"{}")
    with on_terminate(lambda: report(gathering, rank), hurry=lambda: gathering.hurry(0.5), grace_s=0.5):
        if TERMINATED_EARLY:
            gathering.hurry(0.5)
        if what == "hang":
            Path(os.environ["TMPDIR"], f"ready.{rank}").touch()
            time.sleep(600)
        return report(gathering, rank) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
