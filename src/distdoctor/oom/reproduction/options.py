"""What the user asked to be run, checked and in one value. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from distdoctor.oom.reproduction.combinations import Combination

# Optimizer states appear in the first step, so that the second is the first one that is like all others.
DEFAULT_STEPS = 2

# One step of a small model takes well under a second, on busy processors too; building a strategy takes some. Our own
# choices.
DEFAULT_TIMEOUT_S = 60.0
DEFAULT_TIME_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproduceOptions:
    """A run."""

    combinations: tuple[Combination, ...]
    steps: int = DEFAULT_STEPS
    """Optimizer steps of each combination."""
    memory_limit_bytes: int | None = None
    """Of each rank: on a GPU of the allocator, on the CPU of live tensors."""
    backend: str | None = None
    """None: NCCL where GPUs are, Gloo elsewhere."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Of one step."""
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    snapshot_dir: Path | None = None
    """Where a rank that runs out of memory leaves what it had allocated; None: nowhere."""
    share_gpus: bool = False
