"""What keeps activations and logits small in axolotl's YAML."""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_word, is_auto
from distdoctor.oom.configs.trainers.trainer_memory import read_attention
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import Attention, Checkpointing


def read_activations(reading: Reading, root: Section) -> None:
    """Checkpointing, offloading, attention, compilation and the loss."""
    entry = root.get("gradient_checkpointing")
    text = (as_word(entry.value) or "").lower() if entry is not None else ""
    on = (
        True
        if text in ("offload", "unsloth", "offload_disk")
        else reading.flag(entry, settles="checkpointing")
    )
    if on:
        if reading.get("checkpointing") is Checkpointing.FULL:
            reading.defect(
                Defect.CONFLICT,
                "two kinds of activation checkpointing are on",
                entry,
                reading.keys.get("checkpointing"),
                why="The trainer refuses gradient_checkpointing together with FSDP's activation_checkpointing.",
                fix="set `gradient_checkpointing: false` and keep FSDP's",
                stops=True,
                sure=False,
            )
        reading.set("checkpointing", Checkpointing.FULL, entry)
        reading.say(
            "activations", "every layer is checkpointed and computed again in the backward pass", entry
        )
    elif reading.get("checkpointing") is not Checkpointing.FULL:
        reading.set("checkpointing", Checkpointing.NONE, entry, implied=True)
        reading.say("activations", "no gradient checkpointing: activations of all layers stay", entry)
    offload = root.get("activation_offloading")
    place = (as_word(offload.value) or "").lower() if offload is not None else ""
    moved = True if place in ("legacy", "disk", "hidden_states") else reading.flag(offload)
    if moved or text in ("offload", "unsloth", "offload_disk"):
        key = offload if moved else entry
        reading.set("offload_activations", True, key)
        reading.say("activations", "what the forward pass saves goes to host memory", key)
    _loss(reading, root)
    _attention(reading, root)
    compiled = root.get("torch_compile")
    if compiled is not None:
        flag = None if is_auto(compiled.value) else reading.flag(compiled)
        reading.set("compiled", flag, compiled)
    fp8 = root.get("fp8")
    reading.set("fp8", reading.flag(fp8), fp8)


def _loss(reading: Reading, root: Section) -> None:
    plugins = root.items("plugins")
    cut = next((each for each in plugins if "CutCrossEntropy" in (as_word(each.value) or "")), None)
    flags = (
        root.get(name)
        for name in ("cut_cross_entropy", "liger_fused_linear_cross_entropy", "chunked_cross_entropy")
    )
    said: Entry | None = next((each for each in flags if each is not None and as_flag(each.value)), None)
    off = root.get("cut_cross_entropy")
    if cut is not None and said is None and not (off is not None and as_flag(off.value) is False):
        said = cut
    if said is not None:
        reading.set("fused_loss", True, said)
        reading.say("activations", "cross entropy never holds all logits at once", said)


def _attention(reading: Reading, root: Section) -> None:
    named = root.get("attn_implementation")
    if named is not None and named.value is not None:
        read_attention(reading, named)
        return
    for name in (
        "flash_attention",
        "sdp_attention",
        "xformers_attention",
        "flex_attention",
        "sage_attention",
    ):
        entry = root.get(name)
        if entry is not None and as_flag(entry.value):
            reading.set("attention", Attention.FLASH, entry)
            return
    eager = root.get("eager_attention")
    if eager is not None and as_flag(eager.value):
        reading.set("attention", Attention.UNFUSED, eager)
