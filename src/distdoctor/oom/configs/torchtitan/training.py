"""What TorchTitan's options say of types, optimizer, activations, loss and compilation."""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section, walk
from distdoctor.oom.configs.text.values import as_flag, as_int, as_word, template_in
from distdoctor.oom.configs.torchtitan.options import CALL, Titan
from distdoctor.oom.settings import Adapter, Checkpointing, Optimizer, OptimizerLoop, Precision

_CHECKPOINTING = {
    "none": Checkpointing.NONE,
    "full": Checkpointing.FULL,
    "selective": Checkpointing.SELECTIVE,
}


def read_training(reading: Reading, titan: Titan) -> None:
    """Fill in all of them; degrees and the model must have been read before."""
    _precision(reading, titan)
    _converters(reading, titan)
    _optimizer(reading, titan)
    _activations(reading, titan)
    _loss(reading, titan)
    _compile(reading, titan)


def _precision(reading: Reading, titan: Titan) -> None:
    kept = titan.at("training", "dtype")
    computed = titan.at("training", "mixed_precision_param")
    kept_word = (as_word(kept.value) or "float32").lower() if kept is not None else "float32"
    word = (as_word(computed.value) or "bfloat16").lower() if computed is not None else "bfloat16"
    implied = kept is None and computed is None
    if "16" in kept_word:
        reading.set("precision", Precision.PURE16, kept)
        reading.say("precision", f"parameters, gradients and states in {kept_word}", kept)
        reading.dtype = "bf16" if "bf" in kept_word else "fp16"
    elif "16" in word:
        reading.set("precision", Precision.MIXED, computed, implied=implied)
        reading.say("precision", f"fp32 parameters and states, computed in {word}", computed)
        reading.dtype = "bf16" if "bf" in word else "fp16"
    else:
        reading.set("precision", Precision.FP32, computed)
        reading.say("precision", "fp32 throughout", computed)
        reading.dtype = "fp32"


def _converters(reading: Reading, titan: Titan) -> None:
    """float8, MXFP8 and NVFP4 change the type of matrix products; parameters and states keep their size."""
    found: list[tuple[str, Entry]] = []
    for entry in walk(titan.root):
        leaf = entry.name.rsplit(".", 1)[-1]
        if leaf == "converters" and isinstance(entry.value, tuple):
            found += [(_called(each), each) for each in entry.value]
        elif (leaf == "enable_float8_linear" and as_flag(entry.value)) or (
            leaf == "fp8_linear" and as_word(entry.value)
        ):
            found.append(("float8", entry))
    low = [
        (name, entry)
        for name, entry in found
        if any(word in name.lower() for word in ("float8", "fp8", "mx", "fp4"))
    ]
    if low:
        reading.set("fp8", True, low[0][1])
        names = ", ".join(dict.fromkeys(name for name, _ in low))
        reading.say(
            "precision",
            f"{names}: matrix products in fewer bits; parameters, gradients and optimizer states keep their size",
            low[0][1],
        )
    for name, entry in found:
        if "lora" in name.lower() and isinstance(entry.value, Section):
            rank = as_int(entry.value.entries["rank"].value) if "rank" in entry.value else None
            reading.set("adapter", Adapter(rank=rank or 8), entry)
            reading.say("model", f"LoRA of rank {rank or 8} on frozen weights", entry)


def _called(entry: Entry) -> str:
    if isinstance(entry.value, Section):
        call = entry.value.get(CALL)
        return (as_word(call.value) or "").removesuffix(".Config") if call is not None else ""
    return as_word(entry.value) or ""


def _optimizer(reading: Reading, titan: Titan) -> None:
    entry = titan.at("optimizer", "name")
    word = (as_word(entry.value) or "AdamW").lower() if entry is not None else "adamw"
    kinds = {"adam": Optimizer.ADAMW, "adamw": Optimizer.ADAMW, "muon": Optimizer.MUON, "sgd": Optimizer.SGD}
    called = titan.at("optimizer", CALL)
    call = (as_word(called.value) or "") if called is not None else ""
    if "muon" in call.lower():
        word = "muon"
    kind = kinds.get(word)
    if kind is None:
        reading.leave_open("the optimizer", f"`{word[:40]}` is not known here", settles="optimizer")
    reading.set("optimizer", kind, entry or called, implied=entry is None and called is None)
    how = titan.at("optimizer", "implementation")
    fused = titan.at("optimizer", "fused")
    loops = {
        "fused": OptimizerLoop.FUSED,
        "foreach": OptimizerLoop.FOREACH,
        "for-loop": OptimizerLoop.FOR_LOOP,
    }
    if how is not None:
        reading.set("optimizer_loop", loops.get((as_word(how.value) or "").lower()), how)
    elif fused is not None:
        reading.set(
            "optimizer_loop", OptimizerLoop.FUSED if as_flag(fused.value) else OptimizerLoop.FOREACH, fused
        )
    elif titan.root.section("parallelism") or called is not None:
        reading.set(
            "optimizer_loop", OptimizerLoop.FUSED, implied=True
        )  # `implementation: "fused"` since 2025
    early = titan.at("optimizer", "early_step_in_backward")
    if (early is not None and as_flag(early.value)) or "InBackward" in call:
        reading.note(
            "the optimizer steps within the backward pass and frees gradients early: less memory than computed here"
        )


