"""TorchTitan's pipeline of one rank: its own split and schedule, with stages that know beforehand what they take and
give, for ranks that hear nothing from their neighbours could not infer it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor import DTensor, Shard

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.job import Job
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.settings import Precision
from distdoctor.oom.simulation.child.titan.interface import Titan
from distdoctor.oom.training.base import CannotRunError, NoObserver, Observer
from distdoctor.oom.training.pipeline_parallel import stages_of_rank
from distdoctor.torch_private.pipelining import pipeline_buffers

_SPLIT = "_generate_llm_fqn_per_model_part"


def split_of(titan: Titan, job: Job) -> list[list[str]]:
    """Names of the modules of each virtual stage, as TorchTitan splits the model by itself: the embedding and the
    output count as a layer each. Raises CannotRunError."""
    split = getattr(titan.pipelines, _SPLIT, None)
    if split is None:
        raise CannotRunError(f"torchtitan {titan.version} has no {_SPLIT}, which says how it splits a model")
    try:
        names: list[list[str]] = split(job.mesh.pp * job.virtual_stages, job.known_shape.num_layers, 1, 1)
    except ValueError as error:
        raise CannotRunError(f"TorchTitan cannot split it: {' '.join(str(error).split())[:200]}") from None
    return names


def layers_of_rank(
    split: Sequence[Sequence[str]], job: Job, pipeline_rank: int
) -> tuple[tuple[int, ...], ...]:
    """Numbers of the layers of each virtual stage of a rank."""
    return tuple(
        tuple(int(name.removeprefix("layers.")) for name in split[stage] if name.startswith("layers."))
        for stage in stages_of_rank(job, pipeline_rank)
    )


def with_layers(
    split: Sequence[Sequence[str]], job: Job, pipeline_rank: int, chunks: Sequence[Sequence[int]]
) -> list[list[str]]:
    """The same split, this rank's stages with only these layers."""
    stages = [list(each) for each in split]
    for stage, layers in zip(stages_of_rank(job, pipeline_rank), chunks, strict=True):
        kept = {f"layers.{layer}" for layer in layers}
        stages[stage] = [name for name in stages[stage] if not name.startswith("layers.") or name in kept]
    return stages


class Watch:
    """Tells who observes the step under way which micro-batch a stage begins."""

    def __init__(self) -> None:
        self.observer: Observer = NoObserver()
        self.step = 0
        self.micro_batch: int | None = None

    def at(self, phase: Phase, micro_batch: int | None) -> None:
        """A stage begins `phase`."""
        self.micro_batch = micro_batch
        self.observer.at(phase, step=self.step, micro_batch=micro_batch)


@contextlib.contextmanager
def watched_stages(titan: Titan, job: Job, dims: Any, watch: Watch) -> Iterator[None]:
    """Around TorchTitan's pipelining function: the stages that it makes tell what they do. `dims`: its ParallelDims."""
    original = titan.pipelines.PipelineStage

    class Stage(_WatchedStage):
        def __init__(
            self, module: Any, index: int, num_stages: int, device: torch.device, **more: Any
        ) -> None:
            given = _given(job, dims, is_first=index == 0, is_last=index == num_stages - 1)
            super().__init__(module, index, num_stages, device, **given, **more)
            self.watch = watch

    titan.pipelines.PipelineStage = Stage
    try:
        yield
    finally:
        titan.pipelines.PipelineStage = original


class _WatchedStage(PipelineStage):
    watch: Watch
    _names_buffers = True

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        if self._names_buffers:
            self._names_buffers = False
            self.watch.observer.label(pipeline_buffers(self), Category.COMMUNICATION)
        self.watch.at(Phase.FORWARD, fwd_chunk_id)
        return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        self.watch.at(Phase.BACKWARD, bwd_chunk_id)
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        to_send = self.bwd_cache.get(bwd_chunk_id, ())
        self.watch.observer.label((each for each in to_send if each is not None), Category.COMMUNICATION)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        self.watch.at(Phase.BACKWARD, bwd_chunk_id)
        super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)


def _given(job: Job, dims: Any, *, is_first: bool, is_last: bool) -> dict[str, Any]:
    """What a stage takes and gives for a micro-batch, and the gradients of both, on the meta device."""
    dtype = torch.float32 if job.precision is Precision.FP32 else torch.bfloat16
    hidden = (job.micro_batch, job.seq_len, job.known_shape.hidden_size)
    ids = torch.empty(hidden[:2], dtype=torch.long, device="meta")
    between = _states(hidden, dtype, dims, job, dim=1)
    out = between
    if is_last and job.fused_loss:
        out = torch.empty(hidden, dtype=dtype, device="meta", requires_grad=True)
    elif is_last:
        out = _states((*hidden[:2], job.known_shape.vocab_size), dtype, dims, job, dim=2)
    given: dict[str, Any] = {"input_args": (ids if is_first else between,), "output_args": (out,)}
    if job.mesh.tp > 1:
        given["input_grads"] = (None if is_first else _states(hidden, dtype, dims, job, dim=1),)
        given["output_grads"] = (None if is_last else _states(hidden, dtype, dims, job, dim=1),)
    return given


def _states(shape: tuple[int, ...], dtype: torch.dtype, dims: Any, job: Job, *, dim: int) -> torch.Tensor:
    """A tensor, or with tensor parallelism a DTensor that is cut along `dim`."""
    if job.mesh.tp == 1:
        return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)
    mesh = dims.get_mesh("tp")
    local = list(shape)
    local[dim] //= job.mesh.tp
    part = torch.empty(local, dtype=dtype, device="meta")
    whole: torch.Tensor = DTensor.from_local(part, mesh, [Shard(dim)], run_check=False)
    return whole.requires_grad_()
