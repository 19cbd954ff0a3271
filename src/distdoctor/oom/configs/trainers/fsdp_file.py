"""The file that the Hugging Face trainer's `--fsdp_config` names: the JSON of FSDP's own settings, without the rest.

Source: transformers `TrainingArguments.fsdp_config` (min_num_params, transformer_layer_cls_to_wrap, backward_prefetch,
forward_prefetch, limit_all_gathers, use_orig_params, sync_module_states, cpu_ram_efficient_loading,
activation_checkpointing, xla, xla_fsdp_settings, xla_fsdp_grad_ckpt), each with or without the prefix `fsdp_`.
"""

from __future__ import annotations

import re

from distdoctor.oom.configs.fsdp import option, read_fsdp, version_of
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Section
from distdoctor.oom.configs.text.values import as_flag

# Nothing but FSDP's settings has these.
_OWN = frozenset(
    (
        *("transformer_layer_cls_to_wrap", "min_num_params", "xla_fsdp_settings", "xla_fsdp_v2"),
        *("xla_fsdp_grad_ckpt", "limit_all_gathers", "cpu_ram_efficient_loading", "reshard_after_forward"),
        *("auto_wrap_policy", "sharding_strategy", "use_orig_params", "sync_module_states"),
        "forward_prefetch",
    )
)
_SHARED = frozenset(
    (
        *("backward_prefetch", "activation_checkpointing", "xla", "offload_params", "state_dict_type"),
        *("version", "forward_prefetch_policy", "mixed_precision", "mixed_precision_policy"),
    )
)
_KEY = re.compile(r'"(\w+)"\s*:')

# Of the keys of the file, those that are FSDP's. Our own threshold: comments and newer keys stand beside them.
_MIN_SHARE = 0.5


def is_fsdp_file(text: str) -> bool:
    """Whether a JSON text holds FSDP's settings and little else."""
    if not text.lstrip("\ufeff \t\r\n").startswith("{"):
        return False
    keys = set(_KEY.findall(text[:100_000]))
    prefixed = {each for each in keys if each.startswith("fsdp_") and len(each) > len("fsdp_")}
    plain = {each.removeprefix("fsdp_") for each in keys}
    is_named = bool(plain & _OWN) or bool(
        {each.removeprefix("fsdp_") for each in prefixed} & (_OWN | _SHARED)
    )
    known = len(plain & (_OWN | _SHARED))
    # What wraps this section, or is of another family, names itself.
    if plain & {"distributed_type", "zero_optimization", "train_micro_batch_size_per_gpu", "config"}:
        return False
    return is_named and known >= _MIN_SHARE * len(plain)


def read_fsdp_file(reading: Reading, root: Section) -> None:
    """Fill in what the settings say. Which strategy runs, the trainer's `--fsdp` says; these are its details."""
    version = version_of(reading, option(root, "version"))
    told = option(root, "sharding_strategy") or option(root, "reshard_after_forward")
    read_fsdp(reading, root, version=version)
    if told is None:
        reading.implied |= {"strategy", "reshard_after_forward"}
    reading.note("FSDP's settings alone: they take effect with the trainer's `--fsdp`")
    xla = option(root, "xla")
    if xla is not None and as_flag(xla.value):
        reading.note("`xla` takes PyTorch/XLA's FSDP, whose memory is not that of torch's")
