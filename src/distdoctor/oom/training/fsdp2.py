"""FSDP2 and HSDP: `fully_shard` on each layer, the embedding, the output, and the rest."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import Shard

from distdoctor.oom.job import Job
from distdoctor.oom.settings import Offload, Precision
from distdoctor.oom.training.base import World
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.expert_parallel import experts_of
from distdoctor.oom.training.experts import GroupedExperts
from distdoctor.oom.training.model import Transformer
from distdoctor.torch_private.distributed import set_gradient_divisor


class FullyShard(DataParallelism):
    """FSDP2; with dp_replicate above 1, HSDP."""

    def shard(self) -> None:
        """Cut the parameters while they are on the meta device."""
        for model in self.models:
            shard_model(model, self.world)

    def computing(self) -> contextlib.AbstractContextManager[object]:
        """FSDP2 casts by its own policy."""
        return contextlib.nullcontext()

    def reduce_experts(self) -> None:
        """Experts have been averaged with everything else."""

    def micro_batch(self, *, is_last: bool) -> contextlib.AbstractContextManager[object]:
        """Gradients are reduced in every micro-batch, as TorchTitan does; only the last one waits for them."""
        for model in self.models:
            if isinstance(model, FSDPModule):
                model.set_is_last_backward(is_last)
        return contextlib.nullcontext()


def shard_model(model: Transformer, world: World) -> None:
    """Shard `model` in place, as TorchTitan groups it: layers one by one, then embedding, then norm and output
    together (not resharded after forward, for backward needs them at once), then what is left."""
    job = world.job
    arguments = sharding_arguments(world)
    reshards = job.reshard_after_forward
    for block in model.layers.values():
        for experts in experts_of(block):
            _shard_experts(experts, job, arguments)
        fully_shard(block, reshard_after_forward=reshards, **arguments)
    is_tied = (
        model.output is not None
        and model.tok_embeddings is not None
        and model.output.weight is model.tok_embeddings.weight
    )
    if not is_tied:
        if model.tok_embeddings is not None:
            fully_shard(model.tok_embeddings, reshard_after_forward=reshards, **arguments)
        if model.output is not None and job.fused_loss:
            # The loss calls it once for all chunks, so that it stays gathered while they run.
            fully_shard(model.output, reshard_after_forward=False, **arguments)
        elif model.norm is not None and model.output is not None:
            fully_shard([model.norm, model.output], reshard_after_forward=False, **arguments)
    fully_shard(model, reshard_after_forward=reshards, **arguments)


def sharding_arguments(world: World) -> dict[str, Any]:
    """The mesh and the policies that every call of `fully_shard` of this job is given."""
    job = world.job
    names = ("dp_replicate", "dp_shard_cp") if job.mesh.dp_replicate > 1 else ("dp_shard_cp",)
    arguments: dict[str, Any] = {"mesh": _mesh(world, names), "offload_policy": _offload(job.offload_params)}
    if job.precision is Precision.MIXED:
        arguments["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return arguments


def _shard_experts(experts: GroupedExperts, job: Job, arguments: dict[str, Any]) -> None:
    """With expert parallelism experts are shared by the ranks that have the same ones, and by no others. Their gradients
    are divided by the number of all data-parallel ranks, for tokens of all of them came."""
    if experts.mesh is None:
        return
    names = ("dp_replicate", "dp_shard_mod_ep") if job.mesh.dp_replicate > 1 else ("dp_shard_mod_ep",)
    num_shards = experts.mesh["dp_shard_mod_ep"].size()

    def placement(parameter: nn.Parameter) -> Shard | None:
        # More ranks than experts: each expert is cut (torchtitan/models/llama4/infra/parallelize.py).
        cuts_experts = num_shards > parameter.shape[0] and parameter.shape[1] % num_shards == 0
        return Shard(1) if cuts_experts else None

    fully_shard(
        experts,
        reshard_after_forward=job.reshard_after_forward,
        shard_placement_fn=placement,
        **{**arguments, "mesh": experts.mesh[names if len(names) > 1 else names[0]]},
    )
    set_gradient_divisor(
        experts,
        float(job.mesh.dp * job.mesh.cp),
        # Gloo only adds. A rank that shares with nobody is not asked to: torch 2.13 would divide twice.
        adds_only=experts.mesh.device_type == "cpu" and num_shards > 1,
    )


def _mesh(world: World, names: tuple[str, ...]) -> Any:
    """Shards lie over dp_shard x cp."""
    mesh = world.mesh
    shard: Any = mesh["dp_shard"]
    if "cp" in (mesh.mesh_dim_names or ()):
        shard = mesh["dp_shard", "cp"]._flatten("dp_shard_cp")
    if len(names) == 1:
        return shard
    return mesh["dp_replicate", shard.mesh_dim_names[0]]


def _offload(offload: Offload) -> OffloadPolicy:
    return OffloadPolicy() if offload is Offload.NONE else CPUOffloadPolicy(pin_memory=False)
