"""Why memory was refused, for one event: one cause, how sure, and the numbers that decide. Order of rules is the point."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from distdoctor.oom.explain_numbers import (
    ROUNDING_BYTES,
    Account,
    account_of,
    hidden_limit,
    is_odd_refusal,
    overhead_allowance,
)
from distdoctor.oom.explain_sizes import logits_shape
from distdoctor.oom.facts.events import ON_HOST, ExplainFacts, Family, Frame, Hints, OomEvent, Phase
from distdoctor.report.model import Confidence
from distdoctor.units import GIB


class Cause(str, Enum):
    """Cause classes of docs/report.md, `class` or `class:detail`."""

    CAPACITY = "capacity"
    LOGITS = "capacity:logits"
    ACTIVATIONS = "capacity:activations"
    WORKSPACE = "capacity:cublas-workspace"
    FRAGMENTATION = "fragmentation"
    OTHER_PROCESS = "other-process"
    PEER_RANKS = "other-process:peer-ranks"
    PROCESS_CAP = "process-cap"
    REQUEST_TOO_LARGE = "single-request>capacity"
    WRONG_CAPACITY = "wrong-visible-capacity"
    SHARDING_INEFFECTIVE = "sharding-ineffective"
    NOT_SHARDED = "not-sharded:parameters"
    OPTIMIZER = "optimizer-step"
    OPTIMIZER_FOREACH = "optimizer-step:foreach"
    NCCL = "nccl-buffers"
    NON_TORCH = "non-torch-or-async-pool"
    OTHER_ALLOCATIONS = "other-allocations"
    HOST_RAM = "host-ram"
    HOST_PINNED = "host-pinned"
    HOST_SHM = "host:shm_full"
    DRIVER_LIMIT = "not-capacity:driver-limit"
    CORRUPT_SIZE = "secondary:corrupt-size"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One event with its account and its cause."""

    event: OomEvent
    account: Account
    cause: Cause
    confidence: Confidence
    why: str
    """The deciding comparison in words."""
    alternative: Cause | None = None
    """What it may be instead, where the message does not decide."""


# What other processes hold counts from this share of the card on; a desktop or a monitor stays below. Our own threshold.
OTHERS_SHARE = 0.1

# Fragmentation needs more idle in the pool than this share of the card; pools keep a few per cent idle in health.
# Our own threshold.
IDLE_SHARE = 0.1

# Memory of this process beside PyTorch's pool that is more than contexts and communicators take. Our own thresholds.
NON_TORCH_SHARE = 0.15
NON_TORCH_BYTES = 3 * GIB

# Peers that opened a context on this GPU hold equal amounts, and little each (0.3 to 1.2 GiB were seen).
PEER_BYTES = 2 * GIB
PEER_SPREAD = 0.05

# MPS: what Metal holds beside the heaps, as a share of the limit, before it is named. Our own threshold.
OTHER_ALLOCATIONS_SHARE = 0.2

# A sharded job that is full of live tensors while it gathers parameters. Our own threshold.
FULL_SHARE = 0.85

# Sizes of discrete cards in GiB as drivers tell them lie this close below a round number; an APU's share does not.
_ROUND_CARDS = (
    4,
    6,
    8,
    10,
    11,
    12,
    16,
    20,
    24,
    32,
    40,
    44,
    48,
    64,
    80,
    94,
    96,
    120,
    128,
    141,
    144,
    180,
    184,
    186,
    192,
    256,
    268,
    288,
)
_CARD_SPREAD = 0.025

