"""What one transformer layer saves for its backward pass, for each token.

Three parts, because three things divide them: `split` by tensor parallelism always, `whole` only with sequence
parallelism, `scores` grow with the square of the sequence and are split by heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.shape import MixtureOfExperts, ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedBytes:
    """Bytes per token of the rank's micro-batch, before any division."""

    split: float
    """Divided by tp: queries, keys, values, the output of attention, the inside of the MLP."""
    whole: float
    """Divided by tp with sequence parallelism only: the residual stream, inputs and outputs of norms."""
    gathered: float = 0.0
    """Never divided by tp: inputs of split linear layers, gathered from the sequence shards and kept whole."""
    scores: float = 0.0
    """Per token, head and key: the matrix of attention scores where it is written to memory."""

    def per_token(self, *, tp: int, sequence_parallel: bool, num_heads: int, seq_len: int) -> float:
        """Bytes for one token on one rank. `seq_len` is the number of keys that a query meets."""
        whole = self.whole / (tp if sequence_parallel else 1)
        return self.split / tp + whole + self.gathered + self.scores * num_heads * seq_len / tp

    def plus(self, other: SavedBytes) -> SavedBytes:
        """Both together."""
        return SavedBytes(
            split=self.split + other.split,
            whole=self.whole + other.whole,
            gathered=self.gathered + other.gathered,
            scores=self.scores + other.scores,
        )


def attention_saved(shape: ModelShape, *, element: int, residual: int, unfused: bool) -> SavedBytes:
    """The attention half of a layer. `element`: bytes of a computed value; `residual`: of the residual stream.

    The norm's input and the projections' input; queries, keys and values after rotation; the output of attention,
    which is also the input of the output projection; log-sum-exp of each head in fp32 (flash attention,
    arXiv 2205.14135). Unfused attention, as transformers' eager one, keeps probabilities in fp32 and as they are
    multiplied with the values, and repeats keys and values for every head.
    """
    hidden = shape.hidden_size
    scores = (4 + element * (element < 4)) if unfused else 0
    if shape.mla is not None:
        mla = shape.mla
        queries = shape.num_heads * (mla.nope_head_size + mla.rope_head_size)
        values = shape.num_heads * mla.value_head_size
        low_rank = 2 * (mla.kv_lora_rank + (mla.q_lora_rank or 0)) + mla.rope_head_size
        return SavedBytes(
            # Keys are as wide as queries; keys and values are expanded to all heads in training.
            split=element * (2 * queries + 2 * values) + 4 * shape.num_heads * (not unfused),
            whole=residual * hidden + element * (hidden + low_rank),
            scores=scores,
        )
    queries, keys = shape.num_heads * shape.head_size, shape.num_kv_heads * shape.head_size
    if unfused:
        keys = queries
    return SavedBytes(
        split=element * (2 * queries + 2 * keys) + 4 * shape.num_heads * (not unfused),
        whole=residual * hidden + element * hidden,
        scores=scores,
    )


def mlp_saved(shape: ModelShape, width: int, *, element: int, residual: int) -> SavedBytes:
    """The MLP half of a layer: norm's input and output; gated: gate, up, activated gate and their product; else the
    input and the output of the activation function."""
    inside = 4 * width if shape.is_gated else 2 * width
    return SavedBytes(
        split=element * inside, whole=residual * shape.hidden_size + element * shape.hidden_size
    )


def routed_saved(shape: ModelShape, moe: MixtureOfExperts, *, element: int, width_ranks: int = 1) -> float:
    """Bytes for one token that arrived at one routed expert: its input, the inside of the expert, and its output in fp32,
    in which it is weighed (torchtitan/models/common/moe). The inside is cut over `width_ranks`; input and output are as
    wide as the hidden state."""
    inside = (4 if shape.is_gated else 2) * moe.expert_ffn_size / width_ranks
    return element * (shape.hidden_size + inside) + 4 * shape.hidden_size


