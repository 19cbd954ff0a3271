"""What a command line says of a training job, as it was typed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The options as they were typed."""

    model: str | None = None
    params: str | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    ffn: int | None = None
    vocab: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    expert_ffn: int | None = None
    gated: bool | None = None
    tied: bool | None = None
    on: str | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    mesh: str | None = None
    strategy: str | None = None
    precision: str | None = None
    optimizer: str | None = None
    optimizer_loop: str | None = None
    micro_batch: int | None = None
    micro_batches: int | None = None
    global_batch: int | None = None
    seq_len: str | None = None
    checkpointing: str | None = None
    attention: str | None = None
    sequence_parallel: bool | None = None
    loss_parallel: bool | None = None
    fused_loss: bool | None = None
    schedule: str | None = None
    virtual_stages: int | None = None
    keep_gathered: bool | None = None
    bucket_view: bool | None = None
    offload: str | None = None
    init: str | None = None
    expert_imbalance: float | None = None
    lora_rank: int | None = None
    base_bits: int | None = None
