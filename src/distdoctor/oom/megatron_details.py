"""What only Megatron-LM has a word for, and what decides memory there. Defaults are those of its arguments.

Source: Megatron-LM `megatron/training/arguments.py` and `megatron/core/transformer/transformer_config.py`
(megatron-core 0.16.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Activation(str, Enum):
    """The function inside the MLP."""

    GELU = "gelu"
    SWIGLU = "swiglu"
    SQUARED_RELU = "squared-relu"


class Dispatcher(str, Enum):
    """How tokens travel to their experts."""

    ALLGATHER = "allgather"
    ALLTOALL = "alltoall"
    FLEX = "flex"


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronDetails:
    """Settings of Megatron-LM beside those that every framework has."""

    activation: Activation = Activation.GELU
    attention_backend: str = "auto"
    """`auto`, `flash`, `fused`, `unfused`, `local`."""
    fuses_gradient_accumulation: bool = True
    """Weight gradients are added to the fp32 buffer by the matrix product; otherwise each is a 16-bit tensor first."""
    fuses_cross_entropy: bool = False
    cross_entropy_impl: str = "native"
    accumulates_in_fp32: bool = True
    overlaps_grad_reduce: bool = False
    overlaps_param_gather: bool = False
    optimizer_instances: int = 1
    """Groups of data-parallel ranks that each hold all shards of the distributed optimizer."""
    precision_aware: bool = False
    main_gradient_bytes: int = 4
    main_parameter_bytes: int = 4
    moment_bytes: tuple[int, int] = (4, 4)
    fsdp_strategy: str = "no_shard"
    """`--data-parallel-sharding-strategy` of Megatron-FSDP."""
    recompute_granularity: str | None = None
    recompute_modules: tuple[str, ...] = ("core_attn",)
    recompute_method: str | None = None
    recompute_num_layers: int | None = None
    dispatcher: Dispatcher = Dispatcher.ALLGATHER
    has_grouped_gemm: bool = False
    fuses_permutation: bool = False
    overlaps_expert_comm: bool = False
    router_in_fp32: bool = False
    overlaps_shared_expert: bool = False
    uses_transformer_engine: bool = True
    creates_attention_mask: bool = True
    is_deterministic: bool = False
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    counts_embedding_in_split: bool = False
    """The embedding is counted as a layer when layers are split over stages."""
    counts_loss_in_split: bool = False
    layout: tuple[str, ...] = ()
    """Letters of each stage of `--pipeline-model-parallel-layout`; empty: layers are spread evenly."""
    not_covered: tuple[str, ...] = ()
    """Why memory of this configuration is not computed."""
