"""A Megatron-LM job from its arguments: what they determine, what they leave open, what contradicts itself.

The meaning of each argument is in megatron_args.py; this module puts it into words and keeps defaults of arguments
whose value is unknown out of the settings.
"""

from __future__ import annotations

from dataclasses import fields, replace

from distdoctor.oom.configs.commands.reasons import reason_of, unknown_reason
from distdoctor.oom.configs.megatron.args import settings_from_megatron_args
from distdoctor.oom.configs.megatron.deepspeed import read_deepspeed
from distdoctor.oom.configs.megatron.flags import DECIDES, Flags
from distdoctor.oom.configs.megatron.rules import check_megatron
from distdoctor.oom.configs.megatron.vocabulary import with_published_vocabulary
from distdoctor.oom.configs.parameter_count import parameters_of
from distdoctor.oom.configs.reading import Reading, how
from distdoctor.oom.configs.shell.values import UnknownKind
from distdoctor.oom.facts.launch import ConfigKey, Defect
from distdoctor.oom.settings import Checkpointing, DataParallel, Settings
from distdoctor.oom.shape import Model

# Megatron-LM's arguments among those of other programs: two of them are proof enough.
MARKS = frozenset(
    {
        *("num-layers", "hidden-size", "num-attention-heads", "tensor-model-parallel-size"),
        *(
            "pipeline-model-parallel-size",
            "micro-batch-size",
            "global-batch-size",
            "use-distributed-optimizer",
        ),
        *("use-mcore-models", "context-parallel-size", "expert-model-parallel-size", "recompute-granularity"),
        *("max-position-embeddings", "seq-length", "untie-embeddings-and-output-weights", "moe-router-topk"),
    }
)

_STRATEGY_WORDS = {
    DataParallel.MEGATRON: "Megatron's data parallelism: every rank keeps all optimizer states of its shard of the model",
    DataParallel.MEGATRON_DISTRIBUTED: "Megatron's distributed optimizer: its states are sharded over data-parallel ranks",
    DataParallel.MEGATRON_FSDP: "Megatron-FSDP",
    DataParallel.FSDP: "torch FSDP2 inside Megatron-LM",
    DataParallel.ZERO1: "DeepSpeed ZeRO-1",
    DataParallel.ZERO2: "DeepSpeed ZeRO-2",
    DataParallel.ZERO3: "DeepSpeed ZeRO-3",
    DataParallel.DDP: "DeepSpeed without ZeRO",
}


def read_megatron(reading: Reading, flags: Flags) -> None:
    """Fill `reading` from a Megatron command's arguments; ranks must have been read before."""
    texts = flags.texts()
    if "pad-vocab-size-to" in texts and "vocab-size" not in texts:
        texts["vocab-size"] = texts["pad-vocab-size-to"]
    if "checkpoint-activations" in texts and "recompute-granularity" not in texts:
        texts["recompute-granularity"] = "full"  # Megatron-LM before 2022, Megatron-DeepSpeed
    found = settings_from_megatron_args(texts)
    hidden = _hidden_fields(flags)
    opens = list(found.open_points)
    model = found.settings.model
    published = with_published_vocabulary(model) if model is not None else None
    if published is not None:
        found = replace(found, settings=replace(found.settings, model=published))
        opens = [each for each in opens if each.what != "vocabulary"]
        reading.note(published.notes[-1])
    _fill(reading, found.settings, set(found.implied), hidden, flags)
    read_deepspeed(reading, flags)
    _open_points(reading, flags)
    for point in opens:
        if point.what == "vocabulary":
            # No `settles`: the model's other sizes are known, and this must not look settled by them.
            reading.leave_open("the vocabulary", point.why, how_to="`--vocab-size N`, or `--model …`")
        elif not (point.settles == "model" and "model" in hidden):
            reading.leave_open(point.what, point.why, settles=point.settles)
    for reason in found.not_covered:
        reading.note(f"memory is not computed for this job: {reason}")
    _statements(reading, flags)
    _empty_values(reading, flags)
    check_megatron(reading, flags)


def _hidden_fields(flags: Flags) -> set[str]:
    """Fields whose argument is there and whose value is not known."""
    names = [*flags.unknown, *flags.depends, *flags.without_value]
    return {name for flag in names for name in DECIDES.get(flag, ())}


def _fill(reading: Reading, settings: Settings, implied: set[str], hidden: set[str], flags: Flags) -> None:
    keys = {name: flag for flag, names in DECIDES.items() for name in names if flag in flags.certain}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if value is None or each.name in hidden:
            continue
        key = flags.key(keys[each.name]) if each.name in keys else None
        reading.set(each.name, value, key, implied=each.name in implied)
    if "world_size" not in hidden and settings.world_size is not None:
        reading.set("world_size", settings.world_size, flags.key("world-size"))


def _open_points(reading: Reading, flags: Flags) -> None:
    for name, (token, _) in flags.unknown.items():
        settles = DECIDES.get(name, (None,))[0]
        if settles is None:
            continue
        reading.leave_open(f"--{name}", reason_of(token), settles=settles, how_to=_how(name, settles))
    for name, (words, _) in flags.depends.items():
        settles = DECIDES.get(name, (None,))[0]
        if settles is not None:
            reading.leave_open(f"--{name}", words, settles=settles, how_to=_how(name, settles))
    names = list(dict.fromkeys(each.shown for each in flags.extra))
    if names:
        reading.note(f"{', '.join(names[:4])} may add arguments that are not in this file")


def _how(name: str, settles: str) -> str:
    if settles in ("tp", "pp", "cp", "ep", "etp"):
        return f"`--mesh {settles}=N`"
    if settles == "model":
        return f"give a number for `--{name}` in the script, or `--model …`"
    return how(settles)


