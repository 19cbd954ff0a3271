"""Overrides of a Megatron-Bridge recipe: YAML that changes some values of a Python recipe and leaves the rest to it."""

from __future__ import annotations

import re

from distdoctor.oom.configs.nemo.omegaconf import resolved
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_word
from distdoctor.oom.configs.text.yaml_text import read_yaml
from distdoctor.oom.facts.launch import ConfigFamily, LaunchConfig
from distdoctor.oom.settings import Checkpointing, DataParallel

_SECTIONS = frozenset(
    {
        *(
            "model",
            "train",
            "optimizer",
            "scheduler",
            "dist",
            "logger",
            "dataset",
            "rng",
            "ddp",
            "checkpoint",
        ),
        *(
            "mixed_precision",
            "tokenizer",
            "profiling",
            "comm_overlap",
            "peft",
            "validation",
            "ft",
            "straggler",
        ),
    }
)
_DEGREES = (
    ("tp", "tensor_model_parallel_size"),
    ("pp", "pipeline_model_parallel_size"),
    ("cp", "context_parallel_size"),
    ("ep", "expert_model_parallel_size"),
    ("etp", "expert_tensor_parallel_size"),
)


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like an override of a Megatron-Bridge recipe: 0 to 1."""
    top = re.findall(r"^([a-z_]+)\s*:", text[:100_000], re.MULTILINE)
    if not top or not set(top) <= _SECTIONS or "trainer" in top:
        return 0.0
    own = {"train", "ddp", "dist", "rng", "scheduler", "mixed_precision", "comm_overlap"} & set(top)
    words = re.search(r"^[ \t]+(?:train_iters|micro_batch_size|use_megatron_fsdp|grad_reduce_in_fp32|lr_warmup_iters|"
                      r"tensor_model_parallel_size)\s*:", text, re.MULTILINE)  # fmt: skip
    return 0.85 if len(own) >= 2 and words else 0.6 if own and words else 0.0


def read(path: str, text: str) -> LaunchConfig:
    """What the file overrides. Everything else stands in the recipe and is left open. Raises InputError for no YAML."""
    root = read_yaml(text, path).documents[0]
    reading = Reading(path=path, family=ConfigFamily.MEGATRON)
    model, train, ddp, dist = (root.section(name) for name in ("model", "train", "ddp", "dist"))
    _batch(reading, root, model, train)
    for name, key in _DEGREES:
        reading.fill(name, _entry(root, model, key))
    _strategy(reading, ddp, dist)
    _types(reading, root, model, ddp)
    _activations(reading, model)
    _open(reading)
    return reading.done()


def _entry(root: Section, section: Section, name: str) -> Entry | None:
    entry = section.get(name)
    if entry is None:
        return None
    return Entry(name=entry.name, value=resolved(root, entry.value, entry.name), line=entry.line)


def _batch(reading: Reading, root: Section, model: Section, train: Section) -> None:
    micro = reading.fill("micro_batch", _entry(root, train, "micro_batch_size"))
    batch = reading.fill("global_batch", _entry(root, train, "global_batch_size"))
    length = _entry(root, model, "seq_length") or _entry(root, root.section("dataset"), "seq_length")
    sequence = reading.fill("seq_len", length)
    parts = [
        f"{words} {number}"
        for words, number in (("micro-batch", micro), ("global batch", batch), ("sequences of", sequence))
        if number is not None
    ]
    if parts:
        reading.say(
            "batch", ", ".join(parts), train.get("micro_batch_size"), train.get("global_batch_size"), length
        )


def _strategy(reading: Reading, ddp: Section, dist: Section) -> None:
    for section, name, strategy in (
        (dist, "use_megatron_fsdp", DataParallel.MEGATRON_FSDP),
        (ddp, "use_megatron_fsdp", DataParallel.MEGATRON_FSDP),
        (dist, "use_torch_fsdp2", DataParallel.FSDP),
        (ddp, "use_distributed_optimizer", DataParallel.MEGATRON_DISTRIBUTED),
    ):
        entry = section.get(name)
        if entry is not None and as_flag(entry.value):
            reading.set("strategy", strategy, entry)
            reading.say("strategy", f"{name}: {strategy.value}", entry)
            return
    off = [
        entry for name in ("use_megatron_fsdp", "use_torch_fsdp2") if (entry := dist.get(name)) is not None
    ]
    if off:
        reading.say("strategy", "neither Megatron-FSDP nor FSDP2; the recipe's data parallelism", *off)


def _types(reading: Reading, root: Section, model: Section, ddp: Section) -> None:
    reduced = ddp.get("grad_reduce_in_fp32")
    flag = reading.flag(reduced)
    if flag is not None:
        reading.set("grads_in_fp32", flag, reduced)
        reading.say("precision", f"gradients are reduced in {'fp32' if flag else '16 bit'}", reduced)
    mixed = root.get("mixed_precision")
    word = as_word(mixed.value) if mixed is not None else None
    if word:
        reading.say("precision", word, mixed)
        reading.dtype = "bf16" if "bf16" in word else "fp16" if "fp16" in word else None
    fusion = model.get("cross_entropy_loss_fusion")
    if fusion is not None:
        on = as_flag(fusion.value)
        words = "cross entropy is fused" if on else "cross entropy is not fused: all logits are held at once"
        reading.say("loss", words, fusion)


def _activations(reading: Reading, model: Section) -> None:
    entry = model.get("recompute_granularity")
    kinds = {"full": Checkpointing.FULL, "selective": Checkpointing.SELECTIVE}
    kind = reading.choice(entry, kinds, settles="checkpointing")
    if kind is not None:
        reading.set("checkpointing", kind, entry)


def _open(reading: Reading) -> None:
    why = "this file overrides values of a Python recipe; the recipe holds it"
    if reading.get("model") is None:
        reading.leave_open(
            "the model", f"{why}. The name of the file is no statement about it", settles="model"
        )
    missing = [name.upper() for name, _ in _DEGREES[:4] if reading.get(name) is None]
    if missing:
        reading.leave_open(
            f"parallel sizes ({', '.join(missing)})",
            why,
            how_to="`--mesh tp=…,pp=…`, from the recipe or the log of a run",
        )
    if reading.get("strategy") is None:
        reading.leave_open("the data parallelism", why, settles="strategy")
    reading.leave_open("the number of ranks", "the launcher gives it", settles="world_size")
