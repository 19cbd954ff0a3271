"""DistributedDataParallel: every rank holds everything, gradients are averaged bucket by bucket."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from distdoctor.oom.job import Job
from distdoctor.oom.settings import DataParallel
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.expert_parallel import parameters_elsewhere
from distdoctor.oom.training.optimizers import optimizer_class
from distdoctor.torch_private.distributed import ignore_in_ddp, keep_buckets_as_built

# torch's own default.
_BUCKET_MIB = 25


def why_not(job: Job) -> str | None:
    """Why DDP cannot wrap this job's model; None: it can, or is not asked to."""
    asked = job.strategy in (DataParallel.DDP, DataParallel.ZERO_REDUNDANCY)
    if asked and job.mesh.tp > 1 and job.mesh.dp * job.mesh.cp > 1:
        # torch/csrc/distributed/c10d/reducer.cpp copies gradients into buckets of plain tensors; TorchTitan refuses too.
        return "DDP does not take the DTensors of tensor parallelism; FSDP2 and HSDP do (--strategy fsdp2)"
    return None


class Replicated(DataParallelism):
    """DDP over dp_replicate, or over whatever data-parallel dimensions there are."""

    def prepare(self) -> None:
        """Wrap; where nothing is communicated, without the parts of DDP that read what a peer has sent."""
        self.modules = [self._wrap(model) for model in self.models]
        super().prepare()

    def _wrap(self, model: nn.Module) -> nn.Module:
        said, world = self.world.job.said, self.world
        group = self.group()
        if group is None:
            return model
        ignore_in_ddp(model, parameters_elsewhere(model))
        wrapped = DistributedDataParallel(
            model,
            process_group=group,
            bucket_cap_mb=said.bucket_cap_mib or _BUCKET_MIB,
            gradient_as_bucket_view=bool(said.gradient_as_bucket_view),
            init_sync=world.communicates,
            # Under context parallelism each rank has the rotary tables of its own tokens.
            broadcast_buffers=world.job.mesh.cp == 1,
        )
        if not world.communicates:
            wrapped.register_comm_hook(None, _nothing_to_wait_for)
            keep_buckets_as_built(wrapped)
        return wrapped

    def group(self) -> Any:
        """The process group over all data-parallel ranks; None for one rank."""
        mesh = self.world.sub_mesh("dp_replicate", "dp_shard", "cp")
        if mesh is None:
            return None
        return (mesh._flatten("dp") if mesh.ndim > 1 else mesh).get_group()

    def micro_batch(self, *, is_last: bool) -> contextlib.AbstractContextManager[object]:
        """Only the last micro-batch is reduced (`no_sync` before)."""
        stack = contextlib.ExitStack()
        for module in self.modules:
            if not is_last and isinstance(module, DistributedDataParallel):
                stack.enter_context(module.no_sync())
        return stack


class ZeroRedundancy(Replicated):
    """DDP with torch's ZeroRedundancyOptimizer: each rank keeps the states of its own parameters."""

    def prepare(self) -> None:
        """Wrap as DDP, then spread the optimizer over the same ranks."""
        super().prepare()
        group = self.group()
        if group is None:
            return
        kind, arguments = optimizer_class(self.world.job)
        self.optimizer = ZeroRedundancyOptimizer(
            self.parameters(), optimizer_class=kind, process_group=group, **arguments
        )

    def states(self) -> Iterable[tuple[nn.Parameter, torch.Tensor]]:
        """States of this rank's parameters."""
        optimizer = self.optimizer
        if not isinstance(optimizer, ZeroRedundancyOptimizer):
            return super().states()
        found = []
        for group in optimizer.optim.param_groups:
            for parameter in group["params"]:
                state = optimizer.optim.state.get(parameter, {})
                found += [(parameter, each) for each in state.values() if isinstance(each, torch.Tensor)]
        return found


def _nothing_to_wait_for(_state: object, bucket: torch.distributed.GradBucket) -> torch.futures.Future[Any]:
    """A comm hook whose result is there at once."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


# DDP compares annotations with types, and ours are text.
_nothing_to_wait_for.__annotations__.clear()
