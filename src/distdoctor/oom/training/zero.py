"""ZeRO-1, 2 and 3: by DeepSpeed's own engine where it runs, else by our own partitioning after its design."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from distdoctor.oom.settings import DataParallel
from distdoctor.oom.training import deepspeed_engine
from distdoctor.oom.training.base import World
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.deepspeed_engine import DeepSpeedZero
from distdoctor.oom.training.model import Transformer
from distdoctor.oom.training.partitioned import Zero1, Zero2
from distdoctor.oom.training.partitioned_parameters import Zero3

OWN = "distdoctor's own partitioning, not DeepSpeed"

_OWN = {DataParallel.ZERO1: Zero1, DataParallel.ZERO2: Zero2, DataParallel.ZERO3: Zero3}


def zero(models: Sequence[Transformer], world: World) -> DataParallelism:
    """The stage that the job asks for."""
    if deepspeed_engine.why_not_deepspeed(world) is None:
        return DeepSpeedZero(models, world)
    return _OWN[world.job.strategy](models, world)


def partitioned_by(world: World) -> str:
    """Who partitions this world's states, in words for a report."""
    reason = deepspeed_engine.why_not_deepspeed(world)
    if reason is None:
        return f"DeepSpeed {importlib.metadata.version('deepspeed')}"
    return f"{OWN} ({reason})"
