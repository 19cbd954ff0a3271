"""What does measuring with distdoctor cost beside a bare torch.distributed loop?

    python benchmarks/nccl_bench.py [--ranks 4] [--blocks 20]

1. CPU time of one iteration of our timed loop round a call that does nothing, less that of a bare loop round the
   same call. In one process: no scheduler between.
2. Real collectives over Gloo in one process group, in turns: our loop, a bare loop, our loop, … Ratios are of the
   blocks' medians; the A/A row compares every second block of the bare loop with the others: a difference smaller
   than that interval is noise, and no claim is made.
3. Memory of a rank beyond its buffers, after `import torch` and after a validated collective (USS).
4. Wall clock of a default run of the command, and of PARAM's comms benchmark where it is installed.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LOOP_ITERS = 20_000
LOOP_REPEATS = 15

# Collective and bytes per rank: pure latency, and a message that is bound by copying.
CELLS = (("all_reduce", 1024), ("all_reduce", 1 << 20), ("all_gather", 1 << 20))
ITERS = {1024: 200, 1 << 20: 40}


class Nothing:
    def wait(self) -> None:
        """Complete at once."""


NOTHING = Nothing()


def issue_nothing() -> Nothing:
    return NOTHING


def bare_loop(issue: Callable[[], Any], iters: int) -> list[int]:
    """What somebody writes who times a collective: two readings of the clock an iteration."""
    times, now = [], time.perf_counter_ns
    for _ in range(iters):
        began = now()
        issue().wait()
        times.append(now() - began)
    return times


def loop_overhead() -> None:
    """Part 1. CPU time, so that other processes on the machine do not count."""
    from distdoctor.nccl_bench.measure.timing import HostClock, timed_loop

    def streaming() -> object:
        return timed_loop(issue_nothing, barrier=None, iters=LOOP_ITERS, clock=HostClock())

    def isolated() -> object:
        return timed_loop(issue_nothing, barrier=issue_nothing, iters=LOOP_ITERS, clock=HostClock())

    def bare() -> object:
        return bare_loop(issue_nothing, LOOP_ITERS)

    entries = {"bare loop": bare, "bare loop (A/A)": bare, "streaming": streaming, "isolated": isolated}
    cpu_us: dict[str, list[float]] = {name: [] for name in entries}
    for _ in range(LOOP_REPEATS):
        for name, run in entries.items():
            gc.collect()
            began = time.process_time()
            run()
            cpu_us[name].append((time.process_time() - began) / LOOP_ITERS * 1e6)
    print(f"1. CPU time of one iteration round a call that does nothing, µs ({LOOP_REPEATS} repeats)")
    base = statistics.median(cpu_us["bare loop"])
    for name, values in cpu_us.items():
        middle = statistics.median(values)
        print(
            f"   {name:18s} {middle:6.2f} ({min(values):.2f}-{max(values):.2f})"
            f"  beyond the bare loop {middle - base:+.2f}"
        )


def in_rank(blocks: int) -> None:
    """Parts 2 and 3, in every rank; rank 0 prints."""
    import psutil

    began = time.monotonic()
    import torch
    import torch.distributed as dist

    import_s = time.monotonic() - began
    process = psutil.Process()
    after_torch = process.memory_full_info().uss
    from distdoctor.nccl_bench.measure.collectives import prepare
    from distdoctor.nccl_bench.measure.timing import HostClock, timed_loop, warm_up

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    after_group = process.memory_full_info().uss
    speaks = rank == 0
    if speaks:
        print(
            f"2. {world_size} ranks over Gloo, torch {torch.__version__}: µs an iteration, median of {blocks} blocks"
        )
        print(f"   {'':22s} {'ours':>9s} {'bare':>9s}  ours/bare (5-95 % of pairs)   A/A (bare/bare)")
    for name, size in CELLS:
        cell = prepare(
            name,
            group=None,
            group_ranks=range(world_size),
            rank=rank,
            size_bytes=size * (world_size if name == "all_gather" else 1),
            dtype="float32",
            op="sum",
            in_place=name == "all_reduce",
            device=torch.device("cpu"),
        )
        cell.fill()
        warm_up(cell.issue, 10)
        bare_issue = bare_call(name, size, world_size)
        warm_up(bare_issue, 10)
        ours, bare = [], []
        for _ in range(blocks):
            dist.barrier()
            loop = timed_loop(cell.issue, barrier=None, iters=ITERS[size], clock=HostClock())
            ours.append(statistics.median(loop.total_us))
            dist.barrier()
            bare.append(statistics.median(bare_loop(bare_issue, ITERS[size])) / 1e3)
        if speaks:
            pairs = [one / two for one, two in zip(ours, bare, strict=True)]
            apart = [one / two for one, two in zip(bare[::2], bare[1::2], strict=False)]
            print(
                f"   {name + ' ' + str(size):22s} {statistics.median(ours):9.1f} {statistics.median(bare):9.1f}"
                f"  {statistics.median(pairs):5.3f} ({interval(pairs)})"
                f"   {statistics.median(apart):5.3f} ({interval(apart)})"
            )
    cell.fill()
    cell.run_sync()
    assert cell.check() is None
    buffers = cell.actual_size_bytes + cell.count * 4
    beyond = process.memory_full_info().uss - after_group - buffers
    if speaks:
        print("3. memory of rank 0, MiB (USS)")
        print(
            f"   import torch {after_torch / 2**20:.0f} (in {import_s:.1f} s), process group {after_group / 2**20:.0f},"
        )
        print(f"   beyond that and the last cell's buffers of {buffers / 2**20:.0f}: {beyond / 2**20:+.0f}")
    dist.destroy_process_group()


def bare_call(name: str, size: int, world_size: int) -> Callable[[], Any]:
    """The call as a user writes it, on buffers of its own."""
    import torch
    import torch.distributed as dist

    data = torch.ones(size // 4)
    if name == "all_reduce":
        return lambda: dist.all_reduce(data, async_op=True)
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    out = torch.empty(size // 4 * world_size)
    return lambda: gather(out, data, async_op=True)


def interval(values: list[float]) -> str:
    ordered = sorted(values)
    low, high = ordered[int(0.05 * len(ordered))], ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{low:.3f}-{high:.3f}"


def wall_of(title: str, argv: list[str]) -> None:
    began = time.monotonic()
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    seconds = time.monotonic() - began
    last = next(iter(reversed(done.stdout.strip().splitlines())), "")[:80]
    print(f"   {title:40s} {seconds:6.1f} s  rc={done.returncode}  {last if done.returncode else ''}")


def whole_runs(ranks: int) -> None:
    """Part 4."""
    print("4. whole runs, wall clock")
    wall_of(
        f"distdoctor nccl-bench --launch {ranks}",
        [sys.executable, "-m", "distdoctor", "nccl-bench", "--launch", str(ranks)],
    )
    if importlib.util.find_spec("param_bench") is None:
        print("   PARAM's comms benchmark: not installed")
    else:
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        module = ["-m", "param_bench.train.comms.pt.comms", "--", "--backend", "gloo", "--device", "cpu"]
        wall_of("PARAM comms, all_reduce", [sys.executable, *launch, *module, "--collective", "all_reduce"])


def main() -> None:
    """Measure and print; ranks are this file again, under torchrun."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    if "RANK" in os.environ:
        in_rank(options.blocks)
        return
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs")
    print(f"load {os.getloadavg()[0]:.1f}")
    loop_overhead()
    sys.stdout.flush()
    subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(options.ranks), __file__, "--", "--blocks", str(options.blocks)),
        ],
        env={"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **os.environ},
        check=True,
    )
    whole_runs(options.ranks)
    print(json.dumps({"ranks": options.ranks, "blocks": options.blocks, "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
