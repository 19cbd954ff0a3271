"""Flags of training scripts that no framework owns: FSDP examples and their like.

They are read by name (`--hidden_width`, `--sharding_strategy=full`, `--offload_activations=1`), and only where the
name can mean one thing. A model of that shape is looked up in our table: its vocabulary comes from there, and that
is said.
"""

from __future__ import annotations

from distdoctor.oom.configs.host_memory import say_offload
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_int, as_word
from distdoctor.oom.configs.trainers.trainer import SEQUENCE_KEYS
from distdoctor.oom.models.presets import find_preset, preset_names
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload
from distdoctor.oom.shape import Model, ModelShape

_SHARDING = {
    "full": (DataParallel.FSDP, True, "FSDP FULL_SHARD"),
    "full_shard": (DataParallel.FSDP, True, "FSDP FULL_SHARD"),
    "hybrid": (DataParallel.FSDP, True, "FSDP HYBRID_SHARD"),
    "hybrid_shard": (DataParallel.FSDP, True, "FSDP HYBRID_SHARD"),
    "shard_grad_op": (DataParallel.FSDP, False, "FSDP SHARD_GRAD_OP"),
    "zero2": (DataParallel.FSDP, False, "FSDP SHARD_GRAD_OP"),
    "no_shard": (DataParallel.DDP, None, "FSDP NO_SHARD, as DDP"),
    "ddp": (DataParallel.DDP, None, "DDP"),
}

_SHAPE = {
    "num_layers": ("num_layers", "n_layers", "num_hidden_layers", "n_layer"),
    "hidden_size": ("hidden_width", "hidden_size", "d_model", "n_embd"),
    "num_heads": ("num_heads", "num_attention_heads", "n_heads", "n_head"),
    "num_kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    "ffn_size": ("intermediate_size", "ffn_hidden_size", "ffn_dim"),
    "vocab_size": ("vocab_size",),
}


def read_training_flags(reading: Reading, args: Section) -> None:
    """Fill in what such flags say."""
    sharding = args.get("sharding_strategy")
    word = (as_word(sharding.value) or "").lower() if sharding is not None else ""
    if word in _SHARDING:
        strategy, reshard, text = _SHARDING[word]
        reading.set("strategy", strategy, sharding)
        reading.set("reshard_after_forward", reshard, sharding)
        reading.say("strategy", text, sharding)
    _zero(reading, args)
    batch = args.first(
        "train_batch_size", "micro_batch_size", "batch_size_training", "batch_size_per_gpu", "micro_batch"
    )
    if "per_device_train_batch_size" not in args and batch is not None:
        number = reading.fill("micro_batch", batch)
        if number is not None:
            reading.say(
                "batch", f"{number} sequences by {batch.name}, taken as the micro-batch of one rank", batch
            )
    sequence = args.first(*SEQUENCE_KEYS)
    length = reading.fill("seq_len", sequence)
    if length is not None and "per_device_train_batch_size" not in args:
        reading.say("batch", f"sequences of at most {length} tokens", sequence)
    checkpointing = args.first(
        "activation_checkpointing", "use_activation_checkpointing", "fsdp_activation_checkpointing"
    )
    on = as_flag(checkpointing.value) if checkpointing is not None else None
    if on is not None:
        reading.set("checkpointing", Checkpointing.FULL if on else Checkpointing.NONE, checkpointing)
    offload = args.get("offload_activations")
    moved = as_flag(offload.value) if offload is not None else None
    if moved:
        reading.set("offload_activations", True, offload)
        reading.say("activations", "what the forward pass saves goes to host memory", offload)
    _shape(reading, args)


_STAGES = {0: DataParallel.DDP, 1: DataParallel.ZERO1, 2: DataParallel.ZERO2, 3: DataParallel.ZERO3}


def _zero(reading: Reading, args: Section) -> None:
    """`--zero_stage 3 --offload`, as DeepSpeed's own examples have it."""
    entry = args.first("zero_stage", "zero_stage_level")
    stage = as_int(entry.value) if entry is not None else None
    if stage not in _STAGES or reading.get("strategy") is not None:
        return
    reading.set("strategy", _STAGES[stage], entry)
    reading.say("strategy", f"DeepSpeed ZeRO-{stage}, by the script's own option", entry)
    offload = args.first("offload", "zero_offload")
    if offload is not None and as_flag(offload.value):
        reading.set("offload_optimizer", Offload.CPU, offload)
        params = Offload.CPU if stage == 3 else None
        reading.set("offload_params", params, offload)
        say_offload(
            reading,
            params=params,
            optimizer=Offload.CPU,
            keys=(offload,),
            bytes_per_param="16 to 18" if params else "12 to 16",
        )


def _shape(reading: Reading, args: Section) -> None:
    sizes: dict[str, int] = {}
    keys: list[Entry] = []
    for name, spellings in _SHAPE.items():
        entry = args.first(*spellings)
        number = as_int(entry.value) if entry is not None else None
        if entry is not None and number is not None and number > 0:
            sizes[name] = number
            keys.append(entry)
    if not {"num_layers", "hidden_size", "num_heads"} <= sizes.keys():
        return
    found = [name for name in preset_names() if _fits(name, sizes)]
    shown = " x ".join(
        f"{value} {name.removeprefix('num_')}" for name, value in sizes.items() if name != "num_kv_heads"
    )
    kind = args.first("model_type", "model_name")
    family = (
        (as_word(kind.value) or "").lower().replace("_v", "").replace("_", "") if kind is not None else ""
    )
    best = next(
        (each for each in found if family and each.replace("-", "").replace(".", "").startswith(family)), None
    )
    best = best or (found[0] if len({_shape_of(each) for each in found}) == 1 else None)
    shape = _shape_of(best) if best else None
    if best is None or shape is None:
        reading.say("model", f"sizes on the command line: {shown}", *keys)
        reading.leave_open(
            "the model",
            "the command gives sizes that fit no model of our table, and no vocabulary",
            settles="model",
        )
        return
    source = f"sizes on the command line, as the preset {best}"
    note = (
        ()
        if "vocab_size" in sizes
        else (f"the vocabulary ({shape.vocab_size}) is that of {best}: the command does not say it",)
    )
    reading.set("model", Model(name=best, source=source, shape=shape, notes=note), keys[0])
    reading.say("model", f"{shown}: the shape of {best}", *keys)
    for each in note:
        reading.note(each)


def _shape_of(name: str) -> ModelShape | None:
    found = find_preset(name)
    return found.shape if found is not None else None


def _fits(name: str, sizes: dict[str, int]) -> bool:
    shape = _shape_of(name)
    return shape is not None and all(getattr(shape, field) == value for field, value in sizes.items())
