"""What a command line or a launch configuration says about a job. Everything may be unsaid.

One vocabulary for all sources: options of ours, DeepSpeed, accelerate, TorchTitan, Megatron and the rest fill the
same fields, and `oom/job.py` resolves them, fills in defaults and says which ones it assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from distdoctor.oom.megatron_details import MegatronDetails
from distdoctor.oom.shape import Model


class DataParallel(str, Enum):
    """How the copies of the model that see different data share its states."""

    NONE = "none"
    DDP = "ddp"
    ZERO_REDUNDANCY = "zero-redundancy"
    """DDP with torch's ZeroRedundancyOptimizer: ZeRO-1 without DeepSpeed."""
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP = "fsdp2"
    MEGATRON = "megatron"
    """Megatron's DistributedDataParallel: contiguous buffers, states on every rank."""
    MEGATRON_DISTRIBUTED = "megatron-distopt"
    """The same with the distributed optimizer."""
    MEGATRON_FSDP = "megatron-fsdp"


class Precision(str, Enum):
    """In which types parameters, gradients and states are kept (bytes per parameter with Adam)."""

    FP32 = "fp32"
    """4 + 4 + 8, computed in fp32."""
    MIXED = "mixed"
    """4 + 4 + 8, computed in 16 bit: autocast, or FSDP2's MixedPrecisionPolicy."""
    MASTER = "master"
    """2 + 2 + 12: 16-bit parameters, an fp32 master copy in the optimizer: DeepSpeed, Megatron."""
    PURE16 = "pure16"
    """2 + 2 + 4: everything in 16 bit."""


class Checkpointing(str, Enum):
    """Which activations are computed again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Schedule(str, Enum):
    """Order of forward and backward passes in a pipeline."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZERO_BUBBLE = "zero-bubble"
    """ZB-H1: the memory of 1F1B."""
    ZBV = "zbv"


class Optimizer(str, Enum):
    """What the optimizer keeps for each parameter."""

    ADAMW = "adamw"
    ADAMW_8BIT = "adamw-8bit"
    ADAFACTOR = "adafactor"
    LION = "lion"
    SGD = "sgd"
    """Without momentum."""
    SGD_MOMENTUM = "sgd-momentum"
    MUON = "muon"
    LAMB = "lamb"


class OptimizerLoop(str, Enum):
    """How torch's optimizer walks over parameters: foreach needs temporaries as large as what it steps."""

    FOREACH = "foreach"
    FUSED = "fused"
    FOR_LOOP = "for-loop"


class Offload(str, Enum):
    """Where something lives instead of on the GPU."""

    NONE = "none"
    CPU = "cpu"
    NVME = "nvme"


class Attention(str, Enum):
    """Whether the matrix of scores (sequence x sequence) is ever written to memory."""

    FLASH = "flash"
    UNFUSED = "unfused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Low-rank adapters on a frozen model."""

    rank: int
    all_linear: bool = True
    """On every linear layer; else on queries and values only."""
    base_bits: int = 16
    """Bits of a frozen weight: 16, 8 or 4 (4-bit weights are read as 4.5: scales are stored beside them)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is said of a job; None: nothing is said. Sizes of groups are numbers of ranks."""

    model: Model | None = None
    # How many ranks there are.
    world_size: int | None = None
    num_nodes: int | None = None
    gpus_per_node: int | None = None
    # How they are arranged, outermost first as in TorchTitan.
    pp: int | None = None
    dp_replicate: int | None = None
    dp_shard: int | None = None
    """-1: what is left over."""
    cp: int | None = None
    tp: int | None = None
    ep: int | None = None
    etp: int | None = None
    # Data parallelism.
    strategy: DataParallel | None = None
    reshard_after_forward: bool | None = None
    offload_params: Offload | None = None
    offload_optimizer: Offload | None = None
    bucket_cap_mib: float | None = None
    gradient_as_bucket_view: bool | None = None
    # DeepSpeed, in elements.
    reduce_bucket_elements: int | None = None
    allgather_bucket_elements: int | None = None
    prefetch_bucket_elements: int | None = None
    persistence_threshold_elements: int | None = None
    max_live_elements: int | None = None
    max_reuse_elements: int | None = None
    overlap_comm: bool | None = None
    meta_init: bool | None = None
    """Sharded before any rank holds the whole model (meta device, zero.Init); False: each rank builds it first."""
    # Types.
    precision: Precision | None = None
    grads_in_fp32: bool | None = None
    """Gradients are accumulated and reduced in fp32 though parameters are 16 bit."""
    fp8: bool | None = None
    optimizer: Optimizer | None = None
    optimizer_loop: OptimizerLoop | None = None
    adapter: Adapter | None = None
    # Batch.
    micro_batch: int | None = None
    """Sequences in one forward pass of one data-parallel rank."""
    global_batch: int | None = None
    accumulation_steps: int | None = None
    """Micro-batches between two optimizer steps; in a pipeline, those in flight."""
    seq_len: int | None = None
    # Activations.
    checkpointing: Checkpointing | None = None
    checkpoint_layers: int | None = None
    """Of each pipeline stage, the layers that are checkpointed; None: all of them."""
    attention: Attention | None = None
    hidden_dropout: float | None = None
    attention_dropout: float | None = None
    fused_loss: bool | None = None
    """The loss never holds all logits at once: chunked, cut or fused linear cross entropy."""
    frees_logits: bool | None = None
    """The 16-bit logits are dropped before the backward pass (TorchTitan deletes them)."""
    compiled: bool | None = None
    offload_activations: bool | None = None
    # Tensor, pipeline and expert parallelism.
    sequence_parallel: bool | None = None
    loss_parallel: bool | None = None
    schedule: Schedule | None = None
    virtual_stages: int | None = None
    """Chunks of the model that each pipeline rank holds."""
    vocab_divisor: int | None = None
    """Megatron pads the vocabulary to a multiple of this and of tp."""
    expert_imbalance: float | None = None
    """Tokens on the busiest rank over those of a balanced router; 1 is balanced."""
    megatron: MegatronDetails | None = None
    """What only Megatron-LM has a word for."""
    # Which device.
    gpu_type: str | None = None
