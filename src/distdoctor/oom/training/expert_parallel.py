"""Expert parallelism: experts are spread over ranks that the data-, context- and tensor-parallel groups lend.

As TorchTitan lays it out, the group of one set of all experts lies innermost in dp_shard x cp x tp; what is left of
those ranks (dp_shard_mod_ep) holds the same experts and shares their states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from distdoctor.oom.job import Job
from distdoctor.oom.settings import DataParallel
from distdoctor.oom.training.base import World
from distdoctor.oom.training.experts import GroupedExperts
from distdoctor.oom.training.model import Transformer

_REPLICATED = (DataParallel.DDP,)


def why_not(job: Job) -> str | None:
    """Why experts of this job cannot be spread over ranks by torch alone; None: they can."""
    if job.mesh.etp > 1:
        return "tensor parallelism inside experts (etp) is estimated only"
    if job.mesh.ep == 1:
        return None
    if job.mesh.tp > 1 and not job.sequence_parallel:
        # Megatron-LM refuses it, too (megatron/training/arguments.py).
        return "expert parallelism over ranks of tp needs sequence parallelism: without it they send the same tokens"
    if job.strategy is DataParallel.ZERO_REDUNDANCY:
        return (
            "ZeroRedundancyOptimizer expects the same parameters on all ranks; ep gives each its own experts"
        )
    return None


def apply(models: Sequence[Transformer], world: World) -> None:
    """Each rank keeps its part of the experts of `models`, in place. Nothing happens without ep."""
    if world.job.mesh.ep == 1:
        return
    mesh = expert_mesh(world.job, world.device.type)
    rank = mesh.get_local_rank("ep")
    for model in models:
        for experts in experts_of(model):
            count = experts.w1.shape[0] // world.job.mesh.ep
            experts.keep(rank * count, count)
            experts.mesh = mesh


def expert_mesh(job: Job, device_type: str) -> DeviceMesh:
    """All ranks as pp, dp_replicate, dp_shard_mod_ep, ep. Collective over all ranks."""
    mesh = job.mesh
    # Plain replicas lend ranks as shards do: they are called dp_replicate, but nothing else is left of them.
    lends_replicas = job.strategy in _REPLICATED
    replicas = 1 if lends_replicas else mesh.dp_replicate
    shards = (mesh.dp_replicate if lends_replicas else 1) * mesh.dp_shard * mesh.cp * mesh.tp // mesh.ep
    ranks = iter(range(mesh.num_ranks))
    layout = [
        [[[next(ranks) for _ in range(mesh.ep)] for _ in range(shards)] for _ in range(replicas)]
        for _ in range(mesh.pp)
    ]
    return DeviceMesh(device_type, layout, mesh_dim_names=("pp", "dp_replicate", "dp_shard_mod_ep", "ep"))


def experts_of(module: nn.Module) -> list[GroupedExperts]:
    """The routed experts inside `module`, layer by layer."""
    return [each for each in module.modules() if isinstance(each, GroupedExperts)]


def parameters_elsewhere(module: nn.Module) -> list[str]:
    """Names of parameters that other ranks of the data-parallel group do not have: experts, with ep."""
    return [
        f"{name}.{inner}"
        for name, experts in module.named_modules()
        if isinstance(experts, GroupedExperts) and experts.mesh is not None
        for inner, _ in experts.named_parameters()
    ]


def average_gradients(models: Iterable[nn.Module], world: World) -> None:
    """Where nobody else does: gradients of experts are added up over ranks with the same experts, and divided by the
    number of data- and context-parallel ranks, as those of all other parameters are. Experts saw the tokens of
    all of them. In place; collective over dp_replicate and dp_shard_mod_ep."""
    mesh = world.job.mesh
    for model in models:
        for experts in experts_of(model):
            if experts.mesh is None:
                continue
            for parameter in experts.parameters():
                if parameter.grad is None:
                    continue
                for name in ("dp_replicate", "dp_shard_mod_ep"):
                    if world.communicates and experts.mesh[name].size() > 1:
                        dist.all_reduce(parameter.grad, group=experts.mesh[name].get_group())
                with torch.no_grad():
                    parameter.grad.div_(mesh.dp * mesh.cp)
