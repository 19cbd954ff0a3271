"""What keeps activations and logits small, by the trainer's arguments."""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_word
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
)


def read_activations(reading: Reading, args: Section, *, is_trainer: bool) -> None:
    """Checkpointing, offloading, attention, compilation and the loss."""
    entry = args.first("gradient_checkpointing", "use_gradient_checkpointing", "activation_checkpointing")
    text = (as_word(entry.value) or "").lower() if entry is not None else ""
    on = (
        True
        if text in ("unsloth", "offload", "offload_disk", "full")
        else reading.flag(entry, settles="checkpointing")
    )
    if on:
        if reading.get("checkpointing") is Checkpointing.FULL and "fsdp" in str(
            reading.keys.get("checkpointing")
        ):
            reading.defect(
                Defect.CONFLICT,
                "two kinds of activation checkpointing are on",
                entry,
                reading.keys.get("checkpointing"),
                why="The trainer refuses gradient_checkpointing together with FSDP's activation_checkpointing.",
                fix="set `gradient_checkpointing: false` and keep FSDP's",
                stops=True,
            )
        reading.set("checkpointing", Checkpointing.FULL, entry)
        reading.say(
            "activations", "every layer is checkpointed and computed again in the backward pass", entry
        )
    elif on is False or (is_trainer and entry is None):
        reading.set("checkpointing", Checkpointing.NONE, entry, implied=True)
    offload = args.first("activation_offloading", "offload_activations", "activation_offload")
    offload_text = (as_word(offload.value) or "").lower() if offload is not None else ""
    moved = True if offload_text in ("legacy", "disk", "hidden_states") else reading.flag(offload)
    if moved or text in ("unsloth", "offload"):
        reading.set("offload_activations", True, offload or entry)
        reading.say("activations", "what the forward pass saves goes to host memory", offload or entry)
    elif moved is False:
        reading.set("offload_activations", False, offload)
    liger = args.first("use_liger_kernel", "use_liger", "enable_liger_kernel")
    if reading.flag(liger):
        reading.set("fused_loss", True, liger)
        reading.say(
            "activations", "Liger's fused linear cross entropy: logits are never whole in memory", liger
        )
    compiled = args.first("torch_compile", "compile")
    if compiled is not None and as_flag(compiled.value) is not None:
        reading.set("compiled", as_flag(compiled.value), compiled)
    attention = args.first("attn_implementation", "flash_attn", "attn_impl")
    read_attention(reading, attention)


_FLASH = frozenset(
    {"flash_attention_2", "flash_attention_3", "sdpa", "fa2", "fa3", "flash", "flex_attention", "flash2"}
)


def read_attention(reading: Reading, entry: Entry | None) -> None:
    """Whether scores are ever whole in memory; SDPA and flex attention are counted with flash."""
    word = (as_word(entry.value) or "").lower() if entry is not None else ""
    if word in _FLASH or "flash" in word:
        reading.set("attention", Attention.FLASH, entry)
    elif word in ("eager", "disabled"):
        reading.set("attention", Attention.UNFUSED, entry)
        reading.say(
            "activations", "eager attention: scores (sequence x sequence) are written to memory", entry
        )
