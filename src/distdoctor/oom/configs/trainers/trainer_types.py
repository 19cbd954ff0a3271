"""In which types a job of the trainer keeps and computes; its optimizer.

Sources: transformers `TrainingArguments` (bf16 is autocast over the parameters as they were loaded), accelerate
(trainable parameters are cast to fp32 for FSDP), DeepSpeed (16-bit parameters with an fp32 master copy).
"""

from __future__ import annotations

from distdoctor.oom.configs.optimizers import named_optimizer
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_word
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import (
    DataParallel,
    Optimizer,
    OptimizerLoop,
    Precision,
)

_SHARDED_ZERO = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)


def read_types(reading: Reading, args: Section, *, is_trainer: bool) -> None:
    """Fill in the precision; fp32 by the trainer's default where it is surely the trainer's file."""
    brain, half = args.first("bf16", "bfloat16"), args.first("fp16", "float16")
    bf16, fp16 = reading.flag(brain, settles="precision"), reading.flag(half, settles="precision")
    if bf16 and fp16:
        reading.defect(
            Defect.CONFLICT,
            "bf16 and fp16 are both on",
            brain,
            half,
            why="The trainer stops: at most one of fp16 and bf16 can be true.",
            fix="keep bf16 on GPUs that have it (A100 and newer)",
            stops=True,
        )
        return
    loaded_key = args.first("torch_dtype", "dtype", "model_dtype", "precision", "mixed_precision")
    loaded = (
        (as_word(loaded_key.value) or "").lower().removeprefix("torch.") if loaded_key is not None else ""
    )
    pure = reading.flag(args.get("pure_bf16"))
    in_16_bit = loaded in ("bfloat16", "bf16", "float16", "fp16", "half")
    if pure:
        reading.dtype = "bf16"
        reading.set("precision", Precision.PURE16, args.get("pure_bf16"))
        reading.say(
            "precision", "bf16 parameters, gradients and optimizer states (pure_bf16)", args.get("pure_bf16")
        )
        return
    if bf16 or fp16:
        key, name = (brain, "bf16") if bf16 else (half, "fp16")
        reading.dtype = name
        strategy = reading.get("strategy")
        uses_engine = strategy in _SHARDED_ZERO or any(
            "DeepSpeed, as" in each.text for each in reading.statements
        )
        if uses_engine:
            reading.set("precision", Precision.MASTER, key)
            reading.say("precision", f"{name} parameters with an fp32 master copy (DeepSpeed)", key)
        elif in_16_bit and strategy is not DataParallel.FSDP:
            reading.set("precision", Precision.PURE16, key)
            reading.say(
                "precision",
                f"the model is loaded in {loaded}: parameters, gradients and Adam's states in 16 bit",
                key,
                loaded_key,
            )
        else:
            reading.set("precision", Precision.MIXED, key)
            upcast = (
                " (accelerate casts trainable parameters to fp32 for FSDP)"
                if strategy is DataParallel.FSDP
                else ""
            )
            reading.say(
                "precision",
                f"fp32 parameters, computed in {name} by autocast{upcast}, unless the script loads the model in 16 bit",
                key,
            )
        return
    if in_16_bit:
        reading.dtype = "bf16" if "b" in loaded else "fp16"
        if loaded_key is not None and loaded_key.name.lstrip("-") in ("torch_dtype", "dtype", "model_dtype"):
            reading.set("precision", Precision.PURE16, loaded_key)
            reading.say(
                "precision", f"the model is loaded in {loaded} and nothing keeps fp32 copies", loaded_key
            )
        else:
            reading.set("precision", Precision.MIXED, loaded_key)
            reading.say("precision", f"computed in {loaded}", loaded_key)
        return
    is_open = any(
        each is not None and each.value is not None and as_flag(each.value) is None for each in (brain, half)
    )
    if reading.references and not is_open:
        reading.leave_open("the type of parameters", "a file that is named may set it", settles="precision")
        return
    if is_trainer and not is_open and reading.get("precision") is None:
        reading.set("precision", Precision.FP32, brain or half, implied=True)
        reading.say("precision", "fp32: neither bf16 nor fp16 is on", brain, half)
        reading.defect(
            Defect.COSTLY_PRECISION,
            "neither bf16 nor fp16 is on: the trainer computes in fp32",
            brain,
            half,
            why="Activations take twice the bytes, and matrix products miss the fast units. An accelerate file or a "
            "script may still set a precision.",
            fix="add `bf16: true` (A100 and newer)",
            sure=False,
        )


def read_optimizer(reading: Reading, args: Section, *, is_trainer: bool) -> None:
    """Fill in the optimizer; AdamW by the trainer's default."""
    entry = args.first("optim", "optimizer")
    name = reading.word(entry)
    if name is None or entry is None:
        if is_trainer and entry is None and reading.get("optimizer") is None:
            reading.set("optimizer", Optimizer.ADAMW, implied=True)
        return
    take_optimizer(reading, entry, name)


def take_optimizer(reading: Reading, entry: Entry, name: str) -> None:
    """Fill in the optimizer of that name, or say that its states are not known."""
    found = named_optimizer(name)
    if found is None or found.optimizer is None:
        reading.leave_open(
            f"the states of optimizer {name[:40]}",
            found.note if found and found.note else "its states are not known here",
            settles="optimizer",
        )
        return
    reading.set("optimizer", found.optimizer, entry)
    reading.set("optimizer_loop", found.loop or _loop_of(found.optimizer), entry)
    paged = "; paged: its states may move to the host when the GPU is full" if found.is_paged else ""
    reading.say("optimizer", name + (f" ({found.note})" if found.note else "") + paged, entry)


def _loop_of(optimizer: Optimizer) -> OptimizerLoop | None:
    """bitsandbytes steps tensor by tensor."""
    return OptimizerLoop.FOR_LOOP if optimizer is Optimizer.ADAMW_8BIT else None