def _activations(reading: Reading, titan: Titan) -> None:
    section = titan.root.section("activation_checkpoint")
    whole = titan.root.get("activation_checkpoint")
    if whole is not None and whole.value is None:
        reading.set("checkpointing", Checkpointing.NONE, whole)
        reading.say("activations", "all are kept", whole)
        return
    called = section.get(CALL)
    name = (as_word(called.value) or "") if called is not None else ""
    if "MemoryBudget" in name:
        budget = section.get("memory_budget") or section.get("budget")
        reading.leave_open(
            "which activations are kept",
            f"the compiler decides within a memory budget{f' of {as_word(budget.value)}' if budget is not None else ''}",
            settles="checkpointing",
            how_to="`--checkpointing none` and `--checkpointing full` bound it",
        )
        return
    if name.split(".")[0] in ("FullAC", "SelectiveAC"):
        kind = Checkpointing.FULL if name.startswith("Full") else Checkpointing.SELECTIVE
        reading.set("checkpointing", kind, whole)
        reading.say(
            "activations",
            "all layers are computed again"
            if kind is Checkpointing.FULL
            else "chosen operations are kept, the rest is computed again",
            whole,
        )
        return
    mode = section.get("mode")
    if mode is None:
        reading.set("checkpointing", Checkpointing.SELECTIVE, implied=True)
        return
    word = (as_word(mode.value) or "").lower()
    if word == "memory_budget":
        reading.leave_open(
            "which activations are kept",
            "the compiler decides within a memory budget",
            settles="checkpointing",
        )
        return
    if template_in(mode.value) or word not in _CHECKPOINTING:
        reading.leave_open(
            "activation_checkpoint.mode", f"`{word[:40]}` is not known here", settles="checkpointing"
        )
        return
    _mode(reading, section, mode, _CHECKPOINTING[word])


def _mode(reading: Reading, section: Section, mode: Entry, kind: Checkpointing) -> None:
    option = section.get("selective_ac_option")
    every = as_int(option.value) if option is not None else None
    if kind is Checkpointing.SELECTIVE and every is not None and every > 0:
        reading.set("checkpointing", Checkpointing.FULL, mode)
        layers = _layers_of_stage(reading)
        if layers is not None:
            reading.set("checkpoint_layers", layers // every, option)
        reading.say(
            "activations",
            f"one layer in {every} is computed again" if every > 1 else "every layer is computed again",
            mode,
            option,
        )
        return
    reading.set("checkpointing", kind, mode)
    words = {
        Checkpointing.NONE: "all are kept",
        Checkpointing.FULL: "all layers are computed again",
        Checkpointing.SELECTIVE: "chosen operations are kept, the rest is computed again",
    }
    reading.say("activations", words[kind], mode, option if kind is Checkpointing.SELECTIVE else None)


def _layers_of_stage(reading: Reading) -> int | None:
    model, pp = reading.get("model"), reading.get("pp")
    if model is None or model.shape is None or not pp or pp < 1:
        return None
    layers: int = model.shape.num_layers // pp
    return layers


def _loss(reading: Reading, titan: Titan) -> None:
    entry = titan.root.get("loss")
    if entry is None:
        return
    name = _called(entry)
    if "Chunked" in name:
        reading.set("fused_loss", True, entry)
        reading.say("loss", "computed in chunks: all logits are never held at once", entry)
    elif "CrossEntropy" in name:
        reading.set("fused_loss", False, entry)


def _compile(reading: Reading, titan: Titan) -> None:
    entry = titan.at("compile", "enable") or titan.at("training", "compile")
    on = as_flag(entry.value) if entry is not None else None
    if entry is None or on is None:
        return
    components = titan.at("compile", "components")
    parts = (
        [as_word(each.value) for each in components.value]
        if components is not None and isinstance(components.value, tuple)
        else ["model"]
    )
    reading.set("compiled", on and "model" in parts, entry)
    if on:
        reading.say(
            "compile", f"torch.compile of {' and '.join(part for part in parts if part)}", entry, components
        )
