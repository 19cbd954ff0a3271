"""Several files of one job put together: what each adds, and where two of them contradict each other.

A value that a file says wins over one that only follows from a missing key (`LaunchConfig.implied`). Two files that
say different things are a defect, and the value of the first stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from distdoctor.oom.configs.join_checks import check_together
from distdoctor.oom.configs.parameter_count import parameters_of
from distdoctor.oom.facts.launch import (
    ConfigDefect,
    ConfigFacts,
    ConfigFamily,
    ConfigKey,
    Defect,
    LaunchConfig,
)
from distdoctor.oom.settings import DataParallel, Precision, Settings
from distdoctor.oom.shape import Model

_NAMES = {
    "micro_batch": "the micro-batch",
    "global_batch": "the global batch",
    "accumulation_steps": "the gradient accumulation",
    "seq_len": "the sequence length",
    "world_size": "the number of ranks",
    "num_nodes": "the number of nodes",
    "gpus_per_node": "the ranks of a node",
    "strategy": "the strategy",
    "tp": "tensor parallelism",
    "pp": "pipeline parallelism",
    "cp": "context parallelism",
    "optimizer": "the optimizer",
    "offload_params": "where parameters live",
    "offload_optimizer": "where optimizer states live",
    "checkpointing": "activation checkpointing",
    "model": "the model",
}
# Compared as a type of computation (bf16, fp16), not as the kind of states: files see different halves of those.
_NOT_COMPARED = frozenset(
    {"precision", "optimizer_loop", "grads_in_fp32", "attention", "compiled", "bucket_cap_mib"}
)
_ZERO = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)
# Contradictions that DeepSpeed or the trainer checks at start.
_STOPPING = frozenset({"micro_batch", "accumulation_steps", "global_batch", "strategy"})


def join_configs(
    configs: Sequence[LaunchConfig], given: Settings | None = None
) -> tuple[Settings, tuple[ConfigDefect, ...]]:
    """The settings of all files together, and the contradictions between them (not the files' own defects).
    What is `given` wins, and is no contradiction."""
    values: dict[str, Any] = {}  # by field of Settings, whose types differ
    defects: list[ConfigDefect] = []
    for name in (each.name for each in fields(Settings)):
        if given is not None and getattr(given, name) is not None:
            values[name] = getattr(given, name)
            continue
        said = [(config, getattr(config.settings, name)) for config in configs]
        said = [(config, value) for config, value in said if value is not None]
        if not said:
            continue
        firm = [(config, value) for config, value in said if name not in config.implied] or said
        chosen = _model(firm) if name == "model" else firm[0][1]
        values[name] = chosen
        if name not in _NOT_COMPARED:
            defects += _contradictions(name, firm)
    defects += _types(configs)
    joined = _resolved(Settings(**values), configs)
    defects += check_together(configs, joined)
    return joined, tuple(defects)


def config_facts(configs: Sequence[LaunchConfig], given: Settings | None = None) -> ConfigFacts:
    """Everything that the checks of configurations look at; `given`: what was said beside the files."""
    joined, between = join_configs(configs, given)
    own = tuple(defect for config in configs for defect in config.defects)
    return ConfigFacts(configs=tuple(configs), joined=joined, defects=(*own, *between))


def key_of(config: LaunchConfig, name: str) -> ConfigKey:
    """The key of a file that says a setting, its name with the file's in front."""
    keys = dict(config.setting_keys)
    file = config.path.rsplit("/", 1)[-1]
    key = keys.get(name)
    if key is None:
        return ConfigKey(name=file, value=_shown(getattr(config.settings, name)))
    return ConfigKey(name=f"{file}: {key.name}", value=key.value, line=key.line)


def _shown(value: object) -> str:
    if isinstance(value, Model):
        return value.name
    return str(getattr(value, "value", value))


def _model(said: Sequence[tuple[LaunchConfig, Any]]) -> Model:
    """A config.json is the model itself; otherwise the first with a shape."""
    models: list[tuple[LaunchConfig, Model]] = [(config, value) for config, value in said]
    for config, model in models:
        if config.family is ConfigFamily.HF_MODEL:
            return model
    return next((model for _, model in models if model.shape is not None), models[0][1])


def _contradictions(name: str, said: Sequence[tuple[LaunchConfig, Any]]) -> list[ConfigDefect]:
    first_config, first = said[0]
    other = next(((config, value) for config, value in said[1:] if not _same(name, first, value)), None)
    if other is None:
        return []
    config, value = other
    what = _NAMES.get(name, name.replace("_", " "))
    stops = name in _STOPPING
    return [
        ConfigDefect(
            kind=Defect.CONFLICT,
            title=f"two files disagree on {what}: {_shown(first)[:16]} and {_shown(value)[:16]}"[:80],
            why="They are given as files of one job; which one counts depends on who reads it last, and DeepSpeed and "
            "the trainer stop when theirs differ.",
            fix='make them the same, or write `"auto"` in the DeepSpeed file so that the trainer fills it in',
            keys=(key_of(first_config, name), key_of(config, name)),
            is_certain=name in ("micro_batch", "accumulation_steps", "global_batch", "tp", "pp"),
            stops_job=stops and _deepspeed_and_trainer((first_config, config)),
        )
    ]


def _deepspeed_and_trainer(configs: Sequence[LaunchConfig]) -> bool:
    families = {each.family for each in configs}
    return ConfigFamily.DEEPSPEED in families and len(families) > 1


def _same(name: str, one: Any, other: Any) -> bool:
    """Any: the fields of Settings have different types."""
    if name == "model":
        first, second = parameters_of(one), parameters_of(other)
        if first is None or second is None:
            return True
        # The same model by two names; heads padded or a vocabulary of its own change less than this.
        return abs(first - second) <= 0.02 * max(first, second)
    return bool(one == other)


def _types(configs: Sequence[LaunchConfig]) -> list[ConfigDefect]:
    """bf16 against fp16; fp32 that only follows from a missing key gives way."""
    said = [
        each
        for each in configs
        if each.dtype in ("bf16", "fp16") or (each.dtype and "precision" not in each.implied)
    ]
    if len({each.dtype for each in said}) < 2:
        return []
    first = said[0]
    other = next(each for each in said if each.dtype != first.dtype)
    return [
        ConfigDefect(
            kind=Defect.CONFLICT,
            title=f"two files disagree on the type: {first.dtype} and {other.dtype}",
            why="DeepSpeed and the trainer stop when their types differ; elsewhere the last one that is read counts.",
            fix='keep one type, or write `"enabled": "auto"` in the DeepSpeed file',
            keys=(key_of(first, "precision"), key_of(other, "precision")),
            stops_job=_deepspeed_and_trainer((first, other)),
        )
    ]


def _resolved(settings: Settings, configs: Sequence[LaunchConfig]) -> Settings:
    """What only all files together determine."""
    dtype = next((each.dtype for each in configs if each.dtype in ("bf16", "fp16")), None)
    if (
        settings.strategy in _ZERO
        and dtype is not None
        and settings.precision in (None, Precision.MIXED, Precision.FP32)
    ):
        # Below DeepSpeed the trainer's bf16 means 16-bit parameters with an fp32 master copy.
        said = [each for each in configs if each.family is ConfigFamily.DEEPSPEED and each.settings.precision]
        if not any(each.settings.precision is Precision.MIXED for each in said):
            settings = replace(settings, precision=Precision.MASTER)
    if settings.world_size is None and settings.num_nodes and settings.gpus_per_node:
        settings = replace(settings, world_size=settings.num_nodes * settings.gpus_per_node)
    shape = settings.model.shape if settings.model is not None else None
    if shape is not None and any(each.in_hf for each in configs):
        settings = _automatic_buffers(settings, shape.hidden_size, configs)
    return settings


def _automatic_buffers(settings: Settings, hidden: int, configs: Sequence[LaunchConfig]) -> Settings:
    """transformers, integrations/deepspeed.py: what "auto" becomes for DeepSpeed's buffers."""
    is_auto = {point.settles for each in configs for point in each.open_points}
    becomes = {
        "reduce_bucket_elements": hidden * hidden,
        "prefetch_bucket_elements": int(0.9 * hidden * hidden),
        "persistence_threshold_elements": 10 * hidden,
    }
    return replace(
        settings,
        **{  # type: ignore[arg-type]  # all of these fields are numbers of elements
            name: value
            for name, value in becomes.items()
            if name in is_auto and getattr(settings, name) is None
        },
    )
