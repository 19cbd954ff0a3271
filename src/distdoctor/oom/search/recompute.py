"""What a step computes beside forward and backward: activations that were dropped, by formula, as a share."""

from __future__ import annotations

from distdoctor.oom.job import MEGATRON, Job
from distdoctor.oom.parameters import count_active_parameters
from distdoctor.oom.settings import Attention, Checkpointing

# A backward pass costs two forward passes (arXiv 2104.04473, appendix; 2205.05198, section 5).
FORWARD_SHARE = 1 / 3
# TorchTitan's selective policy keeps attention's output and every second matrix product: the other half is computed
# again. Megatron-LM's computes attention's scores again and no matrix product of the layers.
HALF = 0.5


def recompute_share(job: Job) -> float:
    """Extra computation over a step without checkpointing: 1/3 where every layer's forward pass runs again
    (arXiv 2205.05198 measured 30 to 40 %, and a few percent for selective recomputation of attention)."""
    shape = job.shape
    if shape is None or job.checkpointing is Checkpointing.NONE:
        return 0.0
    layers, scores, head = _forward_flops(job)
    total = layers + scores + head
    if job.checkpointing is Checkpointing.FULL:
        return FORWARD_SHARE * _checkpointed(job) * (layers + scores) / total
    if job.strategy in MEGATRON:
        return FORWARD_SHARE * scores / total
    unkept = scores if job.attention is Attention.UNFUSED else 0.0
    return FORWARD_SHARE * _checkpointed(job) * (HALF * layers + unkept) / total


def _checkpointed(job: Job) -> float:
    """Share of layers that are."""
    shape, limit = job.shape, job.said.checkpoint_layers
    if shape is None or limit is None:
        return 1.0
    per_stage = shape.num_layers / job.mesh.pp
    return min(1.0, limit / per_stage)


def _forward_flops(job: Job) -> tuple[float, float, float]:
    """For one token: matrix products of the layers, attention's scores and values, the output's product."""
    shape = job.shape
    if shape is None:
        return 0.0, 0.0, 0.0
    head = 2.0 * shape.vocab_size * shape.hidden_size
    embedding = shape.vocab_size * shape.hidden_size * (1 if shape.ties_embeddings else 2)
    layers = 2.0 * max(0, count_active_parameters(shape) - embedding)
    # Two products over half of the sequence: a token sees those before it.
    scores = shape.num_layers * 2.0 * job.seq_len * shape.num_heads * shape.head_size
    return layers, scores, head
