"""The job's own memory: idle in its pool, or used, and by what."""

from __future__ import annotations

import re

from distdoctor.oom.explain.causes.frame_words import words
from distdoctor.oom.explain.causes.kinds import Cause, Verdict
from distdoctor.oom.explain.numbers import Account
from distdoctor.oom.explain.sizes import logits_shape, may_be_logits
from distdoctor.oom.facts.events import Hints, OomEvent, Phase
from distdoctor.report.model import Confidence
from distdoctor.units import MIB

# Fragmentation needs more idle in the pool than this share of the card; pools keep a few per cent idle in health.
# Our own threshold.
IDLE_SHARE = 0.1

# Idle bytes in the pool that are worth a word where they would have held the request. Our own threshold.
_MUCH_IDLE_BYTES = 256 * MIB

# A sharded job that is full of live tensors while it gathers parameters. Our own threshold.
FULL_SHARE = 0.85

_LOSS_NAMES = re.compile(
    r"cross_entropy|log_softmax|nll_loss|lm_head|logits|compute_language_model_loss|ForCausalLMLoss|causal_lm_loss|logprobs?|get_logps|log_probs?\b|entropy_from|output_layer|CrossEntropy|selective_log_softmax|_compute_token_log",
    re.IGNORECASE,
)

_MOVED = re.compile(
    r"^(?:to|cuda|_apply|convert|half|bfloat16|float|_configure_distributed_model|npu|xpu|from_pretrained|_move_\w+|set_module_tensor_to_device|_load_state_dict_into_meta_model|move_to_device|_load_pretrained_model|_replicate\w*|_wrap_model|model_to_device)$"
)

_MOVED_CODE = re.compile(r"\.to\(|\.cuda\(|\b_move_\w+\(|\bFSDP\(|FullyShardedDataParallel\(")

_LOADED = re.compile(
    r"^(?:load_model\w*|load_weights|create_weights|_load_\w+|load_state_dict|load_checkpoint|flatten_tensors\w*|_init_param_handle\w*"
    r"|dispatch_model|materialize\w*|_cuda_deserialize|to_empty)$"
)

_LOADS_STATES = re.compile(
    r"optim\S*\.py \w*(?:load_state_dict|_process_value)|optim\w*\.load_state_dict\(|_rigid_load_state_dict|_load_zero_checkpoint"
    r"|load_optimizer_state"
)

_CACHE = re.compile(r"cache_utils|kv_?cache|key_cache|value_cache|past_key_value|DynamicCache", re.IGNORECASE)

_GATHERS = re.compile(
    r"^(?:_?all_gather\w*|_?allgather\w*|unshard|_unshard\w*|_alloc_storage|alloc_storage|_all_gather_flat_param|fetch_sub_module|_fetch\w*|__all_gather_params\w*|_all_gather_params\w*|partition_all_gather\w*|all_gather_coalesced|all_gather_params|foreach_all_gather|init_unsharded_param\w*|alloc_all_gather_outputs|all_gather_copy_out|pre_sub_module_forward_function|summon_full_params|_summon_full_params)$"
)

_GATHERS_RESULTS = re.compile(
    r"^(?:gather|gather_for_metrics|nested_gather|_pad_across_processes|gather_object|all_gather_object|evaluation_loop|gather_from_\w+|_gather_along_\w+|_gather|concat_all_gather|gather_features|evaluate|pad_across_processes|all_gather_for_metrics)$"
)

_LAYERS = re.compile(
    r"^(?:forward|_forward|_attn|attention|self_attn|mlp|sdpa_\w+|eager_attention_forward|scaled_dot_product_attention|layer_norm|gelu|silu|softmax|dropout|linear|conv[123]d|matmul|_conv_forward|relu|batch_norm|interpolate|custom_forward|apply_rotary_pos_emb|rotate_half|upcast\w*|checkpoint|_checkpoint\w*|recompute_fn|unpack\w*|grid_sample|group_norm|flash_attn\w*|core_attention)$"
)

_STATES = re.compile(r"^(?:_init_group|_init_states?|initialize_optimizer_states|init_state)$")

_FOREACH = re.compile(r"_multi_tensor|_foreach|foreach")

_NOT_FOREACH = re.compile(r"_single_tensor|_fused_|fused|FusedAdam|cpu_adam|for_loop")

_CLIP = re.compile(r"clip_grad|unscale_grad|get_total_norm")


