"""Megatron-LM's arguments as a script gives them: which are certain, which depend on something, which are empty."""

from __future__ import annotations

from dataclasses import dataclass, field

from distdoctor.oom.configs.commands.launch_line import Argument
from distdoctor.oom.configs.shell.values import Token, Unknown, UnknownKind
from distdoctor.oom.facts.launch import ConfigKey

# What Megatron-LM (`megatron/training/arguments.py`) and Megatron-DeepSpeed read as numbers: these never stand alone.
NUMBERS = frozenset(
    {
        *(
            "num-layers",
            "hidden-size",
            "ffn-hidden-size",
            "num-attention-heads",
            "num-query-groups",
            "kv-channels",
        ),
        *("seq-length", "max-position-embeddings", "micro-batch-size", "global-batch-size", "vocab-size"),
        *("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"),
        *("expert-model-parallel-size", "expert-tensor-parallel-size", "num-experts", "moe-router-topk"),
        *("moe-ffn-hidden-size", "moe-shared-expert-intermediate-size", "make-vocab-size-divisible-by"),
        *(
            "num-layers-per-virtual-pipeline-stage",
            "num-virtual-stages-per-pipeline-rank",
            "recompute-num-layers",
        ),
        *(
            "kv-lora-rank",
            "q-lora-rank",
            "qk-head-dim",
            "qk-pos-emb-head-dim",
            "v-head-dim",
            "mtp-num-layers",
        ),
        *("train-iters", "train-samples", "lr", "min-lr", "weight-decay", "clip-grad", "zero-stage"),
        *(
            "attention-dropout",
            "hidden-dropout",
            "save-interval",
            "eval-interval",
            "eval-iters",
            "log-interval",
        ),
        *("pad-vocab-size-to", "init-method-std", "adam-beta1", "adam-beta2", "seed"),
    }
)

# Other names of the same arguments, in older versions and in forks.
_ALIASES = {
    "model-parallel-size": "tensor-model-parallel-size",
    "tensor-parallel-size": "tensor-model-parallel-size",
    "pipeline-parallel-size": "pipeline-model-parallel-size",
    "rotary-position-embeddings": "use-rotary-position-embeddings",
}

