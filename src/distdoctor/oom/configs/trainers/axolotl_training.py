"""Types, batch and optimizer of axolotl's YAML, with the combinations that axolotl refuses.

Source: utils/schemas/validation.py.
"""

from __future__ import annotations

from distdoctor.oom.configs.fsdp import option
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Section
from distdoctor.oom.configs.text.values import as_flag, as_word, is_auto
from distdoctor.oom.configs.trainers.trainer_types import take_optimizer
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import DataParallel, Offload, Precision


def check_adapter(reading: Reading, root: Section) -> None:
    """Quantised bases and adapters that do not go together."""
    kind_key = root.get("adapter")
    kind = (as_word(kind_key.value) or "").lower() if kind_key is not None else ""
    four, eight = root.get("load_in_4bit"), root.get("load_in_8bit")
    in_4, in_8 = (entry is not None and as_flag(entry.value) is True for entry in (four, eight))
    if kind == "qlora" and not in_4:
        reading.defect(
            Defect.CONFLICT,
            "adapter qlora needs load_in_4bit",
            kind_key,
            four,
            eight if in_8 else None,
            why="axolotl refuses qlora unless the base is loaded in 4 bit.",
            fix="set `load_in_4bit: true`, or `adapter: lora`",
            stops=True,
        )
    if (in_4 or in_8) and not kind:
        reading.defect(
            Defect.CONFLICT,
            "a quantised base without an adapter cannot be trained",
            four if in_4 else eight,
            why="4- and 8-bit weights take no gradient; without an adapter nothing is trainable.",
            fix="set `adapter: qlora`, or `load_in_4bit: false` and `load_in_8bit: false`",
            stops=True,
            sure=False,
        )
    if in_4 and in_8:
        reading.defect(
            Defect.CONFLICT,
            "load_in_4bit and load_in_8bit are both true",
            four,
            eight,
            why="The base is loaded in one of them only.",
            fix="keep one",
            stops=True,
            sure=False,
        )


def read_types(reading: Reading, root: Section) -> None:
    """In which types parameters and states are kept."""
    brain, half = root.first("bf16", "bfloat16"), root.first("fp16", "float16")
    text = (as_word(brain.value) or "").lower() if brain is not None else ""
    bf16 = True if text in ("auto", "full") else reading.flag(brain, settles="precision")
    fp16 = reading.flag(half, settles="precision")
    if bf16 and fp16:
        reading.defect(
            Defect.CONFLICT,
            "bf16 and fp16 are both on",
            brain,
            half,
            why="The trainer takes one 16-bit type.",
            fix="keep `bf16` on GPUs that have it (A100 and newer)",
            stops=text != "auto",
            sure=text != "auto",
        )
    key, name = (brain, "bf16") if bf16 else (half, "fp16")
    if not (bf16 or fp16):
        if brain is not None or half is not None or root.get("tf32") is not None:
            reading.set("precision", Precision.FP32, brain, implied=True)
            reading.say("precision", "fp32: neither bf16 nor fp16 is on", brain, half)
            reading.defect(
                Defect.COSTLY_PRECISION,
                "neither bf16 nor fp16 is on: everything stays fp32",
                brain,
                half,
                why="Parameters, gradients, states and activations take 4 bytes a value.",
                fix="set `bf16: auto`",
                sure=False,
            )
        return
    reading.dtype = name
    if is_auto(brain.value if brain is not None else None):
        reading.note("bf16 auto: bf16 where the GPU has it, fp16 elsewhere")
    strategy = reading.get("strategy")
    if text == "full":
        reading.set("precision", Precision.PURE16, key)
        reading.say("precision", "bf16 parameters, gradients and optimizer states (bf16: full)", key)
    elif reading.references:
        reading.set("precision", Precision.MASTER, key)
        reading.say("precision", f"{name} parameters with an fp32 master copy (DeepSpeed)", key)
    elif strategy is DataParallel.FSDP:
        reading.set("precision", Precision.MIXED, key)
        reading.say(
            "precision",
            f"computed in {name}; accelerate casts what trains to fp32 for FSDP: 16 bytes a trained parameter with Adam "
            "(8 where a version keeps them in 16 bit)",
            key,
        )
    else:
        reading.set("precision", Precision.PURE16, key)
        reading.say(
            "precision",
            f"the model is loaded in {name}; nothing keeps fp32 copies without FSDP or DeepSpeed",
            key,
        )


