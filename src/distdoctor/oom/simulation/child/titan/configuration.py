"""A job as TorchTitan's own configuration: `Trainer.Config`, with everything that decides memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdoctor.oom.job import Job
from distdoctor.oom.settings import Checkpointing, OptimizerLoop, Precision, Schedule
from distdoctor.oom.simulation.child.titan.interface import Titan
from distdoctor.oom.training.base import CannotRunError

BACKEND = "partial_dtensor"
"""DTensors for tensor parallelism, FSDP2 for the rest. `spmd_types`, its default, needs an FSDP2 that reads its
annotations, which torch 2.13's does not."""

_SCHEDULES = {
    Schedule.GPIPE: "GPipe",
    Schedule.ONE_F_ONE_B: "1F1B",
    Schedule.INTERLEAVED: "Interleaved1F1B",
    Schedule.ZERO_BUBBLE: "InterleavedZeroBubble",
    Schedule.ZBV: "ZBVZeroBubble",
}
_LOOPS = {
    OptimizerLoop.FUSED: "fused",
    OptimizerLoop.FOREACH: "foreach",
    OptimizerLoop.FOR_LOOP: "for-loop",
}


def configuration(titan: Titan, job: Job, stages: Sequence[Sequence[str]] | None = None) -> Any:
    """`stages`: names of the modules of each virtual pipeline stage, where TorchTitan shall not choose them itself.
    Any: a class of TorchTitan's. Raises CannotRunError where this version takes no such settings."""
    try:
        return _configuration(titan, job, stages)
    except (TypeError, ValueError, AttributeError) as error:
        text = " ".join(str(error).split())[:200]
        raise CannotRunError(f"torchtitan {titan.version} refuses these settings: {text}") from None


def _configuration(titan: Titan, job: Job, stages: Sequence[Sequence[str]] | None) -> Any:
    mesh = job.mesh
    in_pipeline = job.num_micro_batches if mesh.pp > 1 else 1
    loss = titan.cross_entropy.Config(global_vocab_size=job.known_shape.vocab_size)
    return titan.trainer.Config(
        model_spec=titan.spec,
        training=titan.training(
            local_batch_size=job.micro_batch * in_pipeline,
            seq_len=job.seq_len,
            dtype="bfloat16" if job.precision is Precision.PURE16 else "float32",
            mixed_precision_param="float32" if job.precision is Precision.FP32 else "bfloat16",
            disable_cuda_graphs=True,
        ),
        parallelism=titan.parallelism(
            data_parallel_replicate_degree=mesh.dp_replicate,
            data_parallel_shard_degree=mesh.dp_shard,
            tensor_parallel_degree=mesh.tp,
            pipeline_parallel_degree=mesh.pp,
            enable_sequence_parallel=job.sequence_parallel or mesh.tp == 1,
            spmd_backend=BACKEND,
            fsdp_reshard_after_forward=_reshard(job),
            pipeline_parallel_schedule=_SCHEDULES[job.schedule],
            pipeline_parallel_microbatch_size=job.micro_batch,
            module_fqns_per_model_part=[list(each) for each in stages] if stages is not None else None,
        ),
        activation_checkpoint=_checkpointing(titan, job.checkpointing),
        optimizer=_optimizer(titan, job.optimizer_loop),
        loss=titan.chunked_loss.Config(loss_fn=loss) if job.fused_loss else loss,
    )


def _reshard(job: Job) -> str:
    """`always` is more than the default: it frees the output layer's parameters too."""
    if job.reshard_after_forward is (job.mesh.pp == 1):
        return "default"
    return "always" if job.reshard_after_forward else "never"


def _checkpointing(titan: Titan, kind: Checkpointing) -> Any:
    if kind is Checkpointing.NONE:
        return None
    return titan.selective.Config() if kind is Checkpointing.SELECTIVE else titan.full.Config()


def _optimizer(titan: Titan, loop: OptimizerLoop) -> Any:
    config = titan.adamw()
    config.implementation = _LOOPS[loop]
    return config
