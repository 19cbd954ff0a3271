"""Pipeline parallelism by torch.distributed.pipelining: this rank's stages, and the schedule that drives them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.formulas.pipeline import rank_of_stage
from distdoctor.oom.job import Job
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.settings import Checkpointing, DataParallel, Schedule
from distdoctor.oom.training.base import CannotRunError, NoObserver, Observer, Program, World
from distdoctor.oom.training.chunked_loss import loss_of_hidden
from distdoctor.oom.training.context_parallel import around_step, local_seq_len
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.loop import make_tokens
from distdoctor.oom.training.loss import around_loss, cross_entropy
from distdoctor.torch_private.pipelining import pipeline_buffers, skip_pipeline_vote

# torch has no ZB-H1 by that name. Its interleaved zero bubble with one stage on each rank is that schedule: weight
# gradients fill the bubble, and no more micro-batches are held than in 1F1B (arXiv 2401.10241, figure 3 top).
_SCHEDULES = {
    Schedule.GPIPE: "ScheduleGPipe",
    Schedule.ONE_F_ONE_B: "Schedule1F1B",
    Schedule.INTERLEAVED: "ScheduleInterleaved1F1B",
    Schedule.ZERO_BUBBLE: "ScheduleInterleavedZeroBubble",
    Schedule.ZBV: "ScheduleZBVZeroBubble",
}
_ONE_STAGE = (Schedule.GPIPE, Schedule.ONE_F_ONE_B)
_SPLIT_BACKWARD = (Schedule.ZERO_BUBBLE, Schedule.ZBV)
_HOOKED = (DataParallel.DDP, DataParallel.ZERO_REDUNDANCY)
_KNOWN_TO_STAGES = (DataParallel.NONE, *_HOOKED, DataParallel.FSDP)


def why_not(job: Job) -> str | None:
    """Why torch's pipelines cannot run this job; None: they can."""
    if job.mesh.pp == 1:
        return None
    if job.strategy not in _KNOWN_TO_STAGES:
        return f"torch's pipeline stages do not know {job.strategy.value}; with pp it is estimated only"
    if job.schedule not in _SPLIT_BACKWARD:
        return None
    if job.checkpointing is Checkpointing.SELECTIVE:
        return (
            "torch's selective checkpointing allows one backward pass, zero-bubble schedules make two of it"
        )
    if job.fused_loss:
        return "a loss in chunks gives its gradients once, zero-bubble schedules ask for them twice"
    if job.strategy in _HOOKED and job.mesh.dp * job.mesh.cp > 1:
        # https://github.com/pytorch/pytorch/issues/144530
        return "torch's zero-bubble schedules go around the hooks in which DDP reduces gradients (pytorch#144530)"
    return None


def stages_of_rank(job: Job, pipeline_rank: int) -> list[int]:
    """The virtual stages on one pipeline rank, in the order of the model."""
    total = job.mesh.pp * job.virtual_stages
    return [
        stage for stage in range(total) if rank_of_stage(stage, job.mesh.pp, job.schedule) == pipeline_rank
    ]


class PipelineProgram(Program):
    """All micro-batches through this rank's stages, then an optimizer step."""

    def __init__(self, data_parallelism: DataParallelism, world: World) -> None:
        """Raises CannotRunError when this torch has no such schedule, or none for that many micro-batches."""
        self._data = data_parallelism
        self._world = world
        self._watch = _Watch()
        numbers = stages_of_rank(world.job, world.coordinate("pp"))
        self._stages = [
            _ObservedStage(self._watch, self._data, index, number, world)
            for index, number in enumerate(numbers)
        ]
        self._has_first = any(stage.is_first for stage in self._stages)
        self._has_last = any(stage.is_last for stage in self._stages)
        self._loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = cross_entropy
        last = self._data.models[-1]
        if world.job.fused_loss and last.output is not None:
            last.keeps_hidden = True
            self._loss_of = loss_of_hidden(last.output)
        self._schedule = _make_schedule(world.job, self._stages, self._loss)
        if not world.communicates:
            skip_pipeline_vote(self._schedule)

    def step(self, number: int, observer: Observer) -> float | None:
        """One optimizer step; a loss (the mean of all micro-batches) where the last stage is."""
        job, watch = self._world.job, self._watch
        watch.observer, watch.step = observer, number
        observer.at(Phase.DATA, step=number)
        sequences = {
            name: make_tokens(self._world, num_micro_batches=job.num_micro_batches)
            for name, is_here in (("tokens", self._has_first), ("labels", self._has_last))
            if is_here
        }
        observer.label(sequences.values(), Category.INPUTS)
        losses: list[torch.Tensor] = []
        with around_step(self._world, self._data.models, list(sequences.values())), around_loss(job):
            watch.at(Phase.FORWARD, 0)
            self._run(sequences, losses)
        sequences.clear()
        self._data.label_gradients()
        observer.at(Phase.OPTIMIZER_STEP, step=number)
        value = None
        if losses and not self._world.is_fake:
            value = sum(float(loss.detach()) for loss in losses) / len(losses)
        try:
            self._data.step()
        finally:
            # A step that ran out of memory has made some of them.
            self._data.label_states()
        return value

    def _run(self, sequences: dict[str, torch.Tensor], losses: list[torch.Tensor]) -> None:
        """Tokens go in at the first stage, labels at the last one. Logits are not kept for the caller where torch can
        do without, as TorchTitan asks it to."""
        arguments: dict[str, Any] = {}
        if "return_outputs" in inspect.signature(self._schedule.step).parameters:
            arguments["return_outputs"] = False
        if self._has_last:
            arguments |= {"target": sequences["labels"], "losses": losses}
        self._schedule.step(*([sequences["tokens"]] if self._has_first else []), **arguments)

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self._watch.at(Phase.LOSS, self._watch.micro_batch)
        with self._data.computing():
            return self._loss_of(logits, labels)

    def parameters(self) -> Iterable[nn.Parameter]:
        """What the optimizer steps: those of all stages of this rank."""
        return self._data.parameters()

    def close(self) -> None:
        """Give up what was patched or opened."""
        self._data.close()


