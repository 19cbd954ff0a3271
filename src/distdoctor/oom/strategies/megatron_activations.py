"""What one rank of a Megatron-LM job keeps for its backward pass: formulas of tensors put together with the job."""

from __future__ import annotations

from distdoctor.oom.activations import Activations
from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.layer import SavedBytes
from distdoctor.oom.formulas.megatron.attention import ELEMENT
from distdoctor.oom.formulas.megatron.loss import loss_bytes
from distdoctor.oom.formulas.megatron.pipeline import chunk_counts
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.megatron_details import MegatronDetails
from distdoctor.oom.shape import ModelShape
from distdoctor.oom.strategies.megatron_kernels import Backend, backend_of
from distdoctor.oom.strategies.megatron_layers import (
    details_of,
    layer_bytes,
    layer_input_bytes,
    passing_gradient_bytes,
    recomputed_modules,
    saved_bytes,
    whole_layer_bytes,
)


def activations_of(local: LocalModel, job: Job) -> Activations:
    """What this rank keeps at the loss and in the backward pass. Nothing is known of a model without a shape."""
    shape = job.shape
    if shape is None:
        return Activations()
    details = details_of(job)
    counts = chunk_counts(
        pp=job.mesh.pp,
        rank=local.stage,
        virtual=job.virtual_stages,
        num_micro_batches=job.num_micro_batches,
        extra=int(details.overlaps_expert_comm and job.virtual_stages > 1),
    )
    kept = [
        Amount(
            category=Category.ACTIVATIONS,
            num_bytes=_layers(shape, local, job, details, counts),
            how=_words(local, job, counts, details),
        )
    ]
    kept += _ends(shape, local, job, counts)
    return Activations(
        kept=tuple(kept),
        loss=_loss(shape, job) if local.has_output else (),
        backward=_backward(shape, local, job, details),
    )


def left_over_amounts(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """What stays when a step is over: each chunk keeps the input that it received last (`set_input_tensor` in
    transformer/transformer_block.py), and that tensor its gradient (`retain_grad` in pipeline_parallel/schedules.py).
    While activations are there, these inputs are among them."""
    if job.shape is None or job.mesh.pp == 1:
        return ()
    num_inputs = len(local.virtual_stages) - local.has_embedding
    return (
        Amount(
            category=Category.COMMUNICATION,
            num_bytes=2 * num_inputs * layer_input_bytes(job.shape, job),
            how="the last input of each chunk, and its gradient",
        ),
    )


def _layers(
    shape: ModelShape, local: LocalModel, job: Job, details: MegatronDetails, counts: tuple[int, ...]
) -> float:
    """Bytes of all chunks in flight."""
    total, index = 0.0, 0
    for chunk, count in zip(local.virtual_stages, counts, strict=True):
        for position in range(len(chunk)):
            total += count * layer_bytes(shape, job, details, local.expert_layers[index], position)
            index += 1
    if local.has_output and shape.num_mtp_layers:
        extra = whole_layer_bytes(shape, job, with_experts=shape.moe is not None)
        # Norms of embedding and hidden state, their concatenation, the final norm (`multi_token_prediction.py`).
        joined = saved_bytes(SavedBytes(split=0, whole=ELEMENT * shape.hidden_size * 6), shape, job)
        total += shape.num_mtp_layers * counts[-1] * (extra + joined)
    return total


def _ends(shape: ModelShape, local: LocalModel, job: Job, counts: tuple[int, ...]) -> list[Amount]:
    """The embedding's dropout mask, the final norm, and tensors that a pipeline received ahead."""
    amounts = []
    if local.has_embedding and job.said.hidden_dropout:
        mask = counts[0] * saved_bytes(SavedBytes(split=0, whole=shape.hidden_size), shape, job)
        amounts.append(
            Amount(category=Category.ACTIVATIONS, num_bytes=mask, how="dropout mask behind the embedding")
        )
    if local.has_output:
        head = saved_bytes(SavedBytes(split=0, whole=2 * ELEMENT * shape.hidden_size), shape, job)
        amounts.append(
            Amount(
                category=Category.ACTIVATIONS, num_bytes=head, how="input of the final norm and of the output"
            )
        )
    if job.mesh.pp > 1:
        ahead = 2 * layer_input_bytes(shape, job)
        amounts.append(
            Amount(
                category=Category.COMMUNICATION,
                num_bytes=ahead,
                how="the next micro-batch and the next gradient, received ahead",
            )
        )
    return amounts


def _loss(shape: ModelShape, job: Job) -> tuple[Amount, ...]:
    vocabulary = shape.vocab_size / job.mesh.tp
    num_bytes = loss_bytes(job.tokens, vocabulary, num_predictions=shape.num_mtp_layers)
    how = f"{job.tokens:,.0f} tokens x {vocabulary:,.0f} words x {6 + 4 * shape.num_mtp_layers} B"
    return (Amount(category=Category.LOGITS, num_bytes=num_bytes, how=how),)


def _backward(shape: ModelShape, local: LocalModel, job: Job, details: MegatronDetails) -> tuple[Amount, ...]:
    """While one layer goes back: what is computed again, gradients on their way, a weight's 16-bit gradient."""
    with_experts = any(local.expert_layers)
    whole = whole_layer_bytes(shape, job, with_experts=with_experts)
    amounts = []
    if details.recompute_granularity == "full":
        at_once = 1
        if details.recompute_method != "block":
            longest = max((len(chunk) for chunk in local.virtual_stages), default=1)
            at_once = min(max(1, details.recompute_num_layers or 1), max(1, longest))
        amounts.append(
            Amount(
                category=Category.ACTIVATIONS,
                num_bytes=at_once * whole - layer_input_bytes(shape, job),
                how=f"{at_once} layer{'s' * (at_once > 1)} computed again",
            )
        )
    elif details.recompute_granularity == "selective":
        kept = whole_layer_bytes(
            shape, job, with_experts=with_experts, recomputed=recomputed_modules(details)
        )
        amounts.append(
            Amount(
                category=Category.ACTIVATIONS,
                num_bytes=whole - kept,
                how=f"one layer's {', '.join(sorted(recomputed_modules(details)))} computed again",
            )
        )
    if backend_of(job) is Backend.UNFUSED and details.recompute_granularity is not None:
        scores = SavedBytes(split=0, whole=0, scores=2 * ELEMENT)
        amounts.append(
            Amount(
                category=Category.TEMPORARIES,
                num_bytes=saved_bytes(scores, shape, job),
                how="gradients of attention scores",
            )
        )
    amounts.append(
        Amount(
            category=Category.TEMPORARIES,
            num_bytes=passing_gradient_bytes(shape, job, with_experts=with_experts),
            how="gradient of an activation's input",
        )
    )
    if not details.fuses_gradient_accumulation:
        amounts.append(
            Amount(
                category=Category.TEMPORARIES,
                num_bytes=ELEMENT * max(local.largest_layer.numel / 4, local.output.dense),
                how="the 16-bit gradient of one weight before it is added to the buffer",
            )
        )
    return tuple(amounts)


def _words(local: LocalModel, job: Job, counts: tuple[int, ...], details: MegatronDetails) -> str:
    layers = len(local.layers)
    flight = f", {sum(counts)} chunks of {len(counts)} in flight" if job.mesh.pp > 1 else ""
    mode = f", {details.recompute_granularity} recomputation" if details.recompute_granularity else ""
    return f"{layers} layers x {job.tokens:,.0f} tokens{flight}{mode}"
