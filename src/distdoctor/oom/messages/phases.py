"""In which phase of the job memory was refused: from the traceback, and from the steps that the log shows before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from distdoctor.oom.facts.events import Frame, Phase


class Part(str, Enum):
    """Part of a step, or of the job, that a traceback shows."""

    SAVING = "saving"
    EVALUATION = "evaluation"
    GENERATION = "generation"
    OPTIMIZER = "optimizer step"
    BACKWARD = "backward"
    FORWARD = "forward"
    INITIALISATION = "initialisation"


# Names of functions that say so by themselves, in PyTorch, Transformers, Lightning, DeepSpeed, Megatron, FairScale,
# TorchTitan and vLLM. The first row that matches counts: evaluation runs forward passes, a step holds everything.
_SAVING = re.compile(
    r"^_?(?:save_checkpoint|save_model|save_pretrained|save_state|save_full_model|save|async_save|optim_state_dict|full_optim_state_dict"
    r"|get_state_dict|get_model_state_dict|full_state_dict|consolidated?\w*|_zero3_consolidated_16bit_state_dict|save_16bit_model"
    r"|_full_post_state_dict_hook|_save_checkpoint|export\w*|merge_and_unload|merge_and_save|get_full_state_dict)$"
)
_EVALUATION = re.compile(
    r"^_?(?:evaluate|evaluate_and_print_results|evaluation_loop|evaluation_step|eval_step|eval_loop|eval_epoch|run_eval\w*|do_eval|validate"
    r"|validation_step|_?run_validation|_run_sanity_check|run_sanity_check|prediction_step|prediction_loop|predict_step|test_step"
    r"|compute_metrics|val_step|validation_loop|valid_step|_maybe_evaluate|val_epoch)$"
)
_WARM_UP = re.compile(
    r"^(?:profile_run|determine_num_available_blocks|determine_available_memory|_dummy_run|_dummy_sampler_run|capture_model|capture"
    r"|initialize_kv_caches?|initialize_cache|_allocate_kv_cache\w*|init_memory_pool|warmup\w*|compile_or_warm_up_model|kernel_warmup"
    r"|init_cuda_graphs|_initialize_kv_caches|initialize_from_config)$"
)
_GENERATION = re.compile(
    r"^(?:generate|_generate|generate_sequences|execute_model|_sample|sample|beam_search|decode|_decode|rollout\w*|greedy_search|run_batch|forward_extend)$"
)
_OPTIMIZER = re.compile(
    r"^(?:optimizer_step|step_param_groups|_take_model_step|_init_group|_init_states?|_single_tensor_\w+|_multi_tensor_\w+|_fused_\w+"
    r"|_foreach_\w+|clip_grad_norm_?|_clip_grad\w*|clip_grads_with_norm_|step_with_ready_grads|prepare_grads|_copy_model_grads_to_main_grads"
    r"|_optimizer_step|adamw?|unscale_grads?_?|get_total_norm|optimizer_zero_grad|initialize_optimizer_states|_adamw?_step|_unscale_grads_)$"
)
_OPTIMIZER_FILE = re.compile(
    r"(?:^|/)(?:optim|optimizers?)/|optimizer\.py$|stage_?(?:1_and_2|3)\.py$|(?:adam|lamb|lion|muon|adafactor|shampoo)\w*\.py$|bf16_optimizer|fused_optimizer"
)
_OPTIMIZER_CODE = re.compile(
    r"\b\w*opt(?:im(?:izer)?s?)?(?:\[[^\]]{1,30}\])*\)?\.step\(|\[['\"]optimizer['\"]\]\.step\(|optimizer\.step|\bscaler\.step\(|clip_grad_norm_?\("
)
_BACKWARD = re.compile(
    r"^(?:backward|_engine_run_backward|run_backward|backward_step|_backward|manual_backward|backward_one_chunk|stage_backward|backward_pass|backward_epilogue)$"
)
_BACKWARD_CODE = re.compile(r"\.backward\(|run_backward\(|autograd\.grad\(")
_FORWARD = re.compile(
    r"^(?:forward|_call_impl|_wrapped_call_impl|forward_step|_forward|forward_one_chunk|forward_pass|compute_loss|_fwd_\w*|forward_call|custom_forward|forward_backward_\w+|training_step)$"
)
_FORWARD_CODE = re.compile(
    r"\bself\._?model\(|\bmodel\(|logits\s*=|outputs?\s*=\s*\w*model|F\.(?:cross_entropy|linear|softmax|scaled_dot)"
)
_INITIALISATION = re.compile(
    r"^(?:from_pretrained|_load_pretrained_model|_load_state_dict_into_\w+|load_state_dict|load_checkpoint|_load_checkpoint|load_model\w*|load_weights"
    r"|_load_\w+|init_process_group|new_group|set_device|_lazy_init|initialize|init_model\w*|setup_model\w*|create_weights|build_model|get_model\w*"
    r"|model_provider|_configure_distributed_model|_configure_zero_optimizer|_configure_optimizer|prepare|prepare_model|_prepare_\w+|fully_shard"
    r"|auto_wrap|_recursive_wrap|_auto_wrap|_init_param_handle_\w+|_init_\w*|__init__|to|cuda|_apply|convert|to_empty|reset_parameters|materialize\w*"
    r"|set_module_tensor_to_device|dispatch_model|load_sharded_checkpoint|manual_seed|manual_seed_all|_move_\w+|broadcast_coalesced|_sync_module_\w+"
    r"|_sync_params_and_buffers|_verify_param_shape_across_processes|barrier|monitored_barrier|init_device|current_stream|_create_fp16_partitions\w*"
    r"|init_distributed|setup_training_\w*|load|restore\w*|resume\w*|_initialize_\w+|partition_parameters|init_cuda|warm_?up_process_group)$"
)
# `nn.Module.to` and its like, when nothing of a step stands above them.
_MOVES = re.compile(
    r"\.to\(|\.cuda\(|from_pretrained\(|load_state_dict\(|torch\.load\(|init_process_group\(|FullyShardedDataParallel\(|\bFSDP\(|fully_shard\(|\bDDP\(|deepspeed\.initialize\(|set_device\(|\bbarrier\(|load_checkpoint\("
)

_ROWS: tuple[tuple[Part, re.Pattern[str], re.Pattern[str] | None], ...] = (
    (Part.INITIALISATION, _WARM_UP, None),
    (Part.EVALUATION, _EVALUATION, None),
    (Part.SAVING, _SAVING, None),
    (Part.OPTIMIZER, _OPTIMIZER, _OPTIMIZER_CODE),
    (Part.BACKWARD, _BACKWARD, _BACKWARD_CODE),
    (Part.GENERATION, _GENERATION, None),
    (Part.FORWARD, _FORWARD, _FORWARD_CODE),
    (Part.INITIALISATION, _INITIALISATION, _MOVES),
)

# Words right before a message without a traceback ("ran out of memory in the forward pass").
_WORDS = re.compile(
    r"\b(?:in|during|on|while) (?:the )?(?P<what>forward|backward|evaluation|validation|checkpoint saving|optimizer step)\b"
)


def part_of(frames: Sequence[Frame], nearby: str) -> tuple[Part | None, str]:
    """Which part of the job the traceback shows, and the frame that says so."""
    for part, names, code in _ROWS:
        for frame in reversed(frames):
            if (
                part is Part.OPTIMIZER
                and frame.function in ("step", "_step")
                and _OPTIMIZER_FILE.search(frame.file)
            ):
                return part, f"`{frame.function}` in {_short(frame.file)}"
            if names.match(frame.function) and not _is_misleading(part, frame):
                return part, f"`{frame.function}` in {_short(frame.file)}"
            if code is not None and frame.code and code.search(frame.code) and "scheduler" not in frame.code:
                return part, f"`{frame.code[:60]}` in {_short(frame.file)}"
    if match := _WORDS.search(nearby):
        word = match["what"]
        part = {
            "forward": Part.FORWARD,
            "backward": Part.BACKWARD,
            "evaluation": Part.EVALUATION,
            "validation": Part.EVALUATION,
            "checkpoint saving": Part.SAVING,
        }.get(word, Part.OPTIMIZER)
        return part, f"the words `{match.group()}` beside the message"
    if not frames:
        for part, code in ((Part.OPTIMIZER, _OPTIMIZER_CODE), (Part.BACKWARD, _BACKWARD_CODE)):
            if match := code.search(nearby):
                return part, f"`{match.group().strip()}` beside the message"
    if frames:
        return None, "the traceback shows no part of a step"
    return None, "no traceback beside the message"


def _is_misleading(part: Part, frame: Frame) -> bool:
    """Names that mean something else in another library."""
    if part is Part.OPTIMIZER:
        return frame.function == "prepare_grads" and "optim" not in frame.file
    if part is Part.SAVING and frame.function == "save":
        return "torch/autograd" in frame.file
    if part is Part.GENERATION and frame.function in ("sample", "_sample", "decode", "_decode"):
        return "generation" not in frame.file and "vllm" not in frame.file and "sglang" not in frame.file
    return False


def phase_of(part: Part | None, why: str, steps_before: int | None) -> tuple[Phase, str]:
    """The phase, with its reason. Without step lines in the log, "forward" stays "forward": which step is not known."""
    match part:
        case Part.SAVING:
            return Phase.SAVING, why
        case Part.EVALUATION:
            return Phase.EVALUATION, why
        case Part.GENERATION:
            return Phase.GENERATION, why
        case Part.INITIALISATION:
            return Phase.INITIALISATION, why
        case None:
            if steps_before is not None and steps_before >= 1:
                phase = Phase.SECOND_STEP if steps_before == 1 else Phase.LATER_GROWTH
                return phase, f"the log shows {_steps(steps_before)} done before"
            return Phase.UNKNOWN, why
        case Part.FORWARD | Part.BACKWARD | Part.OPTIMIZER:
            return _in_a_step(part, why, steps_before)


def _in_a_step(part: Part, why: str, steps_before: int | None) -> tuple[Phase, str]:
    if "`_init_group`" in why and (steps_before or 0) <= 1:
        # States are made when a parameter is stepped for the first time; a log may count, or print, before that.
        return Phase.FIRST_OPTIMIZER_STEP, f"{why}, which makes the states"
    if steps_before is None:
        phase = {Part.FORWARD: Phase.FORWARD, Part.BACKWARD: Phase.BACKWARD}.get(part, Phase.OPTIMIZER_STEP)
        return phase, f"{why}; the log shows no steps"
    told = f"{why}; the log shows {_steps(steps_before)} done before"
    if steps_before == 0:
        first = {Part.FORWARD: Phase.FIRST_FORWARD, Part.BACKWARD: Phase.FIRST_BACKWARD}
        return first.get(part, Phase.FIRST_OPTIMIZER_STEP), told
    return (Phase.SECOND_STEP if steps_before == 1 else Phase.LATER_GROWTH), told


def _steps(number: int) -> str:
    return f"{number:,} step{'' if number == 1 else 's'}"


def _short(file: str) -> str:
    return "/".join(file.replace("\\", "/").split("/")[-3:])