def layer_saved(
    shape: ModelShape,
    *,
    with_experts: bool,
    element: int,
    residual: int,
    unfused: bool,
    routes_all: bool = False,
) -> SavedBytes:
    """One layer without what its routed experts save. With a dense MLP, flash attention and 2-byte values, this is
    12 h + 4 h kv/a + 8 f + 4 a bytes for a token; a simulated Llama block agreed within 0.4 %. `routes_all`: the router
    gets the tokens of all shards of the sequence."""
    attention = attention_saved(shape, element=element, residual=residual, unfused=unfused)
    if not with_experts or shape.moe is None:
        return attention.plus(mlp_saved(shape, shape.ffn_size, element=element, residual=residual))
    shared = mlp_saved(shape, shape.moe.shared_ffn_size, element=element, residual=residual)
    # The router computes in fp32: its probabilities, and the input that it casts.
    probabilities = 4 * shape.moe.num_experts
    if routes_all:
        # Its input is gathered, and so is that of shared experts, each for itself.
        gathered = probabilities + (element * shape.hidden_size if shape.moe.shared_ffn_size else 0)
        return attention.plus(shared).plus(SavedBytes(split=0, whole=0, gathered=gathered))
    return attention.plus(shared).plus(SavedBytes(split=0, whole=probabilities))


def inputs_kept(shape: ModelShape, *, with_experts: bool, is_autocast: bool) -> int:
    """How many tensors of hidden size the column-split layers of a layer keep as their inputs: one for queries, keys and
    values, one for the MLP. Autocast casts for each of them anew (only casts of weights are cached,
    aten/src/ATen/autocast_mode.cpp), so that each keeps a 16-bit copy of its own."""
    if not is_autocast:
        return 2
    has_mlp = not with_experts or shape.moe is None or shape.moe.shared_ffn_size > 0
    return (3 if shape.mla is None else 2) + (1 + shape.is_gated if has_mlp else 1)


def selective_saved(
    shape: ModelShape, *, with_experts: bool, element: int, residual: int, routes_all: bool = False
) -> SavedBytes:
    """Per-operator selective checkpointing as TorchTitan does it: the layer's input, the output of attention, and
    every second matrix product (queries, values, gate, down of queries, keys, values, output, gate, up, down). What
    `down` gave is kept as the product gives it: before it is added up over tp and cut, so whole on every rank. Products
    of routed experts are no matrix products of that kind; the router's is, and with it up of the shared experts counts
    instead of gate and down."""
    if shape.mla is not None:
        queries = shape.num_heads * (shape.mla.nope_head_size + shape.mla.rope_head_size)
        out, values = shape.num_heads * shape.mla.value_head_size, shape.mla.kv_lora_rank
    else:
        queries = out = shape.num_heads * shape.head_size
        values = shape.num_kv_heads * shape.head_size
    width, router = shape.ffn_size, 0
    if with_experts and shape.moe is not None:
        width, router = shape.moe.shared_ffn_size, element * shape.moe.num_experts
    gathered = router if routes_all else 0
    return SavedBytes(
        split=element * (queries + values + out + width) + 4 * shape.num_heads,
        whole=residual * shape.hidden_size + router - gathered,
        gathered=gathered if router else element * shape.hidden_size,
    )


def put_off_saved(shape: ModelShape, *, element: int) -> SavedBytes:
    """Gradients that wait for those of the weights: of what each matrix and each norm of a layer gave
    (torch/distributed/pipelining/_backward.py, `stage_backward_input`)."""
    if shape.mla is not None:
        heads = shape.num_heads * (2 * (shape.mla.nope_head_size + shape.mla.rope_head_size))
        heads += shape.num_heads * shape.mla.value_head_size
    else:
        heads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_size
    inside = (2 if shape.is_gated else 1) * shape.ffn_size
    return SavedBytes(
        split=element * (heads + inside),
        whole=element * 2 * shape.hidden_size,
        gathered=element * 2 * shape.hidden_size,
    )


def full_saved(shape: ModelShape, *, residual: int) -> SavedBytes:
    """Full checkpointing keeps the layer's input only (arXiv 2205.05198, section 4.2)."""
    return SavedBytes(split=0, whole=residual * shape.hidden_size)
