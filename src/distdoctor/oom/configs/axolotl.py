"""axolotl's YAML: model, adapter, mesh, FSDP or DeepSpeed, and what keeps activations small.

Sources: axolotl's documentation ("Config Reference", "N-D Parallelism"), utils/schemas/validation.py (combinations
that it refuses), accelerate (parameters that train are cast to fp32 for FSDP unless mixed precision is off).
"""

from __future__ import annotations

import re

from distdoctor.oom.configs.adapters import read_adapter
from distdoctor.oom.configs.fsdp import option, read_fsdp, version_of
from distdoctor.oom.configs.model_name import name_model
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.trainer import assume_plain_copies, read_attention, take_optimizer
from distdoctor.oom.configs.tree import Entry, Section, repeated
from distdoctor.oom.configs.values import as_flag, as_word, is_auto, words_of
from distdoctor.oom.configs.yaml_text import read_yaml
from distdoctor.oom.facts.launch import ConfigFamily, Defect, LaunchConfig
from distdoctor.oom.settings import Attention, Checkpointing, DataParallel, Offload, Precision

_OWN = (
    "sequence_len",
    "micro_batch_size",
    "datasets",
    "sample_packing",
    "adapter",
    "val_set_size",
    "dataset_prepared_path",
    "flash_attention",
    "load_in_4bit",
    "pretraining_dataset",
    "num_epochs",
    "special_tokens",
)


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like axolotl's YAML: 0 to 1."""
    keys = set(re.findall(r"^\"?(\w+)\"?[ ]*:", text, re.MULTILINE))
    own = sum(each in keys for each in _OWN)
    if "base_model" in keys:
        return 0.95 if own >= 2 else 0.5
    return 0.6 if own >= 4 and "model_name_or_path" not in keys else 0.0


def read(path: str, text: str) -> LaunchConfig:
    """The configuration in `text`. Raises InputError with the line when it is no YAML."""
    reading = Reading(path=path, family=ConfigFamily.AXOLOTL)
    root = read_yaml(text, path).documents[0]
    for entry in repeated(root):
        reading.note(f"`{entry.name}` stands twice; the last one counts")
    name_model(reading, root.get("base_model"))
    _mesh(reading, root)
    _strategy(reading, root)
    read_adapter(reading, root)
    _adapter_conflicts(reading, root)
    _precision(reading, root)
    _batch(reading, root)
    _optimizer(reading, root)
    _activations(reading, root)
    _comments(reading, text)
    reading.leave_open("the number of ranks", "the launcher decides", settles="world_size")
    return reading.done()


_DEGREES = {
    "dp_replicate_size": "dp_replicate",
    "dp_shard_size": "dp_shard",
    "tensor_parallel_size": "tp",
    "context_parallel_size": "cp",
    "sequence_parallel_degree": "cp",
}


def _mesh(reading: Reading, root: Section) -> None:
    product, keys, shown = 1, [], []
    for name, setting in _DEGREES.items():
        entry = root.get(name)
        size = reading.fill(setting, entry)
        if size is not None and entry is not None:
            product *= size
            keys.append(entry)
            shown.append(f"{setting} {size}")
    experts = root.get("expert_parallel_size")
    spread = reading.fill("ep", experts)
    if not keys:
        return
    if spread is not None and spread > 1 and reading.get("dp_shard") is not None:
        # Ranks are expert_parallel_size x dp_shard_size (x the others); which of them share dense layers is not said.
        reading.values.pop("dp_shard")
        reading.set("world_size", product * spread, experts, implied=True)
        reading.say("mesh", f"{' x '.join(shown)} x ep {spread} = {product * spread} ranks", *keys, experts)
        reading.note(
            "dense layers are counted as shared by all ranks; axolotl's mesh may share them by fewer"
        )
    elif reading.get("dp_shard") is not None:
        reading.set("world_size", product, keys[0], implied=True)
        reading.say("mesh", f"{' x '.join(shown)} = {product} ranks, implied by the degrees", *keys)
    else:
        reading.say("mesh", f"{' x '.join(shown)}; data-parallel ranks are what is left", *keys)


def _strategy(reading: Reading, root: Section) -> None:
    engine = root.get("deepspeed")
    engine_file = as_word(engine.value) if engine is not None else None
    section = root.section("fsdp_config")
    words = tuple(each.lower() for each in words_of(root.get("fsdp")))
    has_fsdp = bool(section) or bool(words)
    if engine_file and has_fsdp:
        reading.defect(
            Defect.CONFLICT,
            "deepspeed and fsdp are both set",
            engine,
            root.get("fsdp") or root.get("fsdp_config"),
            why="axolotl stops: deepspeed and fsdp cannot be used together.",
            fix="remove one of them",
            stops=True,
        )
    if engine_file:
        reading.references.append(engine_file)
        reading.say("strategy", f"DeepSpeed, as {engine_file} says", engine)
        reading.leave_open(
            f"what {engine_file} says",
            "the DeepSpeed file is named, and was not given",
            settles="strategy",
            how_to=f"give `{engine_file}` as another file",
        )
    elif has_fsdp:
        version = version_of(reading, root.get("fsdp_version"), option(section, "version"))
        read_fsdp(
            reading,
            section,
            version=version,
            words=words,
            words_key=root.get("fsdp") or root.get("fsdp_config"),
        )
    else:
        assume_plain_copies(reading, why="neither fsdp nor deepspeed is set")
        if (reading.get("dp_shard") or 1) > 1:
            reading.defect(
                Defect.INEFFECTIVE,
                "dp_shard_size needs an fsdp_config to shard anything",
                root.get("dp_shard_size"),
                why="The degree names a dimension of the mesh; FSDP is what shards over it.",
                fix="add `fsdp_version: 2` and an `fsdp_config`",
                sure=False,
            )


def _adapter_conflicts(reading: Reading, root: Section) -> None:
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


def _precision(reading: Reading, root: Section) -> None:
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


def _batch(reading: Reading, root: Section) -> None:
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


def _optimizer(reading: Reading, root: Section) -> None:
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


def _activations(reading: Reading, root: Section) -> None:
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


def _comments(reading: Reading, text: str) -> None:
    for line in text.splitlines()[:2000]:
        found = re.search(r"#.*?\b(\d+)\s?x\s?(\d+)\s?x?\s?([AHBL]\d{2,3}\w*|RTX\w*)", line)
        if found:
            reading.note(
                f"a comment names {found[1]} x {found[2]} {found[3]}; comments are not taken as settings"
            )
