"""What the forward pass of one rank leaves for its backward pass: the parallel dimensions put together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.layer import SavedBytes, attention_saved, inputs_kept, put_off_saved
from distdoctor.oom.formulas.logits import logits_bytes
from distdoctor.oom.formulas.states import parameter_bytes
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import Attention, Checkpointing, DataParallel
from distdoctor.oom.shape import ModelShape
from distdoctor.oom.strategies import (
    activation_checkpointing,
    context_parallel,
    expert_parallel,
    pipeline_parallel,
    tensor_parallel,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Amounts of one rank, by when they are there."""

    kept: tuple[Amount, ...] = ()
    """At the loss and when the backward pass begins."""
    loss: tuple[Amount, ...] = ()
    """At the loss only."""
    backward: tuple[Amount, ...] = ()
    """While a layer's backward runs."""
    before_gradients: bool = False
    """They are most before any gradient of an earlier micro-batch is there."""


def activations_of(local: LocalModel, job: Job) -> Activations:
    """What this rank keeps. Nothing is known of a model without a shape."""
    shape = job.shape
    if shape is None:
        return Activations()
    per_batch = _layers_bytes(shape, local, job)
    logits_of_batch = _waiting_logits_bytes(shape, local, job)
    whole_batch = per_batch + logits_of_batch
    before_gradients = pipeline_parallel.is_worst_before_gradients(local, job, batch_bytes=whole_batch)
    chunks = pipeline_parallel.chunks_in_flight(local, job, batch_bytes=whole_batch)
    share = chunks / job.virtual_stages
    kept = [
        Amount(
            category=Category.ACTIVATIONS,
            num_bytes=per_batch * share * _kept_on_gpu(job),
            how=_kept_words(local, job, share),
        )
    ]
    if local.has_output:
        # The norm's input is cut like the rest of the stream; the output's is gathered, as that of any split matrix.
        row = job.compute_bytes * shape.hidden_size * job.tokens
        head = row / tensor_parallel.hidden_divisor(job) + row
        kept.append(
            Amount(
                category=Category.ACTIVATIONS, num_bytes=head, how="input of the final norm and of the output"
            )
        )
    kept += pipeline_parallel.buffers(local, shape, job)
    kept += _put_off(shape, local, job)
    batches = pipeline_parallel.waiting_logits(job, before_gradients=before_gradients)
    kept += _waiting_logits(logits_of_batch, batches)
    held = _held_logits(shape, local, job)
    return Activations(
        kept=tuple(kept),
        loss=_loss(shape, job) + _chunked_gradients(local, job) if local.has_output else (),
        backward=(*_live_layer(shape, local, job), *context_parallel.buffers(shape, job), *held),
        before_gradients=before_gradients,
    )


