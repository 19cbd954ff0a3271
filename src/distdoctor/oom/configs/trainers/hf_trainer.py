"""The Hugging Face trainer's arguments as a file: YAML or JSON (TRL, `HfArgumentParser`), or the dump in a log."""

from __future__ import annotations

import re

from distdoctor.errors import InputError
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.json_text import read_json
from distdoctor.oom.configs.text.tree import Entry, Section, Value, repeated
from distdoctor.oom.configs.text.yaml_text import read_yaml
from distdoctor.oom.configs.trainers.fsdp_file import is_fsdp_file, read_fsdp_file
from distdoctor.oom.configs.trainers.trainer import SURE, assume_plain_copies, read_trainer
from distdoctor.oom.facts.launch import ConfigFamily, LaunchConfig

_DUMP = re.compile(r"\b(\w*(?:TrainingArguments|SFTConfig|DPOConfig|GRPOConfig|KTOConfig|ORPOConfig))\(\s*\n")
_DUMPED = re.compile(r"^\s*(\w+)=(.*?),?\s*$")
# Longer dumps than this do not exist; what follows is the log.
MAX_DUMP_LINES = 600


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like trainer arguments: 0 to 1."""
    if _DUMP.search(text):
        return 0.8
    head = text.lstrip("\ufeff \t\r\n")
    pattern = r'"(\w+)"\s*:' if head.startswith("{") else r"^\"?(\w+)\"?[ ]*:"
    keys = set(re.findall(pattern, text, re.MULTILINE))
    if keys & {"base_model", "apiVersion", "finetuning_type", "zero_optimization", "distributed_type"}:
        return 0.3 if "per_device_train_batch_size" in keys else 0.0
    if "per_device_train_batch_size" in keys:
        return 0.9
    if is_fsdp_file(text):
        return 0.85
    found = len(keys & SURE)
    return 0.7 if found >= 2 and keys & {"bf16", "fp16", "output_dir", "model_name_or_path"} else 0.0


def read(path: str, text: str) -> LaunchConfig:
    """The arguments in `text`. Raises InputError with the line when they cannot be read."""
    reading = Reading(path=path, family=ConfigFamily.HF_TRAINER)
    if is_fsdp_file(text):
        read_fsdp_file(reading, read_json(text, path).root)
        for what, settles in (
            ("the number of ranks", "world_size"),
            ("the model", "model"),
            ("the micro-batch", "micro_batch"),
        ):
            reading.leave_open(what, "the file holds FSDP's settings alone", settles=settles)
        return reading.done()
    root = _dump(reading, text) if _DUMP.search(text) else _root(reading, path, text)
    read_trainer(reading, root)
    visible = root.get("_n_gpu")
    if visible is not None:
        reading.note("`_n_gpu` counts the GPUs of one process; the number of ranks stands in the launcher")
    reading.leave_open("the number of ranks", "the launcher decides", settles="world_size")
    assume_plain_copies(
        reading, why="neither fsdp nor deepspeed is set, unless an accelerate file says otherwise"
    )
    return reading.done()


def _root(reading: Reading, path: str, text: str) -> Section:
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        root = read_json(text, path).root
    else:
        root = read_yaml(text, path).documents[0]
    for entry in repeated(root):
        reading.note(f"`{entry.name}` stands twice; the last one counts")
    return _flat(root)


def _flat(root: Section) -> Section:
    """Scripts nest the arguments below a name of their own (`training_args:`); those of one level are taken up."""
    if "per_device_train_batch_size" in root:
        return root
    entries: dict[str, Entry] = {}
    for key, entry in root.entries.items():
        if isinstance(entry.value, Section) and key not in ("deepspeed", "fsdp_config", "accelerator_config"):
            entries |= {name: each for name, each in entry.value.entries.items() if name not in entries}
    return Section(name=root.name, entries={**entries, **root.entries}, line=root.line)


def _dump(reading: Reading, text: str) -> Section:
    """`key=value,` lines, as `print(training_args)` gives them."""
    found = _DUMP.search(text)
    if found is None:
        raise InputError(f"`{reading.path}` holds no dump of training arguments")
    first = text.count("\n", 0, found.end()) + 1
    entries: dict[str, Entry] = {}
    for offset, line in enumerate(text[found.end() :].split("\n")[:MAX_DUMP_LINES]):
        if line.strip() in (")", ")."):
            break
        pair = _DUMPED.match(line)
        if pair:
            entries[pair[1]] = Entry(name=pair[1], value=_value(pair[2]), line=first + offset)
    reading.note(f"read from the dump of {found[1]} in a log")
    return Section(entries=entries)


def _value(text: str) -> Value:
    """A value as Python prints it; enums as `<OptimizerNames.ADAMW_TORCH: 'adamw_torch'>` or their name."""
    text = text.strip()
    enum = re.fullmatch(r"<\w+\.\w+: '?([^'>]*)'?>", text)
    if enum:
        return enum[1]
    named = re.fullmatch(r"[A-Z]\w+\.([A-Z_0-9]+)", text)
    if named:
        return named[1].lower()
    if text in ("None", "[]", "{}"):
        return None
    if text.startswith("{") and text.endswith("}"):
        try:
            return read_json(text.replace("'", '"'), "the dump").root
        except InputError:
            return None
    return text.strip("'\"")
