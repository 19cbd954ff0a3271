"""What would make an estimate smaller: only what its own numbers support, with the bytes that each would save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from distdoctor.errors import UsageError
from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.estimate import Estimate
from distdoctor.oom.job import Job, resolve
from distdoctor.oom.settings import Checkpointing, DataParallel, OptimizerLoop, Settings

# A change that saves less than this share of the peak is no answer. Our own choice.
MIN_SHARE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One change, in words and as an estimate."""

    text: str
    cost: str
    estimate: Estimate
    saves_bytes: float


def knobs_of(job: Job, now: Estimate) -> tuple[Knob, ...]:
    """Single changes that lower the worst rank's peak, the largest saving first."""
    peak = now.worst.peak.num_bytes
    found = []
    for text, cost, settings in _changes(job):
        try:
            changed = estimate(resolve(settings))
        except UsageError:
            continue
        saved = peak - changed.worst.peak.num_bytes
        if saved >= MIN_SHARE * peak:
            found.append(Knob(text=text, cost=cost, estimate=changed, saves_bytes=saved))
    return tuple(sorted(found, key=lambda knob: -knob.saves_bytes))


def _changes(job: Job) -> Iterator[tuple[str, str, Settings]]:
    said = job.said
    if job.shape is not None:
        if job.checkpointing is not Checkpointing.FULL:
            yield (
                "checkpoint all activations",
                "about a third more computation",
                replace(said, checkpointing=Checkpointing.FULL),
            )
        if not job.fused_loss:
            yield (
                "a chunked or fused cross entropy",
                "no cost in speed",
                replace(said, fused_loss=True),
            )
        if job.mesh.tp > 1 and not job.loss_parallel:
            yield "loss parallelism over tp", "no cost in speed", replace(said, loss_parallel=True)
        if job.micro_batch > 1:
            half = job.micro_batch // 2
            yield (
                f"micro-batch {half} instead of {job.micro_batch}, with twice the accumulation",
                "smaller matrix products",
                replace(
                    said, micro_batch=half, accumulation_steps=job.num_micro_batches * 2, global_batch=None
                ),
            )
    if job.strategy is DataParallel.DDP:
        if not said.gradient_as_bucket_view:
            yield (
                "DDP with gradient_as_bucket_view=True",
                "no cost in speed",
                replace(said, gradient_as_bucket_view=True),
            )
        yield (
            "FSDP2 instead of DDP",
            "parameters are gathered in each pass",
            replace(said, strategy=DataParallel.FSDP, dp_shard=job.mesh.dp, dp_replicate=1),
        )
    if job.strategy in (DataParallel.ZERO1, DataParallel.ZERO2):
        yield (
            "ZeRO-3 instead",
            "parameters are gathered in each pass",
            replace(said, strategy=DataParallel.ZERO3),
        )
    if job.strategy is DataParallel.FSDP and not job.reshard_after_forward:
        yield (
            "reshard_after_forward=True",
            "parameters are gathered twice a step",
            replace(said, reshard_after_forward=True),
        )
    if job.optimizer_loop is OptimizerLoop.FOREACH:
        yield (
            "the fused optimizer (fused=True)",
            "no cost in speed",
            replace(said, optimizer_loop=OptimizerLoop.FUSED),
        )
    if job.strategy in (DataParallel.FSDP, DataParallel.ZERO3) and job.mesh.num_ranks <= 1 << 19:
        doubled = replace(said, world_size=2 * job.mesh.num_ranks, dp_shard=None, global_batch=None)
        yield f"{2 * job.mesh.num_ranks} GPUs instead of {job.mesh.num_ranks}", "twice the GPUs", doubled
