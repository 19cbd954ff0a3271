"""Which launch configuration a file is, and what it says. A new family is one line in CONFIG_READERS."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, read_evidence
from distdoctor.oom.facts.launch import LaunchConfig

# Below this a text is not taken for a configuration of any family.
MIN_SCORE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReader:
    """One family: its module has `sniff(path, text) -> float` (0 to 1) and `read(path, text) -> LaunchConfig`."""

    name: str
    module: str

    def sniff(self, path: str, text: str) -> float:
        """How much the text looks like this family; 0 for what it cannot judge."""
        judge: Callable[[str, str], float] = self._loaded().sniff
        return judge(path, text)

    def read(self, path: str, text: str) -> LaunchConfig:
        """What the text says. Raises InputError when it cannot be read."""
        reader: Callable[[str, str], LaunchConfig] = self._loaded().read
        return reader(path, text)

    def _loaded(self) -> ModuleType:
        return import_module(self.module)


_HERE = "distdoctor.oom.configs"

# Of equal scores the first one is taken.
CONFIG_READERS: tuple[ConfigReader, ...] = (
    ConfigReader(name="DeepSpeed JSON", module=f"{_HERE}.deepspeed.read"),
    ConfigReader(name="Kubernetes manifest", module=f"{_HERE}.kubernetes.read"),
    ConfigReader(name="accelerate YAML", module=f"{_HERE}.accelerate.read"),
    ConfigReader(name="axolotl YAML", module=f"{_HERE}.trainers.axolotl"),
    ConfigReader(name="LLaMA-Factory YAML", module=f"{_HERE}.trainers.llama_factory"),
    ConfigReader(name="Hugging Face trainer arguments", module=f"{_HERE}.trainers.hf_trainer"),
    ConfigReader(name="model config.json", module=f"{_HERE}.hf_model"),
    ConfigReader(name="Megatron-LM script", module=f"{_HERE}.megatron.script"),
    ConfigReader(name="Megatron-LM YAML", module=f"{_HERE}.megatron.yaml"),
    ConfigReader(name="Megatron-Bridge YAML", module=f"{_HERE}.megatron.bridge"),
    ConfigReader(name="NeMo YAML", module=f"{_HERE}.nemo.read"),
    ConfigReader(name="TorchTitan TOML", module=f"{_HERE}.torchtitan.toml"),
    ConfigReader(name="TorchTitan Python", module=f"{_HERE}.torchtitan.python"),
    ConfigReader(name="launch script", module=f"{_HERE}.commands.launch_script"),
)


def read_config(path: str) -> LaunchConfig:
    """What the configuration file at `path` (`-` for standard input) says.

    Raises InputError when it cannot be read, or is none that is known here; the message says what it looks like.
    """
    return read_config_text(path, read_evidence(path).text)


def read_config_text(path: str, text: str) -> LaunchConfig:
    """What the configuration in `text` says; `path` is what the report calls it."""
    text = text.lstrip("\ufeff")
    best = best_reader(path, text)
    if best is None:
        name = "standard input" if path == STDIN else f"`{path}`"
        known = ", ".join(each.name for each in CONFIG_READERS)
        raise InputError(
            f"{name} is no launch configuration that is known here; it looks like {looks_like(text)}",
            hint=f"known: {known}",
        )
    return best.read(path, text)


def best_reader(path: str, text: str) -> ConfigReader | None:
    """The family that the text most looks like; None when it looks like none."""
    scores = [(each.sniff(path, text), -position) for position, each in enumerate(CONFIG_READERS)]
    score, position = max(scores)
    return CONFIG_READERS[-position] if score >= MIN_SCORE else None


def best_score(path: str, text: str) -> float:
    """How much the text looks like a configuration of any family, from 0 to 1."""
    return max(each.sniff(path, text) for each in CONFIG_READERS)


def looks_like(text: str) -> str:
    """What a text that is no configuration seems to be, for an error message."""
    head = text.lstrip("\ufeff \t\r\n")[:4000]
    if re.search(r"out of memory|OutOfMemoryError", text[:200_000]):
        return "a log with an out-of-memory error (`distdoctor oom explain FILE`)"
    if re.search(r"^\[[A-Za-z_][\w.]*\]\s*$", head, re.MULTILINE):
        return "TOML or INI"
    if head.startswith(("{", "[")):
        keys = re.findall(r'"(\w+)"\s*:', head)[:4]
        return f"JSON with the keys {', '.join(keys)}" if keys else "JSON without keys of a training job"
    if head.startswith("#!"):
        return "a script that starts no training that is known here"
    if re.search(r"^(?:import|from) \w+", head, re.MULTILINE):
        return "Python"
    keys = re.findall(r"^([A-Za-z_][\w.-]*)[ ]*:", head, re.MULTILINE)[:4]
    if keys:
        return f"YAML with the keys {', '.join(keys)}"
    return "text without settings"
