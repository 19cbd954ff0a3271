"""A small DDP job over Gloo that profiles itself, with one rank that works longer: for `make demo`.

    torchrun --standalone --nproc-per-node 4 scripts/slow_rank_job.py FOLDER [SLOW_RANK]

Every rank writes its trace of 30 steps as torch.profiler's tensorboard handler does. The work of a device is a sleep,
so that four ranks on two cores do not disturb one another.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 30
WORK_S = 0.03
SLOWER = 1.3


class Block(torch.nn.Module):
    """A layer and some time on the device."""

    def __init__(self, work_s: float) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(256, 256)
        self.work_s = work_s

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Shape (batch, 256) in and out."""
        time.sleep(self.work_s)
        return torch.relu(self.linear(batch))


def main() -> None:
    """One rank."""
    folder, slow_rank = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        rank = dist.get_rank()
        work_s = WORK_S * (SLOWER if rank == slow_rank else 1.0)
        model = DistributedDataParallel(torch.nn.Sequential(Block(work_s), Block(work_s)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        # Steps are marked in the trace only where there is a schedule.
        profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1),
            on_trace_ready=lambda done: done.export_chrome_trace(
                str(folder / f"rank-{rank}.pt.trace.json.gz")
            ),
        )
        with profile as profiler:
            for _ in range(STEPS + 1):
                model(torch.randn(32, 256)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                profiler.step()
        dist.barrier()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
