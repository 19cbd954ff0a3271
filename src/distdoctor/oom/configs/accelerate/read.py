"""accelerate's YAML (`accelerate config`, `accelerate launch --config_file`): ranks, strategy, precision, rendezvous.

Sources: accelerate, commands/config/config_args.py (known keys; others stop the launch), commands/launch.py and
utils/launch.py (`num_processes` is the total; each machine starts num_processes // num_machines).
"""

from __future__ import annotations

import re
from itertools import islice

from distdoctor.oom.configs.accelerate.engines import read_deepspeed_plugin, read_megatron_plugin
from distdoctor.oom.configs.accelerate.mesh import read_parallelism
from distdoctor.oom.configs.accelerate.nodes import read_nodes
from distdoctor.oom.configs.fsdp import option, read_fsdp, version_of
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.json_text import read_json
from distdoctor.oom.configs.text.near_names import MAX_KEYS, near_name
from distdoctor.oom.configs.text.tree import Section, repeated
from distdoctor.oom.configs.text.values import as_flag, as_word
from distdoctor.oom.configs.text.yaml_text import read_yaml
from distdoctor.oom.facts.launch import ConfigFamily, Defect, LaunchConfig
from distdoctor.oom.settings import DataParallel, Precision

# ClusterConfig and BaseConfig of accelerate 1.12, with old spellings that it still converts.
_KNOWN = frozenset(
    (
        *("compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes"),
        *("machine_rank", "num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend"),
        *("same_network", "main_training_function", "enable_cpu_affinity", "fp8_config", "deepspeed_config"),
        *("fsdp_config", "parallelism_config", "megatron_lm_config", "ipex_config", "mpirun_config"),
        *("downcast_bf16", "tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "command_file"),
        *("commands", "tpu_vm", "tpu_env", "dynamo_config", "dynamo_backend", "fp16", "use_xpu", "tp_config"),
        *(
            "max_restarts",
            "monitor_interval",
            "rdzv_conf",
            "gradient_accumulation_steps",
            "profile",
            "image_uri",
        ),
        *("ec2_instance_type", "iam_role_name", "region", "base_job_name", "py_version", "pytorch_version"),
        *(
            "transformers_version",
            "additional_args",
            "sagemaker_inputs_file",
            "sagemaker_metrics_file",
            "profile",
        ),
    )
)
_MARKS = ("distributed_type", "compute_environment", "num_machines", "machine_rank", "main_training_function")
_GPU_TYPES = (
    "fsdp",
    "deepspeed",
    "multi_gpu",
    "no",
    "megatron_lm",
    "multi_xpu",
    "multi_npu",
    "multi_mlu",
    "multi_hpu",
)


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like accelerate's configuration: 0 to 1."""
    pattern = r'"(\w+)"\s*:' if text.lstrip().startswith("{") else r"^[ ]{0,4}\"?(\w+)\"?[ ]*:"
    keys = set(re.findall(pattern, text, re.MULTILINE))
    if "apiVersion" in keys or "base_model" in keys or "model_name_or_path" in keys:
        return 0.0
    if "distributed_type" in keys:
        return 0.95
    return (
        0.8
        if sum(each in keys for each in (*_MARKS, "num_processes", "fsdp_config", "mixed_precision")) >= 2
        else 0.0
    )


def read(path: str, text: str) -> LaunchConfig:
    """The configuration in `text`. Raises InputError with the line when it is neither YAML nor JSON."""
    reading = Reading(path=path, family=ConfigFamily.ACCELERATE)
    root = _root(reading, path, text)
    _keys(reading, root)
    kind = _distributed_type(reading, root)
    read_precision(reading, root, kind)
    read_root(reading, root, kind)
    dynamo = root.section("dynamo_config")
    backend = dynamo.first("dynamo_backend", "backend") or root.get("dynamo_backend")
    word = (as_word(backend.value) or "").lower() if backend is not None else ""
    if word not in ("", "no"):
        reading.set("compiled", True, backend)
        reading.say("activations", f"compiled with torch.compile ({word})", backend)
    reading.leave_open("the model", "an accelerate file names none", settles="model")
    reading.leave_open("the micro-batch", "the training script decides", settles="micro_batch")
    return reading.done()


def read_root(reading: Reading, root: Section, kind: str | None) -> None:
    """Ranks, strategy and mesh; also of the options of `accelerate launch`, brought into the file's form."""
    read_nodes(reading, root, kind)
    _strategy(reading, root, kind)
    read_parallelism(reading, root)


def _root(reading: Reading, path: str, text: str) -> Section:
    if text.lstrip().startswith("{"):
        return read_json(text, path).root
    found = read_yaml(text, path)
    for what in found.lenient:
        reading.defect(
            Defect.CONFLICT,
            f"YAML refuses {what}"[:80],
            why="accelerate's reader stops there.",
            fix="indent with spaces",
            stops=True,
        )
    if len(found.documents) > 1:
        reading.note("several documents in one file: accelerate reads one; only the first was read")
    return found.documents[0]


def _keys(reading: Reading, root: Section) -> None:
    for entry in repeated(root):
        reading.note(f"`{entry.name}` stands twice; the last one counts (line {entry.line} does not)")
    for key, entry in islice(root.entries.items(), MAX_KEYS):
        meant = near_name(key, _KNOWN)
        if key not in _KNOWN and (meant or not key.startswith("_")):
            reading.defect(
                Defect.UNKNOWN_KEY,
                f"accelerate does not know the key {key[:30]}" + (f"; {meant} is one" if meant else ""),
                entry,
                why="accelerate stops with `had unknown keys` when a file holds a key that its version does not read.",
                fix=f"write `{meant}`"
                if meant
                else "remove it, or take the accelerate version that wrote the file",
                stops=True,
                sure=bool(meant),
            )


def _distributed_type(reading: Reading, root: Section) -> str | None:
    entry = root.get("distributed_type")
    if entry is None:
        reading.defect(
            Defect.EMPTY_VALUE,
            "distributed_type is missing",
            why="accelerate stops: a `distributed_type` must be specified in the config file.",
            fix="add `distributed_type: MULTI_GPU`, `FSDP`, `DEEPSPEED` or `'NO'`",
            stops=True,
            sure=False,
        )
        for key, implied in (("fsdp_config", "fsdp"), ("deepspeed_config", "deepspeed")):
            if root.section(key):
                return implied
        return None
    if isinstance(entry.value, bool):
        return "no"
    kind = reading.word(entry, settles="strategy")
    if kind is not None and kind not in _GPU_TYPES:
        reading.leave_open(
            "the strategy", f"`distributed_type: {kind}` is no GPU strategy known here", settles="strategy"
        )
    return kind


def read_precision(reading: Reading, root: Section, kind: str | None) -> None:
    """In which types it computes. commands/launch.py: no `mixed_precision` in file or command line is "no"."""
    entry = root.get("mixed_precision") or root.get("fp16")
    word: str | None = "no"
    if entry is not None and entry.value is not None and not isinstance(entry.value, bool):
        word = reading.word(entry, settles="precision")
        if word is None:
            return
    elif entry is not None and entry.name == "fp16" and as_flag(entry.value):
        word = "fp16"
    if word in ("no", "fp32"):
        said = entry is not None and entry.value is not None
        if root.section("deepspeed_config").get("deepspeed_config_file") is not None:
            return
        reading.set("precision", Precision.FP32, entry, implied=True)
        reading.dtype = "fp32" if said else None
        reading.say(
            "precision",
            "fp32: mixed_precision is no"
            if said
            else "fp32: no mixed_precision key, which accelerate takes as no",
            entry,
        )
        if not said:
            reading.defect(
                Defect.COSTLY_PRECISION,
                "no mixed_precision: everything stays fp32 unless the script says otherwise",
                why="Parameters, gradients and activations take 4 bytes a value; matrix products miss the fast units.",
                fix="add `mixed_precision: bf16`, if the training script sets no precision itself",
                sure=False,
            )
        return
    if word not in ("bf16", "fp16", "fp8"):
        reading.leave_open(
            "the precision", f"`mixed_precision: {word}` is not known here", settles="precision"
        )
        return
    if word == "fp8":
        reading.set("fp8", True, entry)
    name = "bf16" if word == "fp8" else str(word)
    reading.dtype = name
    if kind in ("deepspeed", "megatron_lm"):
        reading.set("precision", Precision.MASTER, entry)
        reading.say("precision", f"{word} parameters with an fp32 master copy in the optimizer", entry)
        return
    reading.set("precision", Precision.MIXED, entry)
    upcast = (
        ": accelerate casts trainable parameters to fp32 for FSDP"
        if kind == "fsdp"
        else "; a script that loads the model in 16 bit keeps 16-bit parameters"
    )
    reading.say("precision", f"fp32 parameters, computed in {word}{upcast}", entry)


def _strategy(reading: Reading, root: Section, kind: str | None) -> None:
    entry = root.get("distributed_type")
    if kind == "fsdp":
        section = root.section("fsdp_config")
        version = version_of(reading, option(section, "version"))
        read_fsdp(reading, section, version=version)
        if not section:
            reading.note("distributed_type is FSDP and there is no fsdp_config: accelerate's defaults hold")
    elif kind == "deepspeed":
        read_deepspeed_plugin(reading, root)
    elif kind == "megatron_lm":
        read_megatron_plugin(reading, root)
    elif kind in ("multi_gpu", "multi_xpu", "multi_npu", "multi_mlu", "multi_hpu"):
        reading.set("strategy", DataParallel.DDP, entry)
        reading.say(
            "strategy", f"DDP ({kind.upper()}): every rank holds all states, nothing is sharded", entry
        )
    elif kind == "no":
        reading.set("strategy", DataParallel.NONE, entry)
        reading.say("strategy", "one process: distributed_type is NO", entry)
    for other, name in (
        ("fsdp_config", "fsdp"),
        ("deepspeed_config", "deepspeed"),
        ("megatron_lm_config", "megatron_lm"),
    ):
        section = root.section(other)
        if section and kind is not None and kind != name:
            reading.defect(
                Defect.INEFFECTIVE,
                f"{other} is not read with distributed_type {kind.upper()}"[:80],
                entry,
                root.get(other),
                why="accelerate reads the section of its distributed_type only.",
                fix=f"set `distributed_type: {name.upper()}`, or remove `{other}`",
            )