class _Watch:
    """Tells who observes the step under way which micro-batch a stage begins."""

    def __init__(self) -> None:
        self.observer: Observer = NoObserver()
        self.step = 0
        self.micro_batch: int | None = None

    def at(self, phase: Phase, micro_batch: int | None) -> None:
        self.micro_batch = micro_batch
        self.observer.at(phase, step=self.step, micro_batch=micro_batch)


class _ObservedStage(PipelineStage):
    """A stage that tells what it does. What it takes and gives is known beforehand: ranks that hear nothing from their
    neighbours could not infer it."""

    def __init__(self, watch: _Watch, data: DataParallelism, index: int, number: int, world: World) -> None:
        job = world.job
        num_stages = job.mesh.pp * job.virtual_stages
        group = world.mesh["pp"].get_group()
        hidden = _hidden_states(world)
        ids = torch.empty(job.micro_batch, local_seq_len(job), dtype=torch.long, device="meta")
        vocabulary = job.known_shape.vocab_size
        logits = torch.empty(*ids.shape, vocabulary, dtype=hidden.dtype, device="meta", requires_grad=True)
        super().__init__(
            data.modules[index],
            number,
            num_stages,
            world.device,
            input_args=(ids if number == 0 else hidden,),
            output_args=(logits if number == num_stages - 1 else hidden,),
            group=group,
        )
        self._watch = watch
        self._data = data
        self._names_buffers = True

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Forward of one micro-batch."""
        if self._names_buffers:
            self._names_buffers = False
            self._watch.observer.label(pipeline_buffers(self), Category.COMMUNICATION)
        self._watch.at(Phase.FORWARD, fwd_chunk_id)
        with self._data.computing():
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        """Backward of one micro-batch, or its part for the stage's input."""
        self._watch.at(Phase.BACKWARD, bwd_chunk_id)
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        to_send = self.bwd_cache.get(bwd_chunk_id, ())
        self._watch.observer.label((each for each in to_send if each is not None), Category.COMMUNICATION)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        """The part of a micro-batch's backward that a zero-bubble schedule put off: the gradients of weights."""
        self._watch.at(Phase.BACKWARD, bwd_chunk_id)
        super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)


def _hidden_states(world: World) -> torch.Tensor:
    """What stages send one another for a micro-batch, on the meta device: (micro_batch, this rank's tokens, hidden)."""
    job = world.job
    tokens = local_seq_len(job)
    if job.sequence_parallel:
        # Shards of DTensors: all of equal size but the last ones.
        size = -(-tokens // job.mesh.tp)
        tokens = min(size, max(0, tokens - size * world.coordinate("tp")))
    dtype = torch.float32 if job.residual_bytes == 4 else torch.bfloat16
    shape = (job.micro_batch, tokens, job.known_shape.hidden_size)
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)


def _make_schedule(job: Job, stages: list[_ObservedStage], loss: Any) -> Any:
    """torch's schedule of this job. Raises CannotRunError."""
    kind = getattr(schedules, _SCHEDULES[job.schedule], None)
    if kind is None:
        raise CannotRunError(f"torch {torch.__version__} has no {job.schedule.value} schedule")
    what: Any = stages[0] if job.schedule in _ONE_STAGE else stages
    try:
        return kind(what, n_microbatches=job.num_micro_batches, loss_fn=loss)
    except ValueError as error:
        raise CannotRunError(
            f"the {job.schedule.value} schedule refuses: {' '.join(str(error).split())}"
        ) from error
