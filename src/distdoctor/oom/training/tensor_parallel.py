"""Tensor parallelism by DTensor: linear layers cut by columns and rows; with sequence parallelism norms see a part of
the tokens, with loss parallelism every rank a part of the vocabulary. The plan is TorchTitan's for Llama."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from distdoctor.oom.job import Job
from distdoctor.oom.training.model import Transformer


def apply(model: Transformer, mesh: DeviceMesh, job: Job) -> None:
    """Cut `model` over `mesh` in place."""
    tokens = Shard(1) if job.sequence_parallel else Replicate()
    ends: dict[str, ParallelStyle] = {}
    if model.tok_embeddings is not None:
        ends["tok_embeddings"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=tokens)
    if model.norm is not None and job.sequence_parallel:
        ends["norm"] = SequenceParallel()
    if model.output is not None:
        ends["output"] = ColwiseParallel(
            input_layouts=tokens,
            output_layouts=Shard(-1) if job.loss_parallel else Replicate(),
            use_local_output=not job.loss_parallel,
        )
    parallelize_module(model, mesh, ends)
    for block in model.layers.values():
        parallelize_module(block, mesh, _layer_plan(block, job))


def _layer_plan(block: nn.Module, job: Job) -> dict[str, ParallelStyle]:
    """One layer; experts have a plan of their own."""
    tokens = Shard(1) if job.sequence_parallel else Replicate()
    plan: dict[str, ParallelStyle] = {
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=tokens),
    }
    dense = hasattr(block.feed_forward, "w1") and isinstance(block.feed_forward.w1, nn.Linear)
    if dense:
        plan["feed_forward.w1"] = ColwiseParallel()
        plan["feed_forward.w2"] = RowwiseParallel(output_layouts=tokens)
        if hasattr(block.feed_forward, "w3"):
            plan["feed_forward.w3"] = ColwiseParallel()
    if job.sequence_parallel:
        plan["attention_norm"] = SequenceParallel()
        plan["ffn_norm"] = SequenceParallel()
        plan["attention"] = PrepareModuleInput(
            input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
        )
        if dense:
            plan["feed_forward"] = PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            )
    return plan
