"""What forked ranks do in the watchdog's tests: all_reduce three times over Gloo, one of them misbehaving."""

from __future__ import annotations

import datetime
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from distdoctor.ranks import watchdog as watchdog_module
from distdoctor.ranks.store import launch_prefix
from distdoctor.ranks.watchdog import Stall, Watchdog

LONG = datetime.timedelta(seconds=60)


def measure(
    rank: int,
    world_size: int,
    folder: str,
    deadline_s: float,
    faults: dict[str, str],
    terminate_after_s: float | None = None,
    gives_up: bool = False,
    writes: bool = False,
) -> str:
    """`faults` maps a rank to what it does at the second phase: sleep, stop, exit, freeze inside.

    With `writes` rank 0 then reports and the others wait for it; "exit writing" and "late SIGTERM" are faults there.

    After `terminate_after_s` every living rank gets SIGTERM, as from torchrun when a rank has died.
    """
    fault = faults.get(str(rank), "")
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=LONG)

    def report(stall: Stall) -> int:
        Path(folder, f"stall.{rank}.json").write_text(json.dumps(as_dict(stall)))
        return 3

    watchdog = Watchdog(
        store,
        prefix=launch_prefix(store, "0"),
        rank=rank,
        world_size=world_size,
        host="host-a",
        deadline_s=deadline_s,
        report=report,
    )
    dist.init_process_group("gloo", rank=rank, world_size=world_size, timeout=LONG)
    watchdog.start()
    if terminate_after_s is not None:
        threading.Timer(terminate_after_s, os.kill, (os.getpid(), signal.SIGTERM)).start()
    for index in range(3):
        if index == 1:
            misbehave(fault)
        if index == 1 and fault == "raise":
            watchdog.give_up("ValueError: no such\nthing")
        watchdog.arrive(f"all_reduce/{index}")
        if index == 1 and fault == "freeze inside":
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            dist.all_reduce(torch.ones(1024))
        except RuntimeError as error:
            if gives_up:
                watchdog.give_up(str(error))
            time.sleep(600)  # a peer died: who it was is the watchdog's to find out
        if index == 2 and fault == "slow":
            time.sleep(deadline_s * 0.6)
        watchdog.leave()
    if writes:
        write(watchdog, rank, folder, fault)
    watchdog.finish()
    dist.destroy_process_group()
    return "complete"


def write(watchdog: Watchdog, rank: int, folder: str, fault: str) -> None:
    """The end of a run that went well: one report."""
    watchdog_module._WRITING_S = 1.0
    if fault == "late SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
    watchdog.arrive("writing the report")
    if rank != 0:
        watchdog.await_report()
        return
    if fault == "SIGTERM to another":
        time.sleep(8)  # long enough for the other to think that nobody else will report
    told = watchdog.begin_report()
    if fault == "exit writing":
        os._exit(9)
    if told is None:
        Path(folder, "report").write_text("complete")
        watchdog.end_report(0)


def misbehave(fault: str) -> None:
    match fault:
        case "sleep":
            time.sleep(600)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "exit":
            os._exit(9)


def as_dict(stall: Stall) -> dict[str, Any]:
    return {
        "reason": stall.reason,
        "reporter": stall.reporter,
        "phase": stall.phase,
        "missing": [each.rank for each in stall.missing],
        "inside": list(stall.inside),
        "frozen": [each.rank for each in stall.frozen],
        "lives": {each.rank: each.life for each in (*stall.missing, *stall.frozen)},
        "hosts": {each.rank: each.host for each in stall.missing},
        "last_phases": {each.rank: each.last_phase for each in stall.missing},
        "terminated": stall.terminated,
        "store_lost": stall.store_lost,
        "where": {each.rank: each.function for each in stall.where},
        "errors": [list(error) for error in stall.errors],
    }
