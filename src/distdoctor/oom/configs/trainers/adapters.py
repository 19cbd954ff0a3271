"""Low-rank adapters and quantised frozen weights, by the names of TRL, LLaMA-Factory, axolotl and QLoRA scripts."""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_int, as_word, words_of
from distdoctor.oom.settings import Adapter

# peft's default; LLaMA-Factory, axolotl and TRL say 8 or 16 of their own.
DEFAULT_RANK = 8

_MLP = (
    "gate_proj",
    "up_proj",
    "down_proj",
    "gate_up_proj",
    "fc1",
    "fc2",
    "w1",
    "w2",
    "w3",
    "mlp",
    "dense_h_to_4h",
)
_EVERYTHING = frozenset({"all", "all-linear", "all_linear"})


def read_adapter(reading: Reading, args: Section) -> None:
    """Fill in the adapter, where the file trains one."""
    kind_key = args.first("adapter", "finetuning_type", "peft_type", "use_peft", "use_lora", "lora")
    kind = (as_word(kind_key.value) or "").lower() if kind_key is not None else ""
    rank_key = args.first("lora_r", "lora_rank", "lora_dim")
    trains = kind in ("lora", "qlora", "dora", "true", "yes", "1", "peft")
    if kind in ("full", "freeze", "false", "no", "none") or not (
        trains or (not kind and rank_key is not None)
    ):
        return
    rank = reading.integer(rank_key, minimum=1) if rank_key is not None else None
    if rank is None:
        rank = DEFAULT_RANK
        reading.note(f"no rank of the adapter is given; {DEFAULT_RANK} is taken, peft's default")
    bits, bits_key = _bits(reading, args, kind)
    all_linear, targets_key = _targets(args)
    reading.set("adapter", Adapter(rank=rank, all_linear=all_linear, base_bits=bits), rank_key or kind_key)
    base = {16: "16-bit", 8: "8-bit", 4: "4-bit"}[bits]
    where = "every linear layer" if all_linear else "queries and values"
    reading.say(
        "adapter",
        f"low-rank adapters of rank {rank} on {where}; the {base} base is frozen: no gradients, no optimizer states",
        kind_key,
        rank_key,
        bits_key,
        targets_key,
    )


def _bits(reading: Reading, args: Section, kind: str) -> tuple[int, Entry | None]:
    bits_key = args.first("quantization_bit", "bits")
    bits = as_int(bits_key.value) if bits_key is not None else None
    if bits in (4, 8):
        return bits, bits_key
    if bits is not None and bits not in (16, 32):
        reading.note(f"a base of {bits} bits is counted as 4")
        return 4, bits_key
    four, eight = args.first("load_in_4bit", "use_4bit"), args.first("load_in_8bit", "use_8bit")
    if four is not None and as_flag(four.value):
        return 4, four
    if eight is not None and as_flag(eight.value):
        return 8, eight
    return (4, None) if kind == "qlora" else (16, None)


def _targets(args: Section) -> tuple[bool, Entry | None]:
    """peft's default is queries and values for most models; the frameworks name their targets."""
    linear = args.get("lora_target_linear")
    if linear is not None and as_flag(linear.value):
        return True, linear
    targets = args.first("lora_target_modules", "lora_target", "lora_modules", "target_modules")
    words = tuple(each.lower() for each in words_of(targets))
    if not words:
        # LLaMA-Factory's lora_target is `all` by default, QLoRA scripts take every linear layer too.
        return True, None
    is_everything = any(each in _EVERYTHING for each in words) or any(
        part in each for each in words for part in _MLP
    )
    return is_everything, targets