_PINNED = re.compile(
    r"pin_memory|[Hh]ostAlloc|[Hh]ostRegister|MallocHost|pinned|CachingHostAllocator|page-?lock",
    re.IGNORECASE,
)
_NOT_PINNED = re.compile(r"pin_memory\s*[=:]\s*False|pin_memory\W{1,4}false|dataloader_pin_memory")
_OBJECTS = re.compile(
    r"^_?(?:all_gather_object|gather_object|broadcast_object_list|scatter_object_list|_object_to_tensor|_tensor_to_object|recv_object|recv_object_list|recv_obj|broadcast_object)$"
)
_CONTEXT = re.compile(
    r"^(?:set_device|_lazy_init|_cuda_init|manual_seed\w*|init|current_device|synchronize|current_stream|barrier|monitored_barrier|init_process_group"
    r"|mem_get_info|get_device_properties|_verify_param_shape_across_processes|_init_group_with_backend|init_device|init_distributed|_get_device_capability)$"
)
_CONTEXT_CODE = re.compile(r"torch\.zeros\(1\)|set_device\(|init_process_group\(|\.barrier\(|_cuda_init\(\)")
_LOSS_NAMES = re.compile(
    r"cross_entropy|log_softmax|nll_loss|lm_head|logits|compute_language_model_loss|ForCausalLMLoss|causal_lm_loss|logprobs?|get_logps|log_probs?\b|entropy_from|output_layer|CrossEntropy|selective_log_softmax|_compute_token_log",
    re.IGNORECASE,
)
_MOVED = re.compile(
    r"^(?:to|cuda|_apply|convert|half|bfloat16|float|_configure_distributed_model|npu|xpu|from_pretrained|_move_\w+|set_module_tensor_to_device|_load_state_dict_into_meta_model|move_to_device|_load_pretrained_model|_replicate\w*|_wrap_model|model_to_device)$"
)
_MOVED_CODE = re.compile(r"\.to\(|\.cuda\(")
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

_MIG_WORDS = "this GPU is, or may be, a MIG slice"


def judge(event: OomEvent, facts: ExplainFacts) -> Judged:
    """The cause of one event. Whose it is comes first: other people, limits and wrong sizes before the job itself."""
    account = account_of(event)
    for rule in (_not_a_size, _on_host, _library, _mps, _server, _whose_memory, _of_the_job):
        found = rule(event, account, facts.hints)
        if found is not None:
            cause, confidence, why, *alternative = found
            return Judged(
                event=event,
                account=account,
                cause=cause,
                confidence=confidence,
                why=why,
                alternative=alternative[0] if alternative else None,
            )
    return Judged(
        event=event,
        account=account,
        cause=Cause.UNKNOWN,
        confidence=Confidence.LOW,
        why="the message holds no sizes",
    )


Verdict = tuple[Cause, Confidence, str] | tuple[Cause, Confidence, str, Cause]


