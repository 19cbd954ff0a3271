"""What the MLP half of one Megatron-LM layer saves for its backward pass, dense or with experts.

Read in megatron-core 0.16.1 (`transformer/mlp.py`, `transformer/moe/*`, `fusions/*`) and Transformer Engine 2.20.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.formulas.layer import SavedBytes
from distdoctor.oom.formulas.megatron.attention import ELEMENT, residual_saved
from distdoctor.oom.shape import MixtureOfExperts, ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpRun:
    """How the MLP half is computed."""

    hidden_dropout: bool = False
    recomputes_mlp: bool = False
    """`--recompute-modules mlp`: dense MLPs, their norm included where TE fuses it."""
    recomputes_norm: bool = False
    """`layernorm`: of layers with experts, whose norm is a module of its own."""
    recomputes_experts: bool = False
    """`moe`: the whole layer of experts."""
    recomputes_activation: bool = False
    """`moe_act`: the activation inside routed experts."""
    recomputes_shared: bool = False
    """`shared_experts`."""


def dense_saved(shape: ModelShape, run: MlpRun) -> SavedBytes:
    """A dense MLP: the input of the activation function (`BiasGeLUFunction`, `SwiGLUFunction` and squared ReLU save
    it) and its output, which is the input of the second product; a gated input is twice as wide."""
    around = residual_saved(shape, dropout=run.hidden_dropout, keeps_norm=not run.recomputes_mlp)
    if run.recomputes_mlp:
        return around
    return around.plus(SavedBytes(split=_inside(shape, shape.ffn_size), whole=0))


def experts_saved(shape: ModelShape, moe: MixtureOfExperts, run: MlpRun) -> SavedBytes:
    """A layer with experts without what routed tokens save: norm, router, shared experts.

    The router keeps logits and probabilities of its tokens (`transformer/moe/router.py`): 16-bit logits, fp32
    scores, the scattered 16-bit probabilities and the bool map.
    """
    around = residual_saved(shape, dropout=run.hidden_dropout, keeps_norm=not run.recomputes_norm)
    router = SavedBytes(split=0, whole=(ELEMENT + 4 + ELEMENT + 1) * moe.num_experts)
    if run.recomputes_experts:
        return around
    shared = 0 if run.recomputes_shared else _inside(shape, moe.shared_ffn_size)
    return around.plus(router).plus(SavedBytes(split=shared, whole=0))


def routed_saved(shape: ModelShape, moe: MixtureOfExperts, run: MlpRun, *, etp: int) -> float:
    """Bytes for one token at one expert of this rank: its copy in expert order (the input of the grouped product),
    the input of the activation, and its output weighed by the router's probability (`TEGroupedMLP.forward`).

    Only SwiGLU is fused with the probability; else the activation's own output is kept beside the weighed one.
    """
    if run.recomputes_experts:
        return 0.0
    width = moe.expert_ffn_size / etp
    before = ELEMENT * width * (2 if shape.is_gated else 1)
    after = ELEMENT * width * (1 if shape.is_gated else 2)
    return ELEMENT * shape.hidden_size + before + (0 if run.recomputes_activation else after)


def routed_rows(tokens: float, moe: MixtureOfExperts, *, etp: int, imbalance: float = 1.0) -> float:
    """Rows that arrive at this rank's experts when the router is balanced, times `imbalance`. `tokens`: of this rank
    after sequence parallelism. Each is sent to top-k experts, and ranks that cut an expert all see its tokens
    (`MoEAlltoAllTokenDispatcher.dispatch_postprocess` gathers over expert tensor parallelism)."""
    return tokens * moe.experts_per_token * etp * imbalance


def _inside(shape: ModelShape, width: int) -> int:
    return ELEMENT * width * (3 if shape.is_gated else 2)