def one_layer(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """What the mean layer of this rank keeps of one micro-batch."""
    if job.shape is None or not local.layers:
        return ()
    num_bytes = _layers_bytes(job.shape, local, job) * _kept_on_gpu(job) / len(local.layers)
    return (Amount(category=Category.ACTIVATIONS, num_bytes=num_bytes, how="one layer"),)


def _layers_bytes(shape: ModelShape, local: LocalModel, job: Job) -> float:
    """Bytes of one micro-batch through all layers of this rank."""
    kinds = Counter(
        (with_experts, activation_checkpointing.is_checkpointed(job, index))
        for index, with_experts in enumerate(local.expert_layers)
    )
    return sum(
        count * _layer_bytes(shape, job, with_experts=with_experts, is_checkpointed=checkpointed)
        for (with_experts, checkpointed), count in kinds.items()
    )


def _layer_bytes(shape: ModelShape, job: Job, *, with_experts: bool, is_checkpointed: bool) -> float:
    saved = activation_checkpointing.kept(
        shape, job, with_experts=with_experts, is_checkpointed=is_checkpointed
    )
    if not is_checkpointed or job.checkpointing is Checkpointing.NONE:
        total = job.tokens * _whole_per_token(saved, shape, job, with_experts=with_experts)
    else:
        total = job.tokens * tensor_parallel.bytes_per_token(saved, shape, job, gathers=0)
    if shape.moe is None or not with_experts:
        return total
    if activation_checkpointing.keeps_routed(job, is_checkpointed=is_checkpointed):
        total += expert_parallel.kept_bytes(shape, shape.moe, job)
    elif activation_checkpointing.keeps_exchanged(job, is_checkpointed=is_checkpointed):
        total += 2 * expert_parallel.routed_tokens(shape.moe, job) * shape.hidden_size * job.compute_bytes
    return total


def _whole_per_token(saved: SavedBytes, shape: ModelShape, job: Job, *, with_experts: bool) -> float:
    """Bytes of one token of a layer of which nothing is dropped."""
    is_autocast = job.residual_bytes > job.compute_bytes
    inputs = inputs_kept(shape, with_experts=with_experts, is_autocast=is_autocast)
    more = inputs - inputs_kept(shape, with_experts=with_experts, is_autocast=False)
    saved = replace(saved, whole=saved.whole + more * job.compute_bytes * shape.hidden_size)
    return tensor_parallel.bytes_per_token(saved, shape, job, gathers=inputs)


def _kept_on_gpu(job: Job) -> float:
    """Share of kept activations that stays on the GPU: with offload, about one layer of them, counted elsewhere."""
    return 0.0 if job.said.offload_activations else 1.0


def _live_layer(shape: ModelShape, local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """What was dropped and is computed again for the layer in hand, and the gradients that pass through it."""
    with_experts = any(local.expert_layers)
    moe = shape.moe if with_experts else None
    amounts = []
    whole = activation_checkpointing.whole_layer(shape, job, with_experts=with_experts)
    again = job.tokens * _whole_per_token(whole, shape, job, with_experts=with_experts)
    if moe is not None:
        again += expert_parallel.kept_bytes(shape, moe, job)
    if job.checkpointing is not Checkpointing.NONE:
        amounts.append(
            Amount(category=Category.ACTIVATIONS, num_bytes=again, how="one layer, computed again")
        )
    width = shape.ffn_size if moe is None else moe.shared_ffn_size
    passing = (3 if shape.is_gated else 2) * width / job.mesh.tp
    passing += 2 * shape.hidden_size / tensor_parallel.hidden_divisor(job)
    passing *= job.tokens * job.compute_bytes
    softmax = _softmax_bytes(shape, job, layer_bytes=again)
    amounts.append(
        Amount(
            category=Category.TEMPORARIES,
            num_bytes=max(passing, softmax),
            how="attention scores on their way through the softmax"
            if softmax > passing
            else "gradients of activations on their way through one layer",
        )
    )
    if moe is not None:
        amounts.append(
            Amount(
                category=Category.COMMUNICATION,
                num_bytes=expert_parallel.exchange_bytes(shape, moe, job),
                how="tokens on their way to experts and back, one layer",
            )
        )
    return tuple(amounts)


def _softmax_bytes(shape: ModelShape, job: Job, *, layer_bytes: float) -> float:
    """Beyond what the whole layer holds: scores in fp32 twice, into softmax or out of its backward pass, while the other
    half of the layer is not there yet, or any more. 0 where no scores are written to memory."""
    if job.attention is not Attention.UNFUSED:
        return 0.0
    half = attention_saved(shape, element=job.compute_bytes, residual=job.residual_bytes, unfused=True)
    attention = job.tokens * tensor_parallel.bytes_per_token(half, shape, job, gathers=1)
    scores = SavedBytes(split=0, whole=0, scores=8)
    return job.tokens * tensor_parallel.bytes_per_token(scores, shape, job, gathers=0) - (
        layer_bytes - attention
    )


def _put_off(shape: ModelShape, local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """What a schedule that puts the gradients of weights off keeps for them beside activations."""
    batches = pipeline_parallel.put_off_batches(local, job)
    if not batches:
        return ()
    waiting = put_off_saved(shape, element=job.compute_bytes)
    per_token = len(local.layers) * tensor_parallel.bytes_per_token(waiting, shape, job, gathers=0)
    if local.has_output:
        per_token += tensor_parallel.local_vocabulary(shape, job) * job.compute_bytes
    how = f"gradients of {batches} micro-batches whose weights wait"
    return (Amount(category=Category.TEMPORARIES, num_bytes=batches * job.tokens * per_token, how=how),)


def _waiting_logits_bytes(shape: ModelShape, local: LocalModel, job: Job) -> float:
    """Logits and log-probabilities of one micro-batch that waits for its backward pass."""
    if not local.has_output or job.fused_loss:
        return 0.0
    return job.tokens * tensor_parallel.local_vocabulary(shape, job) * (job.compute_bytes + 4)


def _waiting_logits(of_batch: float, batches: int) -> tuple[Amount, ...]:
    if not batches or not of_batch:
        return ()
    how = f"logits and log-probabilities of {batches} micro-batches that wait"
    return (Amount(category=Category.LOGITS, num_bytes=batches * of_batch, how=how),)


def _frees_logits(job: Job) -> bool:
    """A stage of a pipeline holds what it gave, whatever the loop does."""
    return bool(job.said.frees_logits) and job.mesh.pp == 1


def _held_logits(shape: ModelShape, local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """Whoever holds the logits while the backward pass runs, a variable of the loop or a pipeline's stage, keeps them."""
    if not local.has_output or job.fused_loss or _frees_logits(job):
        return ()
    num_bytes = job.tokens * tensor_parallel.local_vocabulary(shape, job) * job.compute_bytes
    how = "logits that a variable holds through the backward pass"
    return (Amount(category=Category.LOGITS, num_bytes=num_bytes, how=how),)


def _loss(shape: ModelShape, job: Job) -> tuple[Amount, ...]:
    vocabulary = tensor_parallel.local_vocabulary(shape, job)
    num_bytes = logits_bytes(
        job.tokens,
        vocabulary,
        compute_bytes=job.compute_bytes,
        is_parallel=job.loss_parallel,
        frees_logits=_frees_logits(job),
        is_chunked=job.fused_loss,
    )
    each = f"{job.tokens:,.0f} tokens x {vocabulary:,.0f} words"
    how = (
        f"{each}, in chunks" if job.fused_loss else f"{each} x {num_bytes / (job.tokens * vocabulary):.0f} B"
    )
    return (Amount(category=Category.LOGITS, num_bytes=num_bytes, how=how),)


def _chunked_gradients(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """A loss in chunks computes the output's gradient as it goes: the sum so far, and that of the chunk in hand."""
    if not job.fused_loss or job.said.adapter is not None:
        return ()
    # FSDP2 hands out 16-bit weights; autocast casts those of others and gives gradients of their own type.
    element = job.compute_bytes if job.strategy is DataParallel.FSDP else parameter_bytes(job.precision)
    num_bytes = 2.0 * local.output.numel * element
    how = "gradients of the output's weight: of the chunks so far, and of the one in hand"
    return (Amount(category=Category.LOGITS, num_bytes=num_bytes, how=how),)


def _kept_words(local: LocalModel, job: Job, share: float) -> str:
    layers = len(local.layers)
    batches = f" x {share:g} micro-batches in flight" if job.mesh.pp > 1 else ""
    mode = "" if job.checkpointing is Checkpointing.NONE else f", {job.checkpointing.value} checkpointing"
    if job.said.offload_activations:
        return "kept in host memory"
    return f"{layers} layers x {job.tokens:,.0f} tokens{batches}{mode}"