def _not_a_size(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account, hints
    if event.is_absurd_size:
        return (
            Cause.CORRUPT_SIZE,
            Confidence.HIGH,
            "no machine holds the size that was asked for: the size itself is corrupt",
        )
    over = (
        event.requested_bytes is not None
        and event.total_bytes is not None
        and event.requested_bytes > 4 * event.total_bytes
    )
    if over and any(_OBJECTS.match(frame.function) for frame in event.frames):
        return (
            Cause.CORRUPT_SIZE,
            Confidence.MEDIUM,
            "an object's size came over the network and is several times the card: a size message was lost or mixed up",
        )
    return None


def _on_host(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account, hints
    if event.family is Family.HOST_KILL:
        if event.is_certain_kill:
            return (
                Cause.HOST_RAM,
                Confidence.HIGH,
                "the kernel or the scheduler says that memory of the host was the reason",
            )
        return (
            Cause.HOST_RAM,
            Confidence.MEDIUM,
            "a process was ended by SIGKILL without a word of its own: memory of the host is the usual reason",
        )
    if event.family is Family.HOST_ALLOCATOR:
        return Cause.HOST_RAM, Confidence.HIGH, "an allocation in the host's memory was refused"
    if event.family is Family.SHARED_MEMORY:
        return Cause.HOST_SHM, Confidence.HIGH, "the shared memory of the host or container ran full"
    if _is_pinned(event):
        sure = (
            Confidence.HIGH
            if any(_PINNED.search(_words(frame)) for frame in event.frames)
            else Confidence.MEDIUM
        )
        return (
            Cause.HOST_PINNED,
            sure,
            "the call that failed page-locks memory of the host; CUDA reports it as out of memory",
        )
    return None


def _is_pinned(event: OomEvent) -> bool:
    if event.family is not Family.DRIVER:
        return False
    innermost = event.frames[-6:]
    if any(_PINNED.search(_words(frame)) and not _NOT_PINNED.search(frame.code) for frame in innermost):
        return True
    if any("HostAllocator" in frame or "pin_memory" in frame for frame in event.native_frames):
        return True
    return not innermost and bool(_PINNED.search(event.nearby)) and not _NOT_PINNED.search(event.nearby)


def _library(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account, hints
    if event.family is Family.NCCL:
        return (
            Cause.NCCL,
            Confidence.HIGH,
            "NCCL asked the driver for its buffers and there was no memory left",
        )
    if event.family is Family.BLAS:
        if "NOT_INITIALIZED" in event.sentence:
            why = "cuBLAS could not make its handle; a full GPU is the usual reason, a broken context another"
            return Cause.WORKSPACE, Confidence.LOW, why
        return (
            Cause.WORKSPACE,
            Confidence.HIGH,
            "cuBLAS asked the driver for its handle or workspace and there was no memory left",
        )
    if event.family is Family.DNN:
        return Cause.CAPACITY, Confidence.MEDIUM, "cuDNN found no memory for its workspace"
    if event.family is Family.DRIVER:
        return _driver(event)
    return None


def _driver(event: OomEvent) -> Verdict | None:
    """The driver refused outside PyTorch's pool: before this process holds anything, the memory is somebody else's."""
    at_start = event.phase in (Phase.INITIALISATION, Phase.UNKNOWN)
    if at_start and not (event.steps_before or 0):
        for frame in event.frames[-8:]:
            if _CONTEXT.match(frame.function) or _CONTEXT_CODE.search(frame.code):
                return (
                    Cause.OTHER_PROCESS,
                    Confidence.MEDIUM,
                    f"refused in `{frame.function}`, before this process holds anything on the GPU: others fill it, or every rank uses GPU 0",
                )
    if event.phase in (Phase.UNKNOWN,) and not event.frames:
        return None
    if event.phase is Phase.INITIALISATION:
        return (
            Cause.OTHER_PROCESS,
            Confidence.LOW,
            "refused by the driver during initialisation; the message holds no sizes",
            Cause.CAPACITY,
        )
    return Cause.CAPACITY, Confidence.LOW, "refused by the driver; the message holds no sizes"


def _mps(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account, hints
    if event.family is not Family.MPS:
        return None
    if event.allowed_bytes is None:
        return Cause.REQUEST_TOO_LARGE, Confidence.HIGH, "Metal cannot make one buffer of this size"
    other, own, request = (
        event.other_allocations_bytes or 0,
        event.allocated_bytes or 0,
        event.requested_bytes or 0,
    )
    if request > event.allowed_bytes:
        return Cause.REQUEST_TOO_LARGE, Confidence.HIGH, "the request alone exceeds the limit"
    if other >= OTHER_ALLOCATIONS_SHARE * event.allowed_bytes and own + request <= event.allowed_bytes:
        return (
            Cause.OTHER_ALLOCATIONS,
            Confidence.HIGH,
            "without what is held beside PyTorch's heaps the request would fit",
        )
    return Cause.CAPACITY, Confidence.HIGH, "PyTorch's heaps with this request exceed the limit"


def _server(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account, hints
    if event.family is Family.SERVER:
        if event.total_bytes is None or event.free_bytes is None:
            return (
                Cause.CAPACITY,
                Confidence.MEDIUM,
                "nothing is left for the key-value cache after weights and activations",
            )
        return Cause.OTHER_PROCESS, Confidence.HIGH, "memory was taken before this process began"
    if event.family is Family.XLA:
        return Cause.CAPACITY, Confidence.MEDIUM, "XLA could not place its buffers"
    return None


def _whose_memory(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """Limits, other processes, a card that is smaller than it should be, and a refusal that sizes do not explain."""
    total, request = event.total_bytes, event.requested_bytes
    if request is None:
        return None
    for rule in (_limit, _too_large, _odd, _others):
        found = rule(event, account, hints)
        if found is not None:
            return found
    if total is not None and (named := _named_larger(total, hints)) is not None:
        where = f" ({_MIG_WORDS})" if hints.is_mig else ""
        return (
            Cause.WRONG_CAPACITY,
            Confidence.MEDIUM,
            f"the log names {named}, and the runtime shows less{where}",
        )
    return None


def _limit(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del hints
    if account.over_limit is None or event.allowed_bytes is None:
        return None
    fits_card = event.free_bytes is None or event.free_bytes >= (event.requested_bytes or 0)
    if account.over_limit > -ROUNDING_BYTES and (
        fits_card or event.allowed_bytes < (event.total_bytes or 0) * 0.98
    ):
        return (
            Cause.PROCESS_CAP,
            Confidence.HIGH,
            "the pool with this request exceeds the limit that the job set for itself",
        )
    return None


def _too_large(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account
    total, request = event.total_bytes, event.requested_bytes or 0
    if total is None or request <= total:
        return None
    is_first = not event.allocated_bytes and not event.unallocated_bytes
    named = _named_larger(total, hints)
    if named is not None:
        return Cause.WRONG_CAPACITY, Confidence.MEDIUM, f"the log names {named}, and the runtime shows less"
    if event.family is Family.HIP and is_first and not _is_card(total):
        why = "the runtime shows a size that no discrete card has: an APU's share, or a carve-out that is not seen"
        return Cause.WRONG_CAPACITY, Confidence.MEDIUM, why, Cause.REQUEST_TOO_LARGE
    return Cause.REQUEST_TOO_LARGE, Confidence.HIGH, "one tensor is larger than the whole card"


def _odd(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """Refused although more was free: a limit that the message does not show, or the driver's own limits."""
    if not is_odd_refusal(event) or account.pool is None:
        return None
    free, request = event.free_bytes or 0, event.requested_bytes or 0
    if hints.memory_fraction is not None and event.total_bytes is not None and hints.memory_fraction < 0.99:
        allowed = hints.memory_fraction * event.total_bytes
        if account.pool + request > allowed - ROUNDING_BYTES:
            return (
                Cause.PROCESS_CAP,
                Confidence.HIGH,
                "the log shows a memory fraction, and the pool with this request exceeds it",
            )
    found = hidden_limit(event, account.pool)
    if found is not None:
        share, chance = found
        why = f"a limit of {share:.0%} of the card explains it (a round share falls there by chance in {chance:.0%} of cases)"
        return Cause.PROCESS_CAP, Confidence.MEDIUM, why, Cause.DRIVER_LIMIT
    wide = event.total_bytes is not None and request > 0.0125 * event.total_bytes
    sure = Confidence.LOW if wide or free < 2 * request else Confidence.MEDIUM
    why = "more was free than was asked for, and no round limit lies where a limit would have to be"
    if wide:
        why = "more was free than was asked for; a limit set by the job would explain it as well as one of the driver"
    return Cause.DRIVER_LIMIT, sure, why, Cause.PROCESS_CAP


def _others(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del hints
    total, shortfall = event.total_bytes, account.shortfall
    if total is None or shortfall is None:
        return None
    if account.others_bytes is not None and account.others_bytes >= shortfall:
        if are_peers(account):
            return (
                Cause.PEER_RANKS,
                Confidence.HIGH,
                "processes with equal amounts hold more than what is missing: peers opened this GPU too",
            )
        if account.others_bytes >= OTHERS_SHARE * total:
            sure = Confidence.HIGH if account.others else Confidence.MEDIUM
            return Cause.OTHER_PROCESS, sure, "without the other processes the request would fit"
    if account.non_torch is not None and account.process is not None:
        too_much = max(NON_TORCH_BYTES, round(NON_TORCH_SHARE * total))
        if account.non_torch >= too_much and account.non_torch >= shortfall:
            return Cause.NON_TORCH, Confidence.HIGH, "this process holds that much beside PyTorch's pool"
        return None
    if account.outside is None or account.others_bytes is not None:
        return None
    allowance = overhead_allowance(total)
    beyond = account.outside - allowance
    if event.family is Family.CUDA_ASYNC:
        if beyond >= 0 and account.outside >= max(NON_TORCH_SHARE * total, shortfall):
            return (
                Cause.NON_TORCH,
                Confidence.HIGH,
                "most of what is missing is outside the memory that PyTorch counts",
            )
        return None
    if beyond >= shortfall:
        sure = (
            Confidence.HIGH
            if account.outside >= 2 * allowance and account.outside >= 0.2 * total
            else Confidence.LOW
        )
        why = "more of the card is outside PyTorch's pool than a process's own context and communicators take"
        return Cause.OTHER_PROCESS, sure, why, Cause.NON_TORCH
    return None


def are_peers(account: Account) -> bool:
    """Several small, equal amounts: contexts of the other ranks on this GPU."""
    sizes = [each.num_bytes for each in account.others]
    if len(sizes) < 2:
        return False
    small = [each for each in sizes if each <= PEER_BYTES]
    if len(small) < 2 or sum(small) < sum(sizes) / 2:
        return False
    return max(small) - min(small) <= PEER_SPREAD * max(small)


def _of_the_job(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """The job's own memory: idle in its pool, or used. Then by what."""
    if is_fragmented(event):
        return (
            Cause.FRAGMENTATION,
            Confidence.HIGH,
            "the pool holds more idle memory than was asked for, in pieces that are too small",
        )
    for rule in (_optimizer, _moved_whole, _logits, _gathering, _activations):
        found = rule(event, account, hints)
        if found is not None:
            return found
    if event.total_bytes is None and event.requested_bytes is None:
        return Cause.CAPACITY, Confidence.LOW, "the message was cut: it holds no sizes"
    if event.total_bytes is None:
        return Cause.CAPACITY, Confidence.LOW, "the message was cut: it does not tell what the GPU holds"
    return Cause.CAPACITY, Confidence.HIGH, "PyTorch's own live tensors fill the card"


def is_fragmented(event: OomEvent) -> bool:
    """Idle in the pool: at least the request, and a share of the card that is more than slack."""
    idle, request, total = event.unallocated_bytes, event.requested_bytes, event.total_bytes
    if idle is None or request is None:
        return False
    whole = total if total is not None else (event.allocated_bytes or 0) + idle
    return idle >= request and idle >= IDLE_SHARE * whole


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
    if not in_optimizer or event.phase in (Phase.EVALUATION, Phase.SAVING, Phase.GENERATION):
        return None
    if any(_CLIP.search(name) for name in functions[-6:]):
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
    words = " ".join(_words(frame) for frame in event.frames)
    if _NOT_FOREACH.search(words) or "DeepSpeed" in hints.strategies or "Megatron" in hints.strategies:
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


def _logits(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account
    if event.phase in (Phase.INITIALISATION, Phase.SAVING, Phase.OPTIMIZER_STEP, Phase.FIRST_OPTIMIZER_STEP):
        return None
    shape = logits_shape(event.requested_bytes, hints.vocab_sizes)
    innermost = next(
        (
            frame
            for frame in reversed(event.frames[-7:])
            if _LOSS_NAMES.search(_words(frame)) and "model(" not in frame.code
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
    if shape is not None and hints.vocab_sizes:
        return Cause.LOGITS, Confidence.MEDIUM, f"the size is that of {shape}", Cause.ACTIVATIONS
    assigned = re.search(r"\blogits\s*=", event.nearby)
    any_shape = logits_shape(event.requested_bytes, ())
    if assigned and any_shape is not None:
        return (
            Cause.LOGITS,
            Confidence.LOW,
            f"logits are computed beside the message, and the size is that of {any_shape}",
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


def _named_larger(total: int, hints: Hints) -> str | None:
    """A card that the log names and that holds much more than the runtime shows."""
    for name in hints.gpu_names:
        match = re.search(r"(\d{2,3}) ?G", name)
        if match and int(match[1]) * 10**9 > 1.3 * total and len(hints.gpu_names) == 1:
            return name
    return None


def _is_card(total: int) -> bool:
    size = total / GIB
    return any(-_CARD_SPREAD <= (size - each) / each <= 0.005 for each in _ROUND_CARDS)


def _words(frame: Frame) -> str:
    return f"{frame.function} {frame.code}"
