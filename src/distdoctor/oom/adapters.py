"""Low-rank adapters: how few parameters are trained, and in how many bits the frozen ones are kept."""

from __future__ import annotations

from distdoctor.oom.job import Job
from distdoctor.oom.shape import ModelShape

# NF4 keeps one 8-bit scale for 64 weights and a second level above it (arXiv 2305.14314, section 3: 0.127 bits).
_BITS_OF_FOUR_BIT_WEIGHT = 4.127


def adapter_parameters(shape: ModelShape, rank: int, *, all_linear: bool) -> int:
    """Trainable parameters of adapters with this rank: rank x (inputs + outputs) for each adapted matrix
    (arXiv 2106.09685)."""
    hidden = shape.hidden_size
    queries, keys = shape.num_heads * shape.head_size, shape.num_kv_heads * shape.head_size
    sizes = [hidden + queries, hidden + keys]
    if all_linear:
        sizes += [hidden + keys, queries + hidden]
        sizes += [hidden + shape.ffn_size] * (3 if shape.is_gated else 2)
    return rank * sum(sizes) * shape.num_layers


def adapter_share(job: Job) -> float | None:
    """Trainable parameters over all; None: everything is trained."""
    adapter = job.said.adapter
    if adapter is None or job.shape is None:
        return None
    return adapter_parameters(job.shape, adapter.rank, all_linear=adapter.all_linear) / job.num_params


def frozen_parameter_bytes(job: Job) -> float:
    """Bytes of one frozen parameter; embeddings, output and norms stay in 16 bit when linear layers are quantised."""
    adapter = job.said.adapter
    if adapter is None or adapter.base_bits >= 16 or job.shape is None:
        return 2.0
    bits = _BITS_OF_FOUR_BIT_WEIGHT if adapter.base_bits == 4 else float(adapter.base_bits)
    whole = job.shape.vocab_size * job.shape.hidden_size * (1 if job.shape.ties_embeddings else 2)
    share = min(1.0, whole / job.num_params)
    return share * 2 + (1 - share) * bits / 8
