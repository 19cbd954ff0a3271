"""A model's config.json among the files of a job: its sizes come from `models.hf_config`."""

from __future__ import annotations

import re

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.facts.launch import ConfigFamily, ConfigKey, LaunchConfig
from distdoctor.oom.models.hf_config import model_from_hf_config

_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "n_layer",
    "n_embd",
    "n_head",
    "vocab_size",
    "d_model",
)


def sniff(path: str, text: str) -> float:
    """How much this looks like a model's config.json: 0 to 1."""
    if not text.lstrip("\ufeff \t\r\n").startswith("{"):
        return 0.0
    keys = set(re.findall(r'"(\w+)"\s*:', text))
    sizes = sum(each in keys for each in _SIZES)
    if sizes >= 3 and "zero_optimization" not in keys:
        return 0.95
    return 0.7 if "architectures" in keys and (sizes or path.endswith("config.json")) else 0.0


def read(path: str, text: str) -> LaunchConfig:
    """The model in `text`. Raises InputError when its sizes cannot be read."""
    reading = Reading(path=path, family=ConfigFamily.HF_MODEL)
    model = model_from_hf_config(text, path)
    keys = [_key(text, name) for name in ("hidden_size", "num_hidden_layers", "vocab_size")]
    shown = next((each for each in keys if each is not None), None)
    reading.set("model", model, shown)
    reading.say("model", f"{model.name}: sizes from config.json", *keys)
    for note in model.notes:
        reading.note(note)
    reading.leave_open("the number of ranks", "a model's config.json does not say it", settles="world_size")
    reading.leave_open("the micro-batch", "a model's config.json does not say it", settles="micro_batch")
    return reading.done()


def _key(text: str, name: str) -> ConfigKey | None:
    found = re.search(rf'"{name}"\s*:\s*([^,\n}}]+)', text)
    if not found:
        return None
    return ConfigKey(name=name, value=found[1].strip()[:40], line=text.count("\n", 0, found.start()) + 1)
