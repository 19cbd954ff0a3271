"""For which Megatron-LM arguments memory is not computed, and why. Better no number than a guess."""

from __future__ import annotations

from distdoctor.oom.configs.megatron.model import ModelReading
from distdoctor.oom.configs.megatron.values import Arguments
from distdoctor.oom.shape import Model

# Flags whose presence means tensors that no formula of ours covers.
_FLAGS = (
    ("hybrid-override-pattern", "a hybrid of Mamba and attention layers"),
    ("hybrid-layer-pattern", "a hybrid of Mamba and attention layers"),
    ("hybrid-attention-ratio", "a hybrid of Mamba and attention layers"),
    ("is-hybrid-model", "a hybrid of Mamba and attention layers"),
    ("mamba-state-dim", "Mamba layers"),
    ("mamba-num-heads", "Mamba layers"),
    ("experimental-attention-variant", "an experimental kind of attention"),
    ("linear-attention-freq", "linear attention"),
    ("moe-latent-size", "experts that work in a latent space"),
    ("heterogeneous-layers-config-path", "layers of different shapes"),
    ("heterogeneous-layers-config-encoded-json", "layers of different shapes"),
    ("retro-add-retriever", "a retriever"),
    ("retro-project-dir", "a retriever"),
    ("encoder-num-layers", "an encoder beside the decoder"),
    ("decoder-num-layers", "an encoder beside the decoder"),
    ("use-legacy-models", "legacy models"),
    ("export-kd-teacher-load", "a teacher model for distillation"),
    ("export-te-mcore-model", "a model under ModelOpt"),
    ("cuda-graph-impl", "CUDA graphs, which keep memory pools of their own"),
    ("enable-cuda-graph", "CUDA graphs, which keep memory pools of their own"),
    ("external-cuda-graph", "CUDA graphs, which keep memory pools of their own"),
    ("fine-grained-activation-offloading", "activations of single modules in host memory"),
    ("cpu-offloading-num-layers", "activations of single layers in host memory"),
    ("cpu-offloading", "activations of single layers in host memory"),
    ("optimizer-cpu-offload", "optimizer states in host memory"),
    ("offload-optimizer-states", "optimizer states in host memory"),
    ("defer-embedding-wgrad-compute", "embedding gradients that are computed later"),
    ("perform-rl-step", "reinforcement learning"),
    ("fp4-format", "4-bit matrix products"),
    ("fp8-format", "8-bit matrix products, which save 8-bit activations and cache 8-bit weights"),
    ("use-megatron-fsdp", "buffers of Megatron-FSDP"),
    ("use-custom-fsdp", "buffers of Megatron-FSDP"),
    ("tp-comm-overlap", "user buffers of overlapped tensor parallelism"),
    ("use-torch-fsdp2", "torch's FSDP2 inside Megatron-LM"),
    ("hierarchical-context-parallel-sizes", "hierarchical context parallelism"),
    ("hybrid-context-parallel", "hybrid context parallelism"),
)


def not_covered(said: Arguments, model: Model | None, reading: ModelReading) -> tuple[str, ...]:
    """Reasons, in words for a reader; empty when the job is covered."""
    reasons = [f"{what} (`--{flag}`)" for flag, what in _FLAGS if _is_on(said, flag)]
    reasons += reading.problems
    shape = model.shape if model is not None else None
    if shape is not None:
        kind = said.word("position-embedding-type")
        if kind == "none" and not said.flag("multi-latent-attention"):
            reasons.append(
                "attention without positions: hybrids of Mamba and attention have it, and their layer pattern "
                "is not among the arguments"
            )
        elif kind == "relative":
            reasons.append("relative position embeddings (`--position-embedding-type relative`)")
        if shape.mla is not None and shape.moe is not None and not said.has("kv-lora-rank"):
            reasons.append(
                "latent attention without its ranks: with Megatron's default of 32 it is hardly meant, so arguments "
                "seem to be missing (`--kv-lora-rank`)"
            )
    if "muon" in (said.word("optimizer") or ""):
        reasons.append(
            "Muon keeps one momentum for matrices, two moments for the rest, and gathers what it orthogonalises"
        )
    if said.word("moe-token-dispatcher-type") == "flex":
        reasons.append(
            "the flex dispatcher, whose buffers DeepEP or HybridEP allocate (`--moe-token-dispatcher-type`)"
        )
    spec = said.text("spec") or ""
    if any(word in spec for word in ("mamba", "hybrid", "heterogeneous", "retro")):
        reasons.append(f"the layer specification `{spec[:60]}`")
    return tuple(dict.fromkeys(reasons))


def _is_on(said: Arguments, flag: str) -> bool:
    if not said.has(flag):
        return False
    value = said.word(flag)
    return value not in ("none", "0", "0.0")
