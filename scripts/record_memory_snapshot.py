"""Runs a tiny model on a GPU until it is out of memory, and dumps a memory snapshot there.

For a real file to read back with `distdoctor oom explain`, on a machine with a GPU and torch:

    python scripts/record_memory_snapshot.py snapshot.pickle
    distdoctor oom explain snapshot.pickle

It takes at most `--limit-gib` of the GPU (torch refuses beyond that as it does when the device is full), and half a
minute. It has not been run where this project's tests run, which have no GPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    """Train with ever larger batches, keep one output a step, and dump when memory is out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--limit-gib", type=float, default=4.0)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    import torch
    from torch import nn

    if not torch.cuda.is_available():
        print("error: no GPU that torch can use", file=sys.stderr)
        return 3
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, options.limit_gib * 2**30 / total))
    torch.cuda.memory._record_memory_history(max_entries=200_000)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8))
    )
    model.to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    try:
        for step in range(options.steps):
            batch = torch.randn(256 * (1 + step), 1024, device="cuda")
            output = model(batch)
            output.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(output.detach())
    except torch.OutOfMemoryError as error:
        torch.cuda.memory._dump_snapshot(str(options.output))
        print(f"{error}\n{options.output}: {options.output.stat().st_size:,} bytes")
        return 0
    print(f"error: {options.steps} steps fitted; lower --limit-gib", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
