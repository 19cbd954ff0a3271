"""A change in the words of the file that the job is configured by: which keys to set to what.

A family that has no key for a change has no words for it: then the change is told as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distdoctor.oom.facts.launch import ConfigFamily, LaunchConfig
from distdoctor.oom.job import Job
from distdoctor.oom.search.change import Axis
from distdoctor.oom.search.family_words import BATCH, WRITERS, Keys, Value
from distdoctor.oom.search.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What to set in one file."""

    path: str
    settings: tuple[str, ...]
    """`activation_checkpoint.mode = "full"`, `--micro-batch-size 1` …"""


def lines_for(trial: Trial, configs: Sequence[LaunchConfig]) -> tuple[tuple[Lines, ...], frozenset[Axis]]:
    """(what to set, by file, in the order of the changes; the axes that no file has words for)."""
    by_path: dict[str, dict[str, None]] = {}
    wordless: set[Axis] = set()
    for change in trial.changes:
        found = _first(change.axis, trial.job, configs)
        if found is None:
            wordless.add(change.axis)
            continue
        config, keys = found
        by_path.setdefault(config.path, {}).update(dict.fromkeys(_written(config, keys)))
    for config, keys in _accumulation(trial.job, configs, trial):
        by_path.setdefault(config.path, {}).update(dict.fromkeys(_written(config, keys)))
    return (
        tuple(Lines(path=path, settings=tuple(each)) for path, each in by_path.items()),
        frozenset(wordless),
    )


def without_words(configs: Sequence[LaunchConfig]) -> frozenset[tuple[int, int]]:
    """Changes that the job's framework cannot do: (axis, strength). Trainers and DeepSpeed checkpoint whole layers."""
    selective = {ConfigFamily.TORCHTITAN, ConfigFamily.MEGATRON, ConfigFamily.NEMO}
    training = [config.family for config in configs if config.family in WRITERS]
    if training and not selective & set(training):
        return frozenset({(int(Axis.CHECKPOINTING), 1)})
    return frozenset()


def _first(axis: Axis, job: Job, configs: Sequence[LaunchConfig]) -> tuple[LaunchConfig, Keys] | None:
    """The first file with words for this axis; one that already says something of it before the others."""
    candidates = []
    for config in configs:
        writer = WRITERS.get(config.family, {}).get(axis)
        keys = writer(job) if writer is not None else ()
        if keys:
            names = {name.rsplit(".", 1)[-1] for name, _ in keys}
            said = any(key.name.rsplit(".", 1)[-1] in names for _, key in config.setting_keys)
            candidates.append((not said, config, keys))
    if not candidates:
        return None
    _, config, keys = min(candidates, key=lambda each: each[0])
    return config, keys


def _accumulation(job: Job, configs: Sequence[LaunchConfig], trial: Trial) -> list[tuple[LaunchConfig, Keys]]:
    """The key that keeps the global batch, where a change asks for more accumulation."""
    if not _changes_batch(trial):
        return []
    for config in configs:
        writer = BATCH.get(config.family)
        if writer is not None and (keys := writer(job)):
            return [(config, keys)]
    return []


def _changes_batch(trial: Trial) -> bool:
    """Whether the number of data-parallel ranks or the micro-batch is another, so that accumulation is as well."""
    moves = {Axis.MICRO_BATCH, Axis.TENSOR, Axis.CONTEXT, Axis.PIPELINE}
    return bool(moves & trial.axes)


def _written(config: LaunchConfig, keys: Keys) -> list[str]:
    """In the grammar of the file, with the file's own spelling of a key that is there already."""
    there = {key.name.rsplit(".", 1)[-1]: key.name for _, key in config.setting_keys}
    style = _style(config)
    return [style(there.get(name.rsplit(".", 1)[-1], name), value) for name, value in keys]


def _style(config: LaunchConfig) -> Callable[[str, Value], str]:
    path = config.path.lower()
    if config.family is ConfigFamily.MEGATRON and not path.endswith((".yaml", ".yml")):
        return _flag
    if path.endswith((".sh", ".slurm", ".sbatch")):
        return _flag
    if path.endswith((".toml", ".py")) or ".py:" in path:
        return lambda name, value: f"{name} = {_toml(value)}"
    if path.endswith(".json"):
        return lambda name, value: f'"{name}": {json.dumps(value)}'
    return lambda name, value: f"{name}: {_plain(value)}"


def _flag(name: str, value: Value) -> str:
    name = f"--{name.removeprefix('--')}"
    return name if value is True else f"{name} {value}"


def _toml(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) else _plain(value)


def _plain(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
