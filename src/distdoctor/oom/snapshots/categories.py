"""What an allocation is for, as far as the names in its stack tell. A snapshot itself holds no such thing.

Rules look from the innermost frame outwards, so that the most specific code that asked decides: FSDP gathering
parameters inside a module's forward is `unsharded parameters`, not `activations`. File and function names are those of
torch 2.1 to 2.13, DeepSpeed 0.19, Megatron-LM and Transformers; a stack that no rule knows is `unknown`, and says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from distdoctor.oom.facts.snapshot import Frame, Stack


class Category(str, Enum):
    """What memory is for."""

    PARAMETERS = "parameters"
    UNSHARDED = "unsharded parameters"
    OPTIMIZER_STATE = "optimizer state"
    OPTIMIZER_STEP = "optimizer step"
    GRADIENTS = "gradients"
    REDUCTION = "gradient reduction buffers"
    ACTIVATIONS = "activations"
    ATTENTION = "attention"
    LOGITS = "logits and loss"
    RECOMPUTED = "recomputed activations"
    BACKWARD = "backward"
    INPUTS = "inputs"
    COMMUNICATION = "communication"
    KV_CACHE = "key-value cache"
    GRAPHS = "CUDA graphs"
    COMPILED = "compiled code"
    CHECKPOINT = "checkpoint saving and loading"
    WORKSPACE = "library workspaces"
    NO_FRAMES = "no stack (mostly backward)"
    UNKNOWN = "unknown"


NOT_TOLD = (Category.NO_FRAMES, Category.UNKNOWN)
"""Categories that say that we cannot tell."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """Matches a frame as `file:function`."""

    category: Category
    pattern: re.Pattern[str]


def _rule(category: Category, pattern: str) -> _Rule:
    return _Rule(category, re.compile(pattern, re.IGNORECASE))


# Told by one frame wherever it stands; the first rule that matches the innermost such frame decides.
_SPECIFIC = (
    # FSDP2 (_fsdp_param, _fsdp_collectives), FSDP1 (_flat_param), DeepSpeed ZeRO-3.
    _rule(
        Category.REDUCTION,
        r"_fsdp_collectives\.py:(?:foreach_reduce|.*reduce_scatter)|_runtime_utils\.py:(?:_reduce_grad|_post_backward|"
        r"_get_reduce_scatter)|_fsdp_param_group\.py:(?:_?post_backward|_?reduce)",
    ),
    _rule(
        Category.UNSHARDED,
        r"_fsdp_param\.py:(?:init_all_gather_outputs|alloc_all_gather_outputs|init_unsharded_param|alloc_storage)|"
        r"_fsdp_collectives\.py:(?:.*all_gather|allocate|split_with_sizes_copy)|_fsdp_param_group\.py:(?:unshard|wait_for_unshard)|"
        r"_?flat_param\.py:(?:_alloc_padded_unsharded|_all_gather_flat_param|unshard\b|pre_unshard)|"
        r"_runtime_utils\.py:(?:_unshard|_pre_forward_unshard)|"
        r"partition_parameters\.py:(?:.*all_?gather|_gather)|partitioned_param_coordinator\.py:|"
        r"fsdp_buffer|megatron_fsdp.*(?:all_gather|unshard)",
    ),
    _rule(
        Category.REDUCTION,
        r"stage_1_and_2\.py:.*(?:ipg|bucket|reduce|average)|stage3\.py:.*(?:ipg|bucket|reduce|partition_grads)|"
        r"nn/parallel/distributed\.py:(?:_ddp_init_helper|__init__)|c10d::Reducer|reducer\.cpp|"
        r"param_and_grad_buffer\.py:",
    ),
    _rule(
        Category.OPTIMIZER_STATE,
        r"optim/[\w/]*\.py:_?init_(?:group|state)|optim.*:_?initialize_(?:optimizer_)?states?|lazy_init_optimizer",
    ),
    _rule(
        Category.OPTIMIZER_STEP,
        r"clip_grad\w*\.py:|:clip_grad_norm|torch/optim/(?!lr_scheduler)\w+\.py:|deepspeed/ops/(?:adam|lamb|lion|muon)|"
        r"apex/optimizers|bitsandbytes/optim|megatron/core/optimizer/|transformer_engine/\w+/optimizers|"
        r"stage_1_and_2\.py:_?(?:optimizer_)?step|stage3\.py:_?(?:optimizer_)?step|foreach_utils|torchao/optim",
    ),
    # Not `compute_loss` and `loss_fn`: trainers call the whole model inside them.
    _rule(
        Category.LOGITS,
        r":(?:vocab_parallel_)?cross_entropy|:log_softmax|:nll_loss|nn/modules/loss\.py:|loss_utils\.py:|cross_entropy\w*\.py:|"
        r":\w*(?:lm_loss|causallmloss)\b|:compute_language_model_loss",
    ),
    _rule(Category.GRAPHS, r"cuda/graphs\.py:|cudagraph_trees\.py:"),
    _rule(Category.KV_CACHE, r"cache_utils\.py:|kv_?cache\w*\.py:|static_cache\w*\.py:|:\w*paged_attention"),
    _rule(
        Category.CHECKPOINT,
        r"distributed/checkpoint/|serialization\.py:|:(?:load_state_dict|_load_from_state_dict|state_dict|full_tensor|"
        r"_full_state_dict|save_checkpoint|load_checkpoint|save_pretrained)\b|safetensors/",
    ),
    _rule(
        Category.PARAMETERS,
        r"nn/init\.py:|nn/modules/module\.py:(?:_apply|convert|to|cuda|to_empty|half|bfloat16|float|register_)|nn/parameter\.py:|"
        r"_fsdp_param\.py:(?:_init_sharded_param|__init__|_init_)|_flat_param\.py:(?:shard|__init__|flatten)|:from_pretrained|"
        r":_?init_weights|:reset_parameters|partition_parameters\.py:(?:_?partition|__init__|_post_init)|:_load_state_dict_into",
    ),
    _rule(Category.WORKSPACE, r"cublas|getWorkspace|getCUDABlasLtWorkspace|cudnn.*workspace"),
    _rule(
        Category.INPUTS,
        r"torch/utils/data/|data_?loader\w*\.py:|:send_to_device|:_prepare_inputs?\b|:get_batch\b|:\w*collate",
    ),
)

# Told only when nothing specific was found.
_RECOMPUTED = re.compile(
    r"utils/checkpoint\.py:(?:recompute|unpack_hook|backward)|activation_checkpoint.*:backward"
)
_BACKWARD = re.compile(
    r"autograd/graph\.py:_engine_run_backward|_tensor\.py:backward|autograd/__init__\.py:backward|"
    r"torch::autograd::|Backward\d?::apply|:_backward_impl|autograd/function\.py:apply_backward|:backward\b"
)
_GRADIENTS = re.compile(r"AccumulateGrad|to_accumulated_grad|accumulate_unsharded_grad|:accumulate_grad")
_COMMUNICATION = re.compile(
    r"distributed_c10d\.py:|_functional_collectives\.py:|ProcessGroup|pipelining/|p2p_communication\.py:"
)
_COMPILED = re.compile(r"torchinductor|_inductor/|<eval_with_key>|_functorch/_aot_autograd/")
_ATTENTION = re.compile(r"attention|attn|\bmha\b|\bmla\b", re.IGNORECASE)
_FORWARD = re.compile(r":forward\b|:_call_impl\b|:_wrapped_call_impl\b|:forward_step\b|nn/functional\.py:")
_MODULE_INIT = re.compile(r"nn/modules/\w+\.py:__init__")


class Known:
    """Answers for the stacks and frames of one snapshot, so that each is looked at once."""

    __slots__ = ("frames", "stacks")

    def __init__(self) -> None:
        self.stacks: dict[int, Category] = {}
        self.frames: dict[str, Category | None] = {}


def category_of(stack: Stack | None, *, known: Known | None = None) -> Category:
    """What the allocation with this stack is for. `known` remembers the answers of one snapshot."""
    if stack is None:
        return Category.NO_FRAMES
    if known is None:
        return _category(stack.frames, {})
    if stack.number not in known.stacks:
        known.stacks[stack.number] = _category(stack.frames, known.frames)
    return known.stacks[stack.number]


def _category(frames: tuple[Frame, ...], known: dict[str, Category | None]) -> Category:
    names = [frame_key(each) for each in frames]
    for name in names:
        if name not in known:
            known[name] = _specific(name)
        found = known[name]
        if found is not None:
            return found
    text = "\n".join(names)
    for category, pattern in (
        (Category.RECOMPUTED, _RECOMPUTED),
        (Category.GRADIENTS, _GRADIENTS),
        (Category.BACKWARD, _BACKWARD),
        (Category.COMMUNICATION, _COMMUNICATION),
    ):
        if pattern.search(text):
            return category
    if _FORWARD.search(text):
        # Only the code that asked: every activation of a transformer is allocated below some attention layer's caller.
        is_attention = any(_ATTENTION.search(each.rsplit("/", 1)[-1]) for each in _own(names)[:2])
        return Category.ATTENTION if is_attention else Category.ACTIVATIONS
    if _MODULE_INIT.search(text):
        return Category.PARAMETERS
    return Category.COMPILED if _COMPILED.search(text) else Category.UNKNOWN


def _specific(name: str) -> Category | None:
    return next((rule.category for rule in _SPECIFIC if rule.pattern.search(name)), None)


def frame_key(frame: Frame) -> str:
    """A frame as the rules see it: `…/torch/nn/modules/linear.py:forward`."""
    return f"{frame.filename}:{frame.name}"


_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/torch/|/lib/python3|^<|\.(?:cpp|cu|cc|cuh|h|hpp|c|S)$|^\?\?|^torch/"
)
_ANY_LIBRARY = re.compile(r"/(?:site|dist)-packages/")


def _own(names: list[str]) -> list[str]:
    """Frames that are neither torch's nor Python's; `scaled_dot_product_attention` is kept where it asked itself."""
    own = [each for each in names if not _LIBRARY.search(each.rsplit(":", 1)[0])]
    asked = [each for each in names[:3] if "attention" in each.rsplit(":", 1)[-1]]
    return asked + own


def is_library(frame: Frame) -> bool:
    """True for frames of torch, of Python and of C++, which say little about who asked."""
    return bool(_LIBRARY.search(frame.filename))


def is_installed(frame: Frame) -> bool:
    """True for frames of any installed package: not the job's own code."""
    return bool(_ANY_LIBRARY.search(frame.filename)) or is_library(frame)