def _statements(reading: Reading, flags: Flags) -> None:
    model = reading.get("model")
    if isinstance(model, Model) and model.shape is not None:
        shape = model.shape
        count = parameters_of(model) if shape.vocab_size else None
        size = f"{count / 1e9:.2f}B parameters" if count else "a model whose vocabulary is not known"
        experts = f", {shape.moe.num_experts} experts" if shape.moe else ""
        predictions = f", {shape.num_mtp_layers} prediction layer" if shape.num_mtp_layers else ""
        reading.say(
            "model",
            f"{size}: {shape.num_layers} layers, hidden size {shape.hidden_size}, {shape.num_heads} heads"
            f"{experts}{predictions}",
            *_keys(flags, "num-layers", "hidden-size", "num-attention-heads", "num-experts"),
        )
    strategy = reading.get("strategy")
    if strategy is not None and all(each.topic != "strategy" for each in reading.statements):
        words = _STRATEGY_WORDS.get(strategy, str(strategy.value))
        sharding = flags.certain.get("data-parallel-sharding-strategy")
        if strategy is DataParallel.MEGATRON_FSDP and sharding is not None:
            words += f", sharding {sharding.text}{_FSDP_LIKE.get(sharding.text, '')}"
        reading.say(
            "strategy", words, *_keys(flags, "use-distributed-optimizer", "use-megatron-fsdp", "zero-stage")
        )
    degrees = [(name.upper(), reading.get(name)) for name in ("tp", "pp", "cp", "ep")]
    said = [
        f"{name} {size}" for name, size in degrees if size is not None and (size > 1 or name in ("TP", "PP"))
    ]
    data = data_parallel(reading)
    if data is not None:
        said.append(f"data parallel {data}")
    if said and reading.get("tp") is not None and reading.get("pp") is not None:
        reading.say(
            "mesh",
            " x ".join(said),
            *_keys(
                flags, "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"
            ),
        )
    _batch_statement(reading, flags)
    _types_statement(reading, flags)
    _activation_statement(reading, flags)


_FSDP_LIKE = {
    "optim_grads_params": " (as ZeRO-3)",
    "optim_grads": " (as ZeRO-2)",
    "optim": " (as ZeRO-1)",
    "no_shard": " (nothing is sharded)",
}


def _batch_statement(reading: Reading, flags: Flags) -> None:
    parts = [
        f"{words} {reading.get(name)}"
        for name, words in (
            ("micro_batch", "micro-batch"),
            ("global_batch", "global batch"),
            ("seq_len", "sequences of"),
        )
        if reading.get(name) is not None
    ]
    if parts:
        reading.say(
            "batch", ", ".join(parts), *_keys(flags, "micro-batch-size", "global-batch-size", "seq-length")
        )


def _types_statement(reading: Reading, flags: Flags) -> None:
    for name in ("bf16", "fp16"):
        if name in flags.certain:
            reading.dtype = name
            fp8 = flags.certain.get("fp8-format")
            words = f"{name}{f', matrix products in fp8 ({fp8.text})' if fp8 else ''}"
            if fp8 is not None:
                words += "; optimizer states keep their size"
            reading.say("precision", words, *_keys(flags, name, "fp8-format", "fp8-param-gather"))
            return


def _activation_statement(reading: Reading, flags: Flags) -> None:
    kind = reading.get("checkpointing")
    if kind is Checkpointing.FULL:
        reading.say(
            "activations",
            "all activations are computed again",
            *_keys(flags, "recompute-granularity", "checkpoint-activations"),
        )
    elif kind is Checkpointing.SELECTIVE:
        modules = flags.certain.get("recompute-modules")
        what = modules.text if modules is not None else "core attention"
        reading.say(
            "activations",
            f"computed again: {what}",
            *_keys(flags, "recompute-granularity", "recompute-activations", "recompute-modules"),
        )


def data_parallel(reading: Reading) -> int | None:
    """Ranks that see different sequences; None when the ranks or a degree is unknown, or they do not divide."""
    world = reading.get("world_size")
    degrees = [reading.get(name) for name in ("tp", "pp", "cp")]
    if world is None or any(degree is None for degree in degrees):
        return None
    product = degrees[0] * degrees[1] * degrees[2]
    return world // product if product and world % product == 0 else None


def _empty_values(reading: Reading, flags: Flags) -> None:
    """Arguments that Megatron would meet without a value."""
    not_taken = {
        name: (token, key)
        for name, (token, key) in flags.unknown.items()
        if any(each.kind is UnknownKind.NOT_TAKEN for each in token.unknowns)
    }
    if not_taken:
        names = ", ".join(f"--{name}" for name in not_taken)
        count = len(not_taken)
        reasons = [
            f"`{each.shown}` is {unknown_reason(each)}"
            for token, _ in not_taken.values()
            for each in token.unknowns
            if each.kind is UnknownKind.NOT_TAKEN
        ]
        reading.defect(
            Defect.EMPTY_VALUE,
            f"{names} would get no value" if len(names) < 60 else f"{count} arguments would get no value",
            *(key for _, key in not_taken.values()),
            why="; ".join(dict.fromkeys(reasons))[:600]
            + ". Unless the caller exports them, Megatron-LM ends with `expected one argument`.",
            fix="give the variables a default that no condition guards, as in `${TP:-1}`",
            sure=False,
            stops=True,
        )
    for name, key in flags.without_value.items():
        reading.defect(
            Defect.EMPTY_VALUE,
            f"--{name} has no value",
            key,
            why="Megatron-LM ends with `expected one argument`.",
            fix=f"give `--{name}` a number",
            stops=True,
        )


def _keys(flags: Flags, *names: str) -> tuple[ConfigKey, ...]:
    return tuple(flag.key for name in names if (flag := flags.certain.get(name)) is not None)
