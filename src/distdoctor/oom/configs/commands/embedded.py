"""A configuration inside another file: a ConfigMap's data, a here-document of a script."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.errors import DistdoctorError
from distdoctor.oom.configs.accelerate import read as accelerate
from distdoctor.oom.configs.deepspeed import read as deepspeed
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.trainers import axolotl, hf_trainer, llama_factory
from distdoctor.oom.facts.launch import ConfigDefect, ConfigKey, LaunchConfig, Statement

_READERS = (deepspeed, accelerate, hf_trainer, axolotl, llama_factory)
# Below this a text is more likely something else.
SURE_ENOUGH = 0.8


def absorb(reading: Reading, name: str, text: str, *, line: int) -> bool:
    """Read `text`, which begins at `line` of the file, and add what it says; False when it is no configuration."""
    if len(text) > 200_000:
        return False
    scores = [(reader.sniff(name, text), position) for position, reader in enumerate(_READERS)]
    best, position = max(scores)
    if best < SURE_ENOUGH:
        return False
    try:
        config = _READERS[position].read(name, text)
    except DistdoctorError as error:
        reading.note(f"the configuration `{name}` inside could not be read: {error.message}")
        return True
    _add(reading, config, line)
    reading.note(f"`{name}` inside is a configuration of {config.family.value}, and was read with it")
    return True


def _add(reading: Reading, config: LaunchConfig, line: int) -> None:
    keys = {name: _moved(key, line) for name, key in config.setting_keys}
    for name in config.settings.__dataclass_fields__:
        value = getattr(config.settings, name)
        if value is None:
            continue
        is_implied = name in config.implied
        if name not in reading.values or (name in reading.implied and not is_implied):
            reading.set(name, value, keys.get(name), implied=is_implied)
    for each in config.statements:
        moved = tuple(_moved(key, line) for key in each.keys)
        reading.statements.append(Statement(topic=each.topic, text=each.text, keys=moved))
    for defect in config.defects:
        moved_defect: ConfigDefect = replace(defect, keys=tuple(_moved(key, line) for key in defect.keys))
        reading.defects.append(moved_defect)
    reading.open_points += [each for each in config.open_points if each.what not in _said(reading)]
    reading.dtype = reading.dtype or config.dtype
    reading.in_hf = reading.in_hf or config.in_hf
    for note in config.notes:
        reading.note(note)


def _said(reading: Reading) -> set[str]:
    return {each.what for each in reading.open_points}


def _moved(key: ConfigKey, line: int) -> ConfigKey:
    return replace(key, line=key.line + line if key.line is not None else None)
