"""Bytes that one rank sends in one optimizer step, by kind of group. Padding and small messages are left out.

An all-gather or reduce-scatter of B bytes among n ranks sends (n-1)/n B from each, an all-reduce twice that
(nccl-tests, PERFORMANCE.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.estimate import prepared
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload, Precision
from distdoctor.oom.strategies.base import data_shares, per_parameter

# arXiv 1909.08053, section 3: two all-reduces in the forward pass of a layer, two in the backward pass. Sequence
# parallelism replaces each by an all-gather and a reduce-scatter of the same bytes (arXiv 2205.05198, section 4.2.2).
_TP_PASSES = 4
_TP_AGAIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes of the rank that sends most."""

    shards: float = 0.0
    """Gathering parameters and reducing gradients over the ranks that share states."""
    replicas: float = 0.0
    """Reducing gradients over copies."""
    tp: float = 0.0
    cp: float = 0.0
    pp: float = 0.0
    ep: float = 0.0
    host: float = 0.0
    """Over PCIe, both ways, where states are offloaded."""

    @property
    def network(self) -> float:
        """All between GPUs."""
        return self.shards + self.replicas + self.tp + self.cp + self.pp + self.ep


def traffic_of(job: Job) -> Traffic:
    """The traffic of one optimizer step."""
    job, slices = prepared(job)
    local = max(slices, key=lambda each: each.numel)
    shards, replicas = _states(local, job)
    return Traffic(
        shards=shards,
        replicas=replicas,
        tp=_tensor(local, job),
        cp=_context(local, job),
        pp=_pipeline(job),
        ep=_experts(local, job),
        host=_host(local, job),
    )


def _states(local: LocalModel, job: Job) -> tuple[float, float]:
    """(over shards, over replicas). Strategies that keep whole gradients reduce once a step; FSDP2 and ZeRO-2 and 3
    reduce after each micro-batch."""
    mesh, steps = job.mesh, job.num_micro_batches
    per = per_parameter(job)
    gradient = per.gradient or 0.0
    kind = job.strategy
    if kind is DataParallel.NONE:
        return 0.0, 0.0
    if kind in (DataParallel.DDP, DataParallel.MEGATRON):
        ranks = mesh.dp * mesh.cp
        return 0.0, 2 * _of(ranks) * gradient * local.numel
    if kind in (DataParallel.ZERO1, DataParallel.MEGATRON_DISTRIBUTED):
        return _of(mesh.dp * mesh.cp) * (gradient + per.parameter) * local.numel, 0.0
    if kind is DataParallel.ZERO2:
        return _of(mesh.dp) * (steps * gradient + per.parameter) * local.numel, 0.0
    share = _of(mesh.shard_ranks) * local.dense + _of(job.expert_shard_ranks) * local.expert
    gathers = 2 * steps
    reduces = steps
    if kind is DataParallel.FSDP and not job.reshard_after_forward:
        # Under torch's pipeline schedules parameters stay gathered, and gradients are reduced at the end.
        gathers, reduces = (1, 1) if mesh.pp > 1 else (steps, steps)
    element = (
        per.parameter if kind is DataParallel.ZERO3 or job.said.adapter is not None else job.compute_bytes
    )
    reduced = gradient if kind is DataParallel.ZERO3 or job.said.adapter is not None else _reduce_bytes(job)
    shards = share * (gathers * element + reduces * reduced)
    sharded = data_shares(job).of(local)
    return shards, 2 * _of(mesh.dp_replicate) * reduces * reduced * sharded


def _tensor(local: LocalModel, job: Job) -> float:
    shape, tp = job.shape, job.mesh.tp
    if shape is None or tp == 1:
        return 0.0
    passes = _TP_PASSES + (_TP_AGAIN if job.checkpointing is Checkpointing.FULL else 0)
    one = 2 * _of(tp) * job.tokens * shape.hidden_size * job.compute_bytes
    return job.num_micro_batches * len(local.layers) * passes * one


def _context(local: LocalModel, job: Job) -> float:
    """Keys and values go round once forward; backward they go again, and their gradients with them
    (arXiv 2310.01889, section 3)."""
    shape, cp = job.shape, job.mesh.cp
    if shape is None or cp == 1:
        return 0.0
    width = 2 * shape.num_kv_heads * shape.head_size
    if shape.mla is not None:
        width = shape.num_heads * (
            shape.mla.nope_head_size + shape.mla.rope_head_size + shape.mla.value_head_size
        )
    passes = 3 + (1 if job.checkpointing is Checkpointing.FULL else 0)
    one = (cp - 1) * job.tokens * width / job.mesh.tp * job.compute_bytes
    return job.num_micro_batches * len(local.layers) * passes * one


def _pipeline(job: Job) -> float:
    shape = job.shape
    if shape is None or job.mesh.pp == 1:
        return 0.0
    cut = job.mesh.tp if job.sequence_parallel else 1
    return (
        job.num_micro_batches
        * 2
        * job.virtual_stages
        * job.tokens
        * shape.hidden_size
        * job.compute_bytes
        / cut
    )


def _experts(local: LocalModel, job: Job) -> float:
    """To experts and back, forward and backward."""
    shape, ep = job.shape, job.mesh.ep
    if shape is None or shape.moe is None or ep == 1:
        return 0.0
    cut = job.mesh.tp if job.sequence_parallel else 1
    one = _of(ep) * job.tokens / cut * shape.moe.experts_per_token * shape.hidden_size * job.compute_bytes
    again = 2 if job.checkpointing is Checkpointing.FULL else 0
    return job.num_micro_batches * sum(local.expert_layers) * (4 + again) * one


def _host(local: LocalModel, job: Job) -> float:
    """Gradients to the host and parameters back, and with offloaded parameters these for each gathering."""
    if job.offload_optimizer is Offload.NONE and job.offload_params is Offload.NONE:
        return 0.0
    per = per_parameter(job)
    sharded = data_shares(job).of(local)
    gathers = 2 * job.num_micro_batches if job.offload_params is not Offload.NONE else 1
    return sharded * (job.num_micro_batches * per.gradient + gathers * per.parameter)


def _reduce_bytes(job: Job) -> int:
    """As the strategy's formula has it: fp32 unless everything is 16 bit."""
    return 2 if job.precision is Precision.PURE16 else 4


def _of(ranks: float) -> float:
    return (ranks - 1) / ranks if ranks > 1 else 0.0