def read_batch(reading: Reading, root: Section) -> None:
    """Micro-batch, accumulation and sequence length."""
    micro_key, steps_key, total_key = (
        root.get("micro_batch_size"),
        root.get("gradient_accumulation_steps"),
        root.get("batch_size"),
    )
    micro = reading.fill("micro_batch", micro_key)
    steps = reading.fill("accumulation_steps", steps_key)
    length_key = root.get("sequence_len")
    length = reading.fill("seq_len", length_key)
    if length_key is None:
        reading.leave_open("the sequence length", "the file does not say it", settles="seq_len")
    total = reading.integer(total_key, minimum=1)
    if total is not None and steps is not None:
        reading.defect(
            Defect.CONFLICT,
            "batch_size and gradient_accumulation_steps are both set",
            total_key,
            steps_key,
            why="axolotl stops: only one of them may be given.",
            fix="remove `batch_size`",
            stops=True,
        )
    elif total is not None and micro:
        if total % micro:
            reading.defect(
                Defect.BATCH_DOES_NOT_DIVIDE,
                f"batch_size {total} is no multiple of micro_batch_size {micro}",
                total_key,
                micro_key,
                why="The accumulation is their quotient, rounded down.",
                fix=f"set `batch_size` to a multiple of {micro}",
            )
        reading.set("accumulation_steps", max(1, total // micro), total_key)
    if micro and length:
        packing = root.get("sample_packing")
        packed = packing is not None and as_flag(packing.value)
        words = "packed full" if packed else "padded to the longest: at most"
        reading.say(
            "batch",
            f"{micro} x {length} = {micro * length} tokens a micro-batch, {words}",
            micro_key,
            length_key,
            packing,
        )
    if (reading.get("cp") or 1) > 1 and micro and micro > 1:
        reading.defect(
            Defect.CONFLICT,
            f"context parallelism takes micro_batch_size 1; this is {micro}",
            root.first("context_parallel_size", "sequence_parallel_degree"),
            micro_key,
            why="axolotl's ring attention works on one (packed) sequence at a time.",
            fix="set `micro_batch_size: 1` and raise `sequence_len` or the accumulation",
            sure=False,
        )


def read_optimizer(reading: Reading, root: Section) -> None:
    """The optimizer, and those that FSDP refuses."""
    entry = root.get("optimizer")
    name = reading.word(entry)
    if name is None or entry is None:
        return
    take_optimizer(reading, entry, name)
    is_fsdp = reading.get("strategy") is DataParallel.FSDP
    version = root.get("fsdp_version") or option(root.section("fsdp_config"), "version")
    is_two = version is not None and as_word(version.value) == "2"
    offloads = reading.get("offload_params") is Offload.CPU
    if not is_fsdp or "8bit" not in name:
        return
    if is_two and name in ("adamw_8bit", "adamw_bnb_8bit"):
        reading.defect(
            Defect.CONFLICT,
            f"FSDP2 does not work with {name}",
            entry,
            version,
            why="axolotl stops: bitsandbytes' 8-bit optimizers fail on FSDP2's sharded tensors.",
            fix="set `optimizer: adamw_torch_8bit`, or `adamw_torch_fused`",
            stops=True,
        )
    elif offloads:
        reading.defect(
            Defect.CONFLICT,
            f"FSDP with offloaded parameters does not work with {name}"[:80],
            entry,
            reading.keys.get("offload_params"),
            why="axolotl stops: 8-bit optimizers step on the GPU, and the states are on the host.",
            fix="set `optimizer: adamw_torch_fused`",
            stops=True,
        )
