"""Changes of a setting or a line of code: training stays what it is."""

from __future__ import annotations

from collections.abc import Iterator

from distdoctor.oom.job import MEGATRON, Job
from distdoctor.oom.search.change import Axis, Change
from distdoctor.oom.settings import Attention, Checkpointing, DataParallel, OptimizerLoop

# Micro-batches that are tried below today's: its divisors, for then the global batch stays; the largest few.
MAX_MICRO_BATCHES = 6


def checkpointing(job: Job) -> Iterator[Change]:
    """Selective, then full."""
    if job.shape is None or (job.checkpointing is Checkpointing.FULL and job.said.checkpoint_layers is None):
        return
    if job.checkpointing is Checkpointing.NONE:
        yield Change(
            axis=Axis.CHECKPOINTING,
            strength=1,
            price=1,
            text="selective activation checkpointing",
            short="selective checkpointing",
            said={"checkpointing": Checkpointing.SELECTIVE, "checkpoint_layers": None},
        )
    yield Change(
        axis=Axis.CHECKPOINTING,
        strength=2,
        price=2,
        text="checkpoint all activations",
        short="full checkpointing",
        said={"checkpointing": Checkpointing.FULL, "checkpoint_layers": None},
    )


def attention(job: Job) -> Iterator[Change]:
    """Scores that are never written."""
    if job.shape is not None and job.attention is Attention.UNFUSED:
        yield Change(
            axis=Axis.ATTENTION,
            text="flash attention (SDPA, FlashAttention)",
            short="flash attention",
            remark="faster, too",
            said={"attention": Attention.FLASH},
        )


def loss(job: Job) -> Iterator[Change]:
    """Logits in pieces."""
    if job.shape is not None and not job.fused_loss:
        yield Change(
            axis=Axis.LOSS,
            text="a chunked or fused cross entropy (Liger, cut cross entropy)",
            short="chunked loss",
            said={"fused_loss": True},
        )


def loss_parallel(job: Job) -> Iterator[Change]:
    """Logits over tp."""
    if job.shape is not None and job.mesh.tp > 1 and not job.loss_parallel:
        yield Change(
            axis=Axis.LOSS_PARALLEL,
            text="loss parallelism over tp",
            short="loss parallelism",
            said={"loss_parallel": True},
        )


def sequence_parallel(job: Job) -> Iterator[Change]:
    """Tokens between matrix products over tp."""
    if job.shape is not None and job.mesh.tp > 1 and not job.sequence_parallel:
        yield Change(
            axis=Axis.SEQUENCE_PARALLEL,
            text="sequence parallelism over tp",
            short="sequence parallelism",
            said={"sequence_parallel": True},
        )


def micro_batch(job: Job) -> Iterator[Change]:
    """Fewer sequences at once, more often."""
    now = job.micro_batch
    # A batch of millions has no divisors that anybody looks for one by one.
    fewer = [size for size in range(min(now // 2, 4096), 0, -1) if now % size == 0]
    for strength, size in enumerate(_spread(fewer), 1):
        yield Change(
            axis=Axis.MICRO_BATCH,
            strength=strength,
            price=2,
            text=f"micro-batch {size} instead of {now}, with more accumulation",
            short=f"micro-batch {size}",
            remark="smaller matrix products",
            said={"micro_batch": size},
        )


def _spread(sizes: list[int]) -> list[int]:
    """The largest few, and always the smallest."""
    return sizes if len(sizes) <= MAX_MICRO_BATCHES else [*sizes[: MAX_MICRO_BATCHES - 1], sizes[-1]]


def bucket_view(job: Job) -> Iterator[Change]:
    """DDP without a second copy of gradients."""
    if job.strategy is DataParallel.DDP and not job.said.gradient_as_bucket_view:
        yield Change(
            axis=Axis.BUCKET_VIEW,
            text="DDP with gradient_as_bucket_view=True",
            short="gradient_as_bucket_view",
            said={"gradient_as_bucket_view": True},
        )


def reshard(job: Job) -> Iterator[Change]:
    """Parameters freed between forward and backward."""
    if job.strategy is DataParallel.FSDP and not job.reshard_after_forward:
        yield Change(
            axis=Axis.RESHARD,
            price=1,
            text="reshard_after_forward=True",
            short="reshard_after_forward",
            said={"reshard_after_forward": True},
        )


def optimizer_loop(job: Job) -> Iterator[Change]:
    """No temporaries as large as what is stepped."""
    if job.optimizer_loop is OptimizerLoop.FOREACH and job.strategy not in MEGATRON:
        yield Change(
            axis=Axis.OPTIMIZER_LOOP,
            text="the fused optimizer (fused=True)",
            short="fused optimizer",
            said={"optimizer_loop": OptimizerLoop.FUSED},
        )
