"""Whole runs of `nccl-bench` in forked ranks, one of which misbehaves inside a function of torch.distributed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

# Imported once, before ranks are forked: a rank of its own would take a second for them.
import distdoctor.cli.hosts_of_ranks
import distdoctor.cli.nccl_bench_hosts
import distdoctor.cli.nccl_bench_live
import distdoctor.nccl_bench.measure.run  # noqa: F401
from distdoctor.__main__ import main

# Late by this much before every call, as a slow data loader or a throttled processor would be.
LATE_S = 0.005


def bench(
    rank: int,
    world_size: int,
    argv: list[str],
    function: str = "",
    faults: dict[str, str] | None = None,
    nth: int = 1,
) -> int:
    """Run the command; `faults` maps a rank to what it does from the `nth` call of `function` on."""
    del world_size
    fault = (faults or {}).get(str(rank))
    if fault:
        setattr(dist, function, misbehaving(getattr(dist, function), fault, nth))
    sys.argv = ["distdoctor", "nccl-bench", *argv]
    try:
        return int(main() or 0)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1


def misbehaving(real: Callable[..., Any], fault: str, nth: int) -> Callable[..., Any]:
    """The function of torch, with a fault."""
    calls = 0

    def wrapped(*args: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= nth:
            once(fault)
        result = real(*args, **keywords)
        if fault == "corrupt" and calls >= nth and not keywords.get("async_op"):
            output = args[0]
            if isinstance(output, torch.Tensor) and output.numel() > 20:
                output.view(-1)[17] += 1
        return result

    return wrapped


def once(fault: str) -> None:
    match fault:
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(600)
        case "raise":
            raise MemoryError("no room for the buffer")
        case "late":
            time.sleep(LATE_S)
