"""LLaMA-Factory's YAML: trainer arguments plus its own names for the method, the adapter and Megatron ("mcore").

Sources: LLaMA-Factory hparams (finetuning_args.py, model_args.py), model/adapter.py (trainable parameters are kept
in fp32 unless pure_bf16), examples/megatron.
"""

from __future__ import annotations

import re

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Section, repeated
from distdoctor.oom.configs.text.values import as_flag, as_word
from distdoctor.oom.configs.text.yaml_text import read_yaml
from distdoctor.oom.configs.trainers.trainer import assume_plain_copies, read_trainer
from distdoctor.oom.facts.launch import ConfigFamily, Defect, LaunchConfig
from distdoctor.oom.settings import Checkpointing, DataParallel, Optimizer, Precision

_OWN = (
    "finetuning_type",
    "cutoff_len",
    "template",
    "dataset_dir",
    "lora_target",
    "flash_attn",
    "quantization_bit",
    "stage",
)
_MCORE = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")

# hparams/data_args.py.
DEFAULT_CUTOFF = 2048

_GPUS_IN_COMMENT = re.compile(r"#.*?\b(\d{1,5})\s*[*x×]\s*(\d{1,3})\s*(?:GB|GiB|G)\b", re.IGNORECASE)
_BATCH_IN_COMMENT = re.compile(r"#.*global\s*batch[\s_-]*size\s*=?\s*(.*)", re.IGNORECASE)


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like LLaMA-Factory's YAML: 0 to 1."""
    keys = set(re.findall(r"^\"?(\w+)\"?[ ]*:", text, re.MULTILINE))
    if "model_name_or_path" not in keys:
        return 0.0
    own = sum(each in keys for each in _OWN)
    return 0.95 if own >= 2 else 0.75 if own == 1 else 0.0


def read(path: str, text: str) -> LaunchConfig:
    """The configuration in `text`. Raises InputError with the line when it is no YAML."""
    reading = Reading(path=path, family=ConfigFamily.LLAMA_FACTORY)
    root = read_yaml(text, path).documents[0]
    for entry in repeated(root):
        reading.note(f"`{entry.name}` stands twice; the last one counts")
    is_mcore = any(each in root for each in _MCORE)
    if is_mcore:
        _mcore(reading, root)
    read_trainer(reading, root)
    _method(reading, root)
    _defaults(reading, root, is_mcore=is_mcore)
    if is_mcore:
        _mcore_precision(reading, root)
    _comments(reading, text)
    reading.leave_open(
        "the number of ranks",
        "the launcher decides (FORCE_TORCHRUN, NNODES, NPROC_PER_NODE)",
        settles="world_size",
    )
    assume_plain_copies(reading, why="neither deepspeed nor fsdp is set")
    return reading.done()


def _method(reading: Reading, root: Section) -> None:
    entry = root.get("finetuning_type")
    kind = (as_word(entry.value) or "").lower() if entry is not None else "lora"
    if kind == "full":
        reading.say("adapter", "all parameters are trained", entry)
    elif kind == "freeze":
        reading.say(
            "adapter", "only some layers are trained; the estimate counts all of them: an upper bound", entry
        )
        reading.note("finetuning_type freeze: frozen layers have no gradients and no optimizer states")
    elif entry is None and reading.get("adapter") is None:
        reading.leave_open(
            "the method", "no finetuning_type: LLaMA-Factory's default is lora", settles="adapter"
        )
    bits = root.get("quantization_bit")
    if kind == "full" and bits is not None and bits.value is not None:
        reading.defect(
            Defect.CONFLICT,
            "a quantised model cannot be trained in full",
            entry,
            bits,
            why="LLaMA-Factory refuses quantization_bit with finetuning_type full: 4- and 8-bit weights take no gradient.",
            fix="set `finetuning_type: lora`, or remove `quantization_bit`",
            stops=True,
        )
    for name in ("use_galore", "use_apollo", "use_badam"):
        flag = root.get(name)
        if flag is not None and as_flag(flag.value):
            reading.say(
                "optimizer",
                f"{name.removeprefix('use_')}: fewer optimizer states than the estimate counts",
                flag,
            )
    muon = root.get("use_muon")
    if muon is not None and as_flag(muon.value):
        reading.set("optimizer", Optimizer.MUON, muon)


