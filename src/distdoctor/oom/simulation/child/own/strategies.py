"""Data parallelism around a user's own module: DDP, ZeroRedundancyOptimizer, FSDP2 on the blocks that repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from torch import nn
from torch.distributed.fsdp import fully_shard

from distdoctor.oom.settings import Checkpointing, DataParallel
from distdoctor.oom.simulation.child.own.blocks import Blocks
from distdoctor.oom.simulation.child.own.errors import OwnModuleError
from distdoctor.oom.training.base import World
from distdoctor.oom.training.checkpointing import checkpointed
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.ddp import Replicated, ZeroRedundancy
from distdoctor.oom.training.fsdp2 import FullyShard, sharding_arguments


class OwnFullyShard(FullyShard):
    """`fully_shard` on each block, then on the whole."""

    def __init__(self, models: Any, world: World, blocks: Sequence[Blocks]) -> None:
        super().__init__(models, world)
        self._blocks = blocks

    def shard(self) -> None:
        """In place; parameters are on the meta device, or whole where that was asked for."""
        arguments = sharding_arguments(self.world)
        reshards = self.world.job.reshard_after_forward
        for blocks in self._blocks:
            for block in blocks.modules():
                fully_shard(block, reshard_after_forward=reshards, **arguments)
        fully_shard(self.models[0], reshard_after_forward=reshards, **arguments)


def data_parallelism(module: nn.Module, world: World, blocks: Sequence[Blocks]) -> DataParallelism:
    """The strategy of the job around `module`."""
    # The strategies ask nothing of a model that an nn.Module does not have.
    models = cast(Any, [module])
    match world.job.strategy:
        case DataParallel.NONE:
            return DataParallelism(models, world)
        case DataParallel.DDP:
            return Replicated(models, world)
        case DataParallel.ZERO_REDUNDANCY:
            return ZeroRedundancy(models, world)
        case DataParallel.FSDP:
            return OwnFullyShard(models, world, blocks)
        case other:
            raise OwnModuleError(f"strategy {other.value} is simulated for known models only")


def checkpoint(module: nn.Module, blocks: Sequence[Blocks], kind: Checkpointing, notes: list[str]) -> None:
    """Wrap the blocks in place. Raises OwnModuleError where there are none."""
    if kind is Checkpointing.NONE:
        return
    if not blocks:
        raise OwnModuleError(
            "nothing to checkpoint: no list of at least two modules of one class was found",
            advice="call torch.utils.checkpoint in forward yourself, and leave --checkpointing out",
        )
    config = getattr(module, "config", None)
    if getattr(config, "use_cache", False):
        # As transformers itself does: a cache would be written to once more when layers are computed again.
        config.use_cache = False  # type: ignore[union-attr]  # it is not None: it has the attribute
        notes.append("config.use_cache is off, as with transformers' own gradient checkpointing")
    for each in blocks:
        for child, block in zip(each.children, each.modules(), strict=True):
            each.put(child, checkpointed(block, kind))
