"""Megatron-LM's arguments in YAML: `MODEL_ARGS:` of its own test cases, and plain maps of argument names."""

from __future__ import annotations

import re

from distdoctor.errors import InputError
from distdoctor.oom.configs.commands.variables import read_variables
from distdoctor.oom.configs.megatron.flags import DECIDES, NUMBERS, Flag, Flags, normal
from distdoctor.oom.configs.megatron.job import MARKS, read_megatron
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.values import Token, Unknown, UnknownKind
from distdoctor.oom.configs.text.tree import Entry, Section, shown, walk
from distdoctor.oom.configs.text.values import as_int, as_word, template_in
from distdoctor.oom.configs.text.yaml_text import read_yaml
from distdoctor.oom.facts.launch import ConfigFamily, ConfigKey, LaunchConfig

_KEY = re.compile(r"^[ \t]*[\"']?(?:--)?([a-z][a-z_-]{3,60})[\"']?\s*:", re.MULTILINE)
_ARGUMENTS = ("MODEL_ARGS", "model_args", "megatron_args", "MEGATRON_ARGS", "TRAIN_ARGS")


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like YAML with Megatron-LM's arguments: 0 to 1."""
    if text.lstrip().startswith(("{", "#!")) or re.search(
        r"^trainer\s*:|^apiVersion\s*:", text, re.MULTILINE
    ):
        return 0.0
    names = {normal(name) for name in _KEY.findall(text[:200_000])}
    marks = len(names & MARKS)
    if marks < 3:
        return 0.0
    if re.search(r"^[ \t]*(?:MODEL_ARGS|MEGATRON_ARGS)\s*:", text, re.MULTILINE) or re.search(
        r"^[ \t]*[\"']?--", text, re.MULTILINE
    ):
        return 0.95
    # Megatron-Bridge and NeMo have a reader of their own; trainers share some of the names.
    is_other = re.search(
        r"^(?:model|policy|train|ddp|run)\s*:|model_name_or_path|_target_", text, re.MULTILINE
    )
    return 0.0 if is_other else 0.75


def read(path: str, text: str) -> LaunchConfig:
    """The job that such a file describes. Raises InputError when it is no YAML or holds none of the arguments."""
    root = read_yaml(text, path).documents[0]
    reading = Reading(path=path, family=ConfigFamily.MEGATRON)
    section = next((root.section(name) for name in _ARGUMENTS if name in root), root)
    flags = Flags()
    for entry in walk(section):
        if not isinstance(entry.value, Section):
            _add(flags, entry)
    if len(set(flags.certain) & MARKS) < 2:
        raise InputError(f"`{path}` holds no arguments of Megatron-LM")
    environment = root.section("ENV_VARS") or root.section("env")
    if environment:
        read_variables(reading, environment.entries)
    read_megatron(reading, flags)
    if reading.get("world_size") is None:
        reading.leave_open("the number of ranks", "the file does not give it", settles="world_size")
    return reading.done()


def _add(flags: Flags, entry: Entry) -> None:
    name = normal(entry.name.rsplit(".", 1)[-1])
    value = entry.value
    if "[" in name or value is None or value is False:
        return
    key = ConfigKey(name=entry.name, value=shown(value), line=entry.line)
    if isinstance(value, tuple):
        words = " ".join(word for each in value if (word := as_word(each.value)))
        flags.certain[name] = Flag(text=words or "true", key=key)
        return
    text = "true" if value is True else as_word(value) or "true"
    template = template_in(value)
    if template and name in NUMBERS | DECIDES.keys():
        unknown = Unknown(name=template, kind=UnknownKind.ENVIRONMENT, line=entry.line or 0)
        flags.unknown[name] = (Token(text=text, line=entry.line or 0, unknowns=(unknown,)), key)
        return
    number = as_int(value) if not isinstance(value, bool) else None
    flags.certain[name] = Flag(text=str(number) if number is not None else text, key=key)