def _defaults(reading: Reading, root: Section, *, is_mcore: bool) -> None:
    if root.get("cutoff_len") is None:
        reading.set("seq_len", DEFAULT_CUTOFF, implied=True)
        reading.open_points = [each for each in reading.open_points if each.what != "the sequence length"]
        reading.note(f"no cutoff_len: LLaMA-Factory's default is {DEFAULT_CUTOFF}")
    off = root.get("disable_gradient_checkpointing")
    if off is not None and as_flag(off.value):
        reading.set("checkpointing", Checkpointing.NONE, off)
        reading.say("activations", "gradient checkpointing is switched off", off)
    elif not is_mcore and root.get("gradient_checkpointing") is None:
        # model_utils/checkpointing.py switches it on unless it is disabled.
        reading.values["checkpointing"] = Checkpointing.FULL
        reading.implied.add("checkpointing")
        reading.say("activations", "every layer is checkpointed: LLaMA-Factory's default")


def _mcore(reading: Reading, root: Section) -> None:
    """Megatron's degrees; experts are spread over data-parallel ranks and need no ranks of their own."""
    sharded = root.get("use_distributed_optimizer")
    is_sharded = reading.flag(sharded)
    reading.set(
        "strategy", DataParallel.MEGATRON_DISTRIBUTED if is_sharded else DataParallel.MEGATRON, sharded
    )
    names = {
        "tensor_model_parallel_size": "tp",
        "pipeline_model_parallel_size": "pp",
        "expert_model_parallel_size": "ep",
        "context_parallel_size": "cp",
        "expert_tensor_parallel_size": "etp",
        "virtual_pipeline_model_parallel_size": "virtual_stages",
    }
    degrees = {short: (reading.fill(short, root.get(name)) or 1) for name, short in names.items()}
    keys = [root.get(name) for name in names]
    step = degrees["tp"] * degrees["pp"] * degrees["cp"]
    shown = (
        " x ".join(f"{short} {degrees[short]}" for short in ("tp", "pp", "cp", "ep") if degrees[short] > 1)
        or "tp 1"
    )
    optimizer = ", distributed optimizer" if is_sharded else ""
    reading.say("strategy", f"Megatron core: {shown}{optimizer}", *keys, sharded)
    reading.say(
        "mesh",
        f"the number of ranks must be a multiple of {step}; data-parallel ranks = ranks / {step} "
        "(expert parallelism does not divide them)",
        *keys,
    )
    sequence = root.get("sequence_parallel")
    split = reading.flag(sequence)
    reading.set("sequence_parallel", split, sequence)
    if split and degrees["tp"] == 1:
        reading.defect(
            Defect.INEFFECTIVE,
            "sequence parallelism without tensor parallelism has no effect",
            sequence,
            root.get("tensor_model_parallel_size"),
            why="It splits what tensor parallelism replicates; with tp 1 nothing is replicated.",
            fix="set `sequence_parallel: false`, or tensor_model_parallel_size above 1",
        )
    recompute = root.get("recompute_granularity")
    kind = reading.choice(recompute, {"full": Checkpointing.FULL, "selective": Checkpointing.SELECTIVE})
    reading.set("checkpointing", kind or Checkpointing.NONE, recompute, implied=kind is None)
    if kind:
        reading.say("activations", f"{kind.value} recomputation", recompute)


def _mcore_precision(reading: Reading, root: Section) -> None:
    if reading.get("precision") in (Precision.MIXED, Precision.PURE16):
        key = root.first("bf16", "fp16")
        reading.set("precision", Precision.MASTER, key)
        reading.statements = [each for each in reading.statements if each.topic != "precision"]
        reading.say("precision", "16-bit parameters with an fp32 master copy (Megatron)", key)


def _comments(reading: Reading, text: str) -> None:
    for line in text.splitlines()[:2000]:
        found = _GPUS_IN_COMMENT.search(line)
        if found:
            reading.note(
                f"a comment says {found[1]} GPUs of {found[2]} GB; comments are not taken as settings"
            )
        batch = _BATCH_IN_COMMENT.search(line)
        if batch:
            reading.note(
                f"a comment computes the global batch as {batch[1].strip()[:60]}; by Megatron's rules it is micro-batch x "
                "accumulation x ranks / (tp x pp x cp), and expert parallelism does not divide it"
            )
