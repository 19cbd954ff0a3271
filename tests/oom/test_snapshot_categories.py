"""What memory is for is told by the innermost frame that says so, and `unknown` where none does."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from distdoctor.oom.facts.snapshot import Frame, Stack
from distdoctor.oom.snapshots.categories import Category, Known, category_of
from distdoctor.oom.snapshots.stack_text import NO_STACK, stack_text

T = "/opt/venv/lib/python3.11/site-packages/torch/"
S = "/opt/venv/lib/python3.11/site-packages/"

MODULE = (f"{T}nn/modules/module.py:1762:_call_impl", f"{T}nn/modules/module.py:1751:_wrapped_call_impl")
TRAIN = ("/job/train.py:210:train_step", "/job/train.py:300:main")
FORWARD = (*MODULE, "/job/model.py:88:forward", *MODULE, *TRAIN)


def stack(*frames: str, number: int = 0) -> Stack:
    parts = (each.split(":", 2) for each in frames)
    return Stack(tuple(Frame(file, int(line), name) for file, line, name in parts), number)


CASES = {
    "linear": (Category.ACTIVATIONS, f"{T}nn/modules/linear.py:134:forward", *FORWARD),
    "own module": (Category.ACTIVATIONS, "/job/model.py:41:forward", *MODULE, *TRAIN),
    "attention by function": (
        Category.ATTENTION,
        f"{T}nn/functional.py:6000:scaled_dot_product_attention",
        "/job/model.py:41:forward",
        *MODULE,
        *TRAIN,
    ),
    "attention by file": (Category.ATTENTION, "/job/layers/attention.py:41:forward", *MODULE, *TRAIN),
    "a folder called attention is no attention": (
        Category.ACTIVATIONS,
        "/home/attention-study/model.py:41:forward",
        *MODULE,
        *TRAIN,
    ),
    "loss": (Category.LOGITS, f"{T}nn/functional.py:3500:cross_entropy", "/job/train.py:90:step"),
    "loss module": (Category.LOGITS, f"{T}nn/modules/loss.py:1297:forward", *FORWARD),
    "a trainer's compute_loss calls the whole model": (
        Category.ACTIVATIONS,
        f"{T}nn/modules/linear.py:134:forward",
        *MODULE,
        f"{S}transformers/models/llama/modeling_llama.py:800:forward",
        f"{S}transformers/trainer.py:3700:compute_loss",
    ),
    "adam state": (
        Category.OPTIMIZER_STATE,
        f"{T}optim/adam.py:173:_init_group",
        f"{T}optim/adam.py:238:step",
        f"{T}optim/optimizer.py:500:wrapper",
        *TRAIN,
    ),
    "adam step": (Category.OPTIMIZER_STEP, f"{T}optim/adam.py:690:_multi_tensor_adam", *TRAIN),
    "clipping": (Category.OPTIMIZER_STEP, f"{T}nn/utils/clip_grad.py:80:_get_total_norm", *TRAIN),
    "fsdp2 gather in forward": (
        Category.UNSHARDED,
        f"{T}distributed/fsdp/_fully_shard/_fsdp_param.py:827:alloc_all_gather_outputs",
        f"{T}distributed/fsdp/_fully_shard/_fsdp_collectives.py:470:foreach_all_gather_copy_out",
        f"{T}distributed/fsdp/_fully_shard/_fsdp_param_group.py:340:wait_for_unshard",
        *FORWARD,
    ),
    "fsdp2 of torch 2.4": (
        Category.UNSHARDED,
        f"{T}distributed/_composable/fsdp/_fsdp_collectives.py:60:foreach_all_gather",
        *FORWARD,
    ),
    "fsdp2 reduce": (
        Category.REDUCTION,
        f"{T}distributed/fsdp/_fully_shard/_fsdp_collectives.py:560:foreach_reduce",
    ),
    "fsdp1 gather": (
        Category.UNSHARDED,
        f"{T}distributed/fsdp/_flat_param.py:1400:_alloc_padded_unsharded_flat_param",
        f"{T}distributed/fsdp/_flat_param.py:1359:unshard",
        *FORWARD,
    ),
    "fsdp2 shards": (
        Category.PARAMETERS,
        f"{T}distributed/fsdp/_fully_shard/_fsdp_param.py:300:_init_sharded_param",
        "/job/train.py:20:build",
    ),
    "zero-3 gather": (
        Category.UNSHARDED,
        f"{S}deepspeed/runtime/zero/partition_parameters.py:1200:all_gather_coalesced",
        f"{S}deepspeed/runtime/zero/partitioned_param_coordinator.py:300:fetch_sub_module",
        *FORWARD,
    ),
    "zero-2 bucket": (
        Category.REDUCTION,
        f"{S}deepspeed/runtime/zero/stage_1_and_2.py:900:reduce_independent_p_g_buckets_and_remove_grads",
    ),
    "ddp bucket in C++": (Category.REDUCTION, "??:0:c10d::Reducer::initialize_buckets(std::vector)"),
    "model to device": (
        Category.PARAMETERS,
        f"{T}nn/modules/module.py:1200:convert",
        f"{T}nn/modules/module.py:930:_apply",
        f"{T}nn/modules/module.py:1210:to",
        "/job/train.py:20:build",
    ),
    "layer made on the device": (
        Category.PARAMETERS,
        f"{T}nn/modules/linear.py:105:__init__",
        "/job/model.py:9:__init__",
    ),
    "recomputation": (
        Category.RECOMPUTED,
        f"{T}nn/modules/linear.py:134:forward",
        *MODULE,
        f"{T}utils/checkpoint.py:1130:recompute_fn",
        f"{T}utils/checkpoint.py:1135:unpack_hook",
    ),
    "backward in python": (
        Category.BACKWARD,
        "/job/ops.py:50:backward",
        f"{T}autograd/function.py:310:apply",
    ),
    "backward in C++": (Category.BACKWARD, "??:0:torch::autograd::Engine::evaluate_function"),
    "gradients in C++": (Category.GRADIENTS, "??:0:torch::autograd::AccumulateGrad::apply"),
    "data": (Category.INPUTS, f"{T}utils/data/_utils/pin_memory.py:60:pin_memory", *TRAIN),
    "a job in a folder called data_loader": (Category.UNKNOWN, "/job/data_loader/train.py:3:main"),
    "kv cache": (Category.KV_CACHE, f"{S}transformers/cache_utils.py:450:update", *FORWARD),
    "graphs": (Category.GRAPHS, f"{T}cuda/graphs.py:150:capture_begin", *TRAIN),
    "saving": (
        Category.CHECKPOINT,
        f"{T}distributed/checkpoint/state_dict.py:400:_get_model_state_dict",
        *TRAIN,
    ),
    "collective": (Category.COMMUNICATION, f"{T}distributed/distributed_c10d.py:3000:all_reduce", *TRAIN),
    "compiled": (Category.COMPILED, "/tmp/torchinductor_u/ab/cabc.py:60:call", *TRAIN),
    "a script": (Category.UNKNOWN, "/job/train.py:3:main"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_stack_tells_what_its_memory_is_for(name: str) -> None:
    category, *frames = CASES[name]
    assert category_of(stack(*frames)) is category
    assert category_of(stack(*frames), known=Known()) is category


def test_no_stack_is_told_as_such() -> None:
    assert category_of(None) is Category.NO_FRAMES


TORCH_FUNCTIONS = {
    "distributed/fsdp/_fully_shard/_fsdp_param.py": (
        "init_all_gather_outputs",
        "alloc_all_gather_outputs",
        "init_unsharded_param",
        "_init_sharded_param",
        "alloc_storage",
    ),
    "distributed/fsdp/_fully_shard/_fsdp_collectives.py": (
        "foreach_all_gather",
        "foreach_all_gather_copy_out",
        "foreach_reduce",
    ),
    "distributed/fsdp/_fully_shard/_fsdp_param_group.py": ("unshard", "wait_for_unshard", "post_backward"),
    "distributed/fsdp/_flat_param.py": (
        "_alloc_padded_unsharded_flat_param",
        "_all_gather_flat_param",
        "unshard",
    ),
    "distributed/fsdp/_runtime_utils.py": ("_unshard", "_reduce_grad"),
    "optim/adam.py": ("_init_group", "_multi_tensor_adam"),
    "nn/utils/clip_grad.py": ("_get_total_norm", "clip_grad_norm_"),
    "utils/checkpoint.py": ("unpack_hook",),
    "autograd/graph.py": ("_engine_run_backward",),
    "nn/functional.py": ("cross_entropy",),
    "nn/modules/module.py": ("_apply", "_call_impl", "convert"),
}


@pytest.mark.parametrize("file", TORCH_FUNCTIONS)
def test_the_functions_that_rules_name_are_in_this_torch(file: str) -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("torch is not installed, so its sources cannot be looked at")
    path = Path(spec.origin).parent / file
    if not path.exists():
        pytest.skip(f"this torch has no {file}")
    names = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
    assert set(TORCH_FUNCTIONS[file]) <= names


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        (
            (f"{T}nn/modules/linear.py:134:forward", *FORWARD),
            "linear.py:134 forward < model.py:88 forward < train.py:210 train_step < train.py:300 main",
        ),
        (
            (f"{S}transformers/models/llama/modeling_llama.py:800:forward", *MODULE),
            "modeling_llama.py:800 forward",
        ),
        (("??:0:at::native::empty_cuda", f"{T}nn/functional.py:9:linear"), "functional.py:9 linear"),
        (("??:0:c10d::Reducer::initialize_buckets",), "c10d::Reducer::initialize_buckets"),
        (MODULE, "module.py:1762 _call_impl < module.py:1751 _wrapped_call_impl"),
    ],
)
def test_a_stack_is_shown_by_the_frames_that_say_who_asked(frames: tuple[str, ...], text: str) -> None:
    assert stack_text(stack(*frames)) == text


def test_no_stack_is_shown_as_such() -> None:
    assert stack_text(None) == NO_STACK