def of_the_job(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """The job's own memory: idle in its pool, or used. Then by what."""
    if is_fragmented(event):
        return (
            Cause.FRAGMENTATION,
            Confidence.HIGH,
            "the pool holds more idle memory than was asked for, in pieces that are too small",
        )
    for rule in (
        _loaded_states,
        _optimizer,
        _moved_whole,
        _parameters,
        _cache,
        _logits,
        _gathering,
        _activations,
    ):
        found = rule(event, account, hints)
        if found is not None:
            return found
    if event.total_bytes is None and event.requested_bytes is None:
        return Cause.CAPACITY, Confidence.LOW, "the message was cut: it holds no sizes"
    if event.total_bytes is None:
        return Cause.CAPACITY, Confidence.LOW, "the message was cut: it does not tell what the GPU holds"
    if account.others_bytes and account.shortfall is not None and account.others_bytes >= account.shortfall:
        why = "PyTorch's own live tensors fill the card; others hold little of it, yet more than what is missing"
        return Cause.CAPACITY, Confidence.MEDIUM, why, Cause.OTHER_PROCESS
    idle = event.unallocated_bytes or 0
    if idle >= max(_MUCH_IDLE_BYTES, 2 * (event.requested_bytes or 0)):
        why = "PyTorch's own live tensors fill the card; more lies idle in its pool than was asked for, and that is little"
        return Cause.CAPACITY, Confidence.MEDIUM, why, Cause.FRAGMENTATION
    return Cause.CAPACITY, Confidence.HIGH, "PyTorch's own live tensors fill the card"


def is_fragmented(event: OomEvent) -> bool:
    """Idle in the pool: at least the request, and a share of the card that is more than slack."""
    idle, request, total = event.unallocated_bytes, event.requested_bytes, event.total_bytes
    if idle is None or request is None:
        return False
    whole = total if total is not None else (event.allocated_bytes or 0) + idle
    return idle >= request and idle >= IDLE_SHARE * whole


def _loaded_states(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """At a resume the states of the optimizer are loaded onto the card."""
    del account, hints
    if event.phase is not Phase.INITIALISATION:
        return None
    for frame in event.frames[-8:]:
        if _LOADS_STATES.search(f"{frame.file} {frame.function} {frame.code}"):
            return (
                Cause.STATES,
                Confidence.MEDIUM,
                "refused while the optimizer's states are loaded, on top of the parameters",
            )
    return None


def _optimizer(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account
    in_optimizer = (
        event.phase in (Phase.OPTIMIZER_STEP, Phase.FIRST_OPTIMIZER_STEP)
        or "optim" in event.phase_why
        or "`step`" in event.phase_why
    )
    functions = [frame.function for frame in event.frames]
    in_optimizer = in_optimizer or any(
        _FOREACH.search(name) and "grad_norm" not in name for name in functions
    )
    if not in_optimizer or event.phase in (
        Phase.INITIALISATION,
        Phase.EVALUATION,
        Phase.SAVING,
        Phase.GENERATION,
    ):
        return None
    if is_clipping(event):
        return (
            Cause.OPTIMIZER,
            Confidence.MEDIUM,
            "refused while gradients are unscaled or clipped: temporaries as large as the gradients",
        )
    if any(_STATES.match(name) for name in functions[-4:]):
        return (
            Cause.OPTIMIZER,
            Confidence.HIGH,
            "refused while the optimizer makes its states, which stay for the rest of the job",
        )
    if any(_FOREACH.search(name) for name in functions):
        return (
            Cause.OPTIMIZER_FOREACH,
            Confidence.HIGH,
            "refused in the multi-tensor loop: its temporaries are as large as the parameters it steps",
        )
    told = " ".join(words(frame) for frame in event.frames)
    if _NOT_FOREACH.search(told) or "DeepSpeed" in hints.strategies or "Megatron" in hints.strategies:
        return (
            Cause.OPTIMIZER,
            Confidence.MEDIUM,
            "refused in the optimizer step: states, or temporaries of the update",
        )
    return (
        Cause.OPTIMIZER_FOREACH,
        Confidence.LOW,
        "refused in the optimizer step; torch.optim steps many tensors at once (foreach) since 2.0",
    )


def is_clipping(event: OomEvent) -> bool:
    """Whether gradients are being unscaled or clipped."""
    return any(_CLIP.search(frame.function) for frame in event.frames[-6:])


def _moved_whole(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """A job that means to shard, and moves the whole model to each GPU first."""
    del account
    shards = "FSDP" in hints.strategies or (hints.zero_stage or 0) >= 3
    if event.phase is not Phase.INITIALISATION or not shards:
        return None
    for frame in event.frames[-10:]:
        if _GATHERS.match(frame.function):
            return None
    if any(_MOVED.match(frame.function) or _MOVED_CODE.search(frame.code) for frame in event.frames):
        return (
            Cause.NOT_SHARDED,
            Confidence.MEDIUM,
            "the job shards its parameters, yet the whole model is moved to the GPU before that",
        )
    return None


def _parameters(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """Before any step, while parameters are placed: what fills the card is the model."""
    del account, hints
    if event.phase is not Phase.INITIALISATION or (event.steps_before or 0) or event.total_bytes is None:
        return None
    if (event.allocated_bytes or 0) < FULL_SHARE * event.total_bytes and (
        event.requested_bytes or 0
    ) < event.total_bytes // 4:
        return None
    functions = [frame.function for frame in event.frames]
    if any(_GATHERS.match(name) for name in functions[-10:]):
        return None
    placed = any(_LOADED.match(name) for name in functions) or any(
        _MOVED.match(frame.function) or _MOVED_CODE.search(frame.code) for frame in event.frames
    )
    if not placed:
        return None
    return (
        Cause.PARAMETERS,
        Confidence.MEDIUM,
        "refused while the model is placed on the GPU, before any step: parameters fill the card",
    )


def _cache(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """The key-value cache grows with every token that is generated."""
    del account, hints
    for frame in event.frames[-3:]:
        if event.phase is Phase.GENERATION and (_CACHE.search(frame.file) or _CACHE.search(words(frame))):
            where = (frame.code or frame.function)[:60]
            return Cause.KV_CACHE, Confidence.MEDIUM, f"refused at `{where}`, where the key-value cache grows"
    return None


def _logits(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account
    if event.phase in (Phase.INITIALISATION, Phase.SAVING, Phase.OPTIMIZER_STEP, Phase.FIRST_OPTIMIZER_STEP):
        return None
    shape = logits_shape(event.requested_bytes, hints.vocab_sizes)
    innermost = next(
        (
            frame
            for frame in reversed(event.frames[-7:])
            if _LOSS_NAMES.search(words(frame)) and "model(" not in frame.code
        ),
        None,
    )
    if innermost is not None and any(_GATHERS.match(frame.function) for frame in event.frames[-4:]):
        innermost = None
    if innermost is not None:
        where = f"refused at `{(innermost.code or innermost.function)[:60]}`, where logits or the loss are computed"
        if shape is not None:
            return Cause.LOGITS, Confidence.HIGH, f"{where}; the size is that of {shape}"
        return Cause.LOGITS, Confidence.MEDIUM, where
    in_layer = any(_LAYERS.match(frame.function) for frame in event.frames[-4:])
    if shape is not None and hints.is_vocab_told and not in_layer:
        return Cause.LOGITS, Confidence.LOW, f"the size is that of {shape}", Cause.ACTIVATIONS
    if re.search(r"\blogits\s*=", event.nearby) and may_be_logits(event.requested_bytes) and not in_layer:
        return (
            Cause.LOGITS,
            Confidence.LOW,
            "logits are computed in the lines beside the message",
            Cause.ACTIVATIONS,
        )
    return None


def _gathering(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """Parameters are gathered while live tensors already fill the card: sharding does not bring what it should."""
    functions = [frame.function for frame in event.frames[-14:]]
    if any(_GATHERS_RESULTS.match(name) for name in functions) or not any(
        _GATHERS.match(name) for name in functions
    ):
        return None
    if event.phase in (Phase.SAVING, Phase.EVALUATION, Phase.GENERATION):
        return None
    total, live = event.total_bytes, event.allocated_bytes
    if total is None or live is None or account.pool is None or live < FULL_SHARE * total:
        return None
    known = "FSDP" in hints.strategies or (hints.zero_stage or 0) >= 3
    why = f"refused while parameters are gathered, with {live / total:.0%} of the card in live tensors"
    return Cause.SHARDING_INEFFECTIVE, Confidence.MEDIUM if known else Confidence.LOW, why, Cause.CAPACITY


def _activations(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account, hints
    if event.phase not in (
        Phase.FORWARD,
        Phase.FIRST_FORWARD,
        Phase.BACKWARD,
        Phase.FIRST_BACKWARD,
        Phase.SECOND_STEP,
        Phase.LATER_GROWTH,
    ):
        return None
    if not any(_LAYERS.match(frame.function) for frame in event.frames[-5:]):
        return None
    if event.total_bytes is None:
        return (
            Cause.ACTIVATIONS,
            Confidence.LOW,
            "refused inside a layer; the message does not tell what the GPU holds",
        )
    return Cause.ACTIVATIONS, Confidence.MEDIUM, "refused inside a layer, and live tensors fill the card"
