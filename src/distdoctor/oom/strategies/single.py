"""One GPU, or a model that is only cut by tp, pp or cp: every state of its slice is whole on every rank."""

from __future__ import annotations

import math

from distdoctor.oom.adapters import adapter_share
from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.job import DEEPSPEED, MEGATRON, Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import Checkpointing, DataParallel, Precision
from distdoctor.oom.strategies.base import WHOLE, States, Strategy, amount, per_parameter, state_amounts
from distdoctor.oom.strategies.pipeline_parallel import chunks_in_flight, put_off_batches, waiting_logits
from distdoctor.oom.strategies.tensor_parallel import local_vocabulary


def states(local: LocalModel, job: Job) -> States:
    """All states, whole."""
    per = per_parameter(job)

    def whole(category: Category, bytes_each: float) -> tuple[Amount, ...]:
        return state_amounts(category, bytes_each, local, WHOLE)

    return States(
        resident=whole(Category.PARAMETERS, per.parameter) + whole(Category.OPTIMIZER, per.master),
        from_first_step=whole(Category.OPTIMIZER, per.moments),
        gradients=whole(Category.GRADIENTS, per.gradient) + _unreduced(local, job, per.gradient),
        at_loss=autocast_copies(local, job, in_backward=False),
        goes_with_backward=autocast_copies(local, job, in_backward=True),
        at_step=whole(Category.TEMPORARIES, per.step_temporary)
        + whole(Category.TEMPORARIES, per.cast_gradient),
    )


def _unreduced(local: LocalModel, job: Job, gradient: float) -> tuple[Amount, ...]:
    """Nobody adds the embedding's gradient up before the optimizer does."""
    if job.strategy in DEEPSPEED or job.strategy in MEGATRON or adapter_share(job) is not None:
        return ()
    elements = whole_embedding_gradient(local, job)
    if not elements:
        return ()
    what = "elements of the embedding's gradient for the rest of the vocabulary"
    return (amount(Category.GRADIENTS, gradient, elements, what=what),)


def autocast_copies(local: LocalModel, job: Job, *, in_backward: bool) -> tuple[Amount, ...]:
    """16-bit copies of fp32 weights: autocast makes one for each matrix, and the backward pass needs it again
    and frees it (torch 2.13, eight layers: 1.76 B a parameter at the loss, 1.01 at half of the backward pass, none when
    the last gradient is there). Those of a checkpointed layer are dropped when autocast ends, before the loss's
    backward pass, and made again for one layer at a time.
    Frozen weights under adapters are kept in 16 bit or less; only the adapters are cast."""
    if job.precision is not Precision.MIXED:
        return ()
    share = adapter_share(job)
    if share is not None:
        return (amount(Category.TEMPORARIES, 2, local.numel * share, what="adapters cast by autocast"),)
    # Autocast's cache ends with the forward pass of a micro-batch, and each keeps its own copies until its backward pass.
    chunks = chunks_in_flight(local, job, batch_bytes=math.inf)
    output = _output_weights(local, job) * (1 + waiting_logits(job) + put_off_batches(local, job))
    layers = sum(unit.numel for unit in local.layers)
    if job.checkpointing is Checkpointing.NONE or not local.knows_units:
        weights = layers * chunks / job.virtual_stages + output
    elif in_backward:
        weights = local.largest_layer.numel + output
    else:
        # All are there when forward ends; the loss's backward pass needs 4 bytes a logit more instead.
        logits = job.tokens * local_vocabulary(job.shape, job) if local.has_output and job.shape else 0.0
        weights = max(output, layers + output - 2 * logits)
    return (amount(Category.TEMPORARIES, 2, weights, what="weights cast by autocast"),)


def _output_weights(local: LocalModel, job: Job) -> float:
    """Elements of the output's matrix; a tied one is counted with the embedding."""
    is_tied = job.shape is not None and job.shape.ties_embeddings and local.has_embedding and local.has_output
    return local.embedding.numel if is_tied else local.output.numel


def whole_embedding_gradient(local: LocalModel, job: Job) -> float:
    """Elements of the embedding's gradient that a rank has beyond its own rows of the vocabulary: DTensor's
    embedding_dense_backward gives a gradient of the whole vocabulary on every rank of tp, to be added up
    (torch/distributed/tensor/_ops/_embedding_ops.py, placements Partial), whoever adds it."""
    return local.embedding.dense * (job.mesh.tp - 1) if local.has_embedding else 0.0


STRATEGY = Strategy(kind=DataParallel.NONE, title="one copy, nothing sharded", page="single", states=states)
