"""From a resolved job to this rank's training program: model, cuts, checkpointing, data parallelism, loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.formulas.pipeline import layers_of_stages
from distdoctor.oom.job import DEEPSPEED, Job
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.settings import DataParallel, Offload, Precision
from distdoctor.oom.training import (
    checkpointing,
    context_parallel,
    ddp,
    expert_parallel,
    latent_attention,
    model,
    pipeline_parallel,
    tensor_parallel,
)
from distdoctor.oom.training.base import CannotRunError, Observer, Program, World
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.ddp import Replicated, ZeroRedundancy
from distdoctor.oom.training.fsdp2 import FullyShard
from distdoctor.oom.training.loop import TrainingLoop
from distdoctor.oom.training.model import ModelOptions, Transformer
from distdoctor.oom.training.zero import partitioned_by, zero

_STRATEGIES: dict[DataParallel, Callable[[list[Transformer], World], DataParallelism]] = {
    DataParallel.NONE: DataParallelism,
    DataParallel.DDP: Replicated,
    DataParallel.ZERO_REDUNDANCY: ZeroRedundancy,
    DataParallel.ZERO1: zero,
    DataParallel.ZERO2: zero,
    DataParallel.ZERO3: zero,
    DataParallel.FSDP: FullyShard,
}


def why_not(job: Job) -> str | None:
    """Why no program of torch can be built for this job; None: one can."""
    if job.shape is None:
        return "only the number of parameters is known, not the model's shape"
    if job.strategy not in _STRATEGIES:
        return f"{job.strategy.value} is no strategy of torch's own"
    if job.said.adapter is not None:
        return "adapters on a frozen model are estimated only"
    if job.said.fp8:
        return "8-bit floating point is estimated only"
    if job.grads_in_fp32 and job.precision is not Precision.MIXED:
        return "fp32 gradients beside 16-bit parameters are Megatron's; they are estimated only"
    if job.offload_params is Offload.NVME or job.offload_optimizer is Offload.NVME:
        return "offloading to NVMe is DeepSpeed's; it is estimated only"
    if job.said.offload_activations:
        return "offloaded activations are estimated only"
    if job.said.compiled:
        return "compiled models are estimated only"
    return (
        model.why_not(job.shape)
        or latent_attention.why_not(job)
        or tensor_parallel.why_not(job)
        or ddp.why_not(job)
        or expert_parallel.why_not(job)
        or pipeline_parallel.why_not(job)
        or context_parallel.why_not(job)
    )


def made_by(world: World) -> str:
    """Whose code partitions states, where it is not torch's; empty where it is."""
    return partitioned_by(world) if world.job.strategy in DEEPSPEED else ""


def build_program(world: World, observer: Observer) -> Program:
    """This rank's program, its parameters on the device and labelled. Raises CannotRunError."""
    job = world.job
    if (reason := why_not(job)) is not None:
        raise CannotRunError(reason)
    offloads = job.strategy is DataParallel.FSDP and Offload.CPU in (
        job.offload_params,
        job.offload_optimizer,
    )
    if offloads and world.device.type == "cpu":
        raise CannotRunError("offloading to the host needs a GPU to offload from; it is estimated only")
    observer.at(Phase.INITIALISATION, step=0)
    with _dtype(torch.bfloat16 if job.precision in (Precision.MASTER, Precision.PURE16) else torch.float32):
        with torch.device("meta" if job.said.meta_init is not False else world.device):
            models = _stages(world)
        data = _STRATEGIES[job.strategy](models, world)
        data.observer = observer
        expert_parallel.apply(models, world)
        tp = world.sub_mesh("tp")
        for stage in models:
            if tp is not None:
                tensor_parallel.apply(stage, tp, job)
            checkpointing.apply(stage, job)
        data.shard()
        for stage in models:
            _materialise(stage, world)
    for number, stage in enumerate(models):
        observer.name_modules(stage, first_layer=sum(len(each.layers) for each in models[:number]))
    observer.label(data.parameters(), Category.PARAMETERS)
    observer.label((buffer for stage in models for buffer in stage.buffers()), Category.PARAMETERS)
    data.prepare()
    data.label_states()
    if job.mesh.pp > 1:
        return pipeline_parallel.PipelineProgram(data, world)
    return TrainingLoop(data, world)


def _stages(world: World) -> list[Transformer]:
    """The parts of the model that this rank holds, in the order of the model."""
    job = world.job
    options = ModelOptions(
        seq_len=job.seq_len,
        kernels=world.kernels,
        attention=job.attention,
        expert_imbalance=job.expert_imbalance,
        balanced_routing=world.is_fake or not world.communicates,
    )
    num_stages = job.mesh.pp * job.virtual_stages
    stages = pipeline_parallel.stages_of_rank(job, world.coordinate("pp"))
    all_chunks = layers_of_stages(job.known_shape.num_layers, num_stages)
    chunks = world.chunks or tuple(tuple(all_chunks[stage]) for stage in stages)
    return [
        Transformer(
            job.known_shape,
            options,
            layers=layers,
            has_embedding=stage == 0,
            has_output=stage == num_stages - 1,
        )
        for stage, layers in zip(stages, chunks, strict=True)
    ]


def _materialise(model: Transformer, world: World) -> None:
    """Give meta parameters storages, and values where somebody may look at them."""
    job = world.job
    device = torch.device("cpu") if job.offload_params is Offload.CPU else world.device
    if any(each.is_meta for each in (*model.parameters(), *model.buffers())):
        if job.strategy is DataParallel.FSDP:
            # FSDP2 hears of it and takes the new parameters for its own.
            model.to_empty(device=device)
            model.tie()
        else:
            _give_storages(model, device)
    if not world.is_fake:
        model.init_weights()


def _give_storages(model: nn.Module, device: torch.device) -> None:
    """What `to_empty` does, without swapping tensors, which fails for fake ones. Tied parameters stay one."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) not in made:
                empty = torch.empty_like(parameter, device=device)
                made[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
            module.register_parameter(name, made[id(parameter)])
        for name, buffer in list(module.named_buffers(recurse=False)):
            module.register_buffer(name, torch.empty_like(buffer, device=device), persistent=False)


@contextlib.contextmanager
def _dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