# Fields of `Settings` that an argument decides: where it is unknown, its default must not stand in for it.
DECIDES: dict[str, tuple[str, ...]] = {
    "tensor-model-parallel-size": ("tp", "etp", "sequence_parallel", "loss_parallel"),
    "pipeline-model-parallel-size": ("pp", "schedule", "virtual_stages"),
    "context-parallel-size": ("cp",),
    "expert-model-parallel-size": ("ep",),
    "expert-tensor-parallel-size": ("etp",),
    "num-layers-per-virtual-pipeline-stage": ("schedule", "virtual_stages"),
    "num-virtual-stages-per-pipeline-rank": ("schedule", "virtual_stages"),
    "micro-batch-size": ("micro_batch",),
    "global-batch-size": ("global_batch",),
    "seq-length": ("seq_len",),
    "sequence-parallel": ("sequence_parallel",),
    "bf16": ("precision", "grads_in_fp32"),
    "fp16": ("precision", "grads_in_fp32"),
    "fp8-format": ("fp8",),
    "use-distributed-optimizer": ("strategy",),
    "use-megatron-fsdp": ("strategy",),
    "use-custom-fsdp": ("strategy",),
    "use-torch-fsdp2": ("strategy",),
    "recompute-granularity": ("checkpointing", "checkpoint_layers"),
    "recompute-activations": ("checkpointing",),
    "recompute-num-layers": ("checkpoint_layers",),
    "optimizer": ("optimizer",),
    "zero-stage": ("strategy",),
    **dict.fromkeys(
        (
            *("num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups"),
            *("group-query-attention", "kv-channels", "swiglu", "untie-embeddings-and-output-weights"),
            *("num-experts", "moe-layer-freq", "moe-ffn-hidden-size", "vocab-size", "multi-latent-attention"),
            *("kv-lora-rank", "q-lora-rank", "mtp-num-layers", "moe-shared-expert-intermediate-size"),
        ),
        ("model",),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One argument that the script gives for certain."""

    text: str
    key: ConfigKey


@dataclass(slots=True, kw_only=True)
class Flags:
    """Arguments of one Megatron command."""

    certain: dict[str, Flag] = field(default_factory=dict)
    unknown: dict[str, tuple[Token, ConfigKey]] = field(default_factory=dict)
    """Given, with a value that the script does not hold."""
    depends: dict[str, tuple[str, ConfigKey]] = field(default_factory=dict)
    """Given in some branch only; the words say which."""
    without_value: dict[str, ConfigKey] = field(default_factory=dict)
    """Arguments that need a value and stand alone."""
    repeated: dict[str, tuple[Flag, Flag]] = field(default_factory=dict)
    """Given twice with different values; the last one counts."""
    extra: list[Unknown] = field(default_factory=list)
    """Variables that may add arguments."""

    def texts(self) -> dict[str, str]:
        """Names and values, for the reading of what they mean."""
        return {name: flag.text for name, flag in self.certain.items()}

    def key(self, name: str) -> ConfigKey | None:
        """Where an argument stands."""
        flag = self.certain.get(name)
        return flag.key if flag is not None else None


def flags_of(arguments: list[Argument], loose: list[Token]) -> Flags:
    """Sorts arguments by how certain they are. The last of several counts, as in argparse."""
    flags = Flags()
    for token in loose:
        flags.extra += _extra(token)
    conditional: dict[str, list[Argument]] = {}
    for argument in arguments:
        name = _ALIASES.get(normal(argument.name), normal(argument.name))
        key = ConfigKey(name=f"--{name}", value=argument.text, line=argument.line)
        if argument.condition is not None:
            conditional.setdefault(name, []).append(argument)
            continue
        _sort(flags, name, argument, key)
    for name, several in conditional.items():
        _sort_conditional(flags, name, several)
    return flags


def normal(name: str) -> str:
    """A name without dashes in front, with dashes inside."""
    return name.lstrip("-").replace("_", "-")


def _sort(flags: Flags, name: str, argument: Argument, key: ConfigKey) -> None:
    values = list(argument.values)
    while values and values[-1].is_all_unknown and (len(values) > 1 or not _needs_value(name)):
        # `--bf16 $EXTRA`: the variable holds more arguments, not a value of a switch.
        flags.extra += _extra(values.pop())
    conditional = next((value for value in values if value.condition is not None), None)
    unknown = next((value for value in values if value.unknowns), None)
    text = " ".join(value.text for value in values) if values else "true"
    if conditional is not None and conditional.condition is not None:
        flags.depends[name] = (f"`{text[:40]}` only where `{conditional.condition.text}`", key)
    elif unknown is not None and _matters(name):
        flags.unknown[name] = (unknown, key)
        flags.certain.pop(name, None)
    elif not values and name in NUMBERS:
        flags.without_value[name] = key
    else:
        flag = Flag(text=text, key=ConfigKey(name=key.name, value=text, line=key.line))
        before = flags.certain.get(name)
        if before is not None and before.text != text:
            flags.repeated[name] = (before, flag)
        flags.certain[name] = flag
        flags.unknown.pop(name, None)


def _sort_conditional(flags: Flags, name: str, several: list[Argument]) -> None:
    """The same in every branch is certain; anything else depends on the branch."""
    first = several[0]
    condition = first.condition
    texts = {argument.text for argument in several}
    key = ConfigKey(name=f"--{name}", value=first.text, line=first.line)
    in_all = condition is not None and {
        (each.condition.group, each.condition.branch)
        for each in several
        if each.condition is not None and not each.condition.is_nested
    } == {(condition.group, branch) for branch in range(condition.num_branches)}
    known = all(argument.is_known for argument in several)
    certain = flags.certain.get(name)
    if known and len(texts) == 1 and (in_all or (certain is not None and certain.text in texts)):
        flags.certain[name] = Flag(text=first.text, key=key)
        return
    words = [
        f"`{argument.text[:40]}` where `{argument.condition.text}`"
        for argument in several[:3]
        if argument.condition is not None
    ]
    flags.certain.pop(name, None)
    flags.depends[name] = (" or ".join(words), key)


def _extra(token: Token) -> list[Unknown]:
    return [each for each in token.unknowns if each.kind is not UnknownKind.COMMAND]


def _needs_value(name: str) -> bool:
    return name in NUMBERS or name in _WORDS


def _matters(name: str) -> bool:
    """Whether its value decides memory. Paths and names of runs may be whatever they are."""
    return name in DECIDES or name in NUMBERS


# Arguments with a value that is no number, as far as launch scripts take it from variables.
_WORDS = frozenset(
    {
        *(
            "tokenizer-type",
            "tokenizer-model",
            "tokenizer-name-or-path",
            "vocab-file",
            "merge-file",
            "data-path",
        ),
        *(
            "save",
            "load",
            "tensorboard-dir",
            "split",
            "data-cache-path",
            "recompute-granularity",
            "recompute-method",
        ),
        *("recompute-modules", "data-parallel-sharding-strategy", "fp8-format", "position-embedding-type"),
        *(
            "normalization",
            "optimizer",
            "moe-layer-freq",
            "attention-backend",
            "transformer-impl",
            "wandb-project",
        ),
        *("wandb-exp-name", "ckpt-format", "deepspeed-config", "lr-decay-style", "distributed-backend"),
        *("moe-token-dispatcher-type", "pipeline-model-parallel-layout", "dataloader-type", "profile-ranks"),
    }
)
