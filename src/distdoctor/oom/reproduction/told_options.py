"""What a rank tells the others of its options, so that ranks which were told different things do not begin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from typing import Any

from distdoctor import __version__
from distdoctor.oom.reproduction.options import ReproduceOptions
from distdoctor.oom.settings import Settings
from distdoctor.oom.shape import Model
from distdoctor.ranks.agreement import ToldOptions
from distdoctor.units import format_bytes

_NOT_GIVEN = "not given"

# Settings of one option each, by its name. Everything else follows from several, or from a file.
_OPTIONS = {
    "micro_batch": "--micro-batch",
    "accumulation_steps": "--micro-batches",
    "global_batch": "--global-batch",
    "seq_len": "--seq-len",
    "precision": "--precision",
    "optimizer": "--optimizer",
    "optimizer_loop": "--optimizer-loop",
    "checkpointing": "--checkpointing",
    "attention": "--attention",
    "expert_imbalance": "--expert-imbalance",
}


def told_options(options: ReproduceOptions) -> ToldOptions:
    """Everything that decides what is run; not where files go, and not what rank 0 alone decides."""
    combined: dict[str, list[str]] = {}
    for combination in options.combinations:
        for name, value in _settings(combination.settings):
            combined.setdefault(name, []).append(value)
    # Most are the same for all strategies.
    settings = {name: " ".join(dict.fromkeys(values)) for name, values in combined.items()}
    limit = options.memory_limit_bytes
    return ToldOptions(
        options={
            "--model": settings.pop("model"),
            "--strategy": ",".join(each.name for each in options.combinations),
            "--steps": str(options.steps),
            "--memory-limit": f"{format_bytes(limit)} ({limit} bytes)" if limit is not None else _NOT_GIVEN,
            "--backend": options.backend or _NOT_GIVEN,
            **{option: settings.pop(name) for name, option in _OPTIONS.items()},
            "the version of distdoctor": __version__,
        },
        follows=settings,
    )


def _settings(settings: Settings) -> Iterator[tuple[str, str]]:
    for field in fields(Settings):
        value = getattr(settings, field.name)
        if isinstance(value, Model):
            yield "model", value.name
            # A config.json of the same name may say something else on another host.
            yield "the model's shape", _text(value.shape)
        else:
            yield field.name, _text(value)


def _text(value: Any) -> str:  # Any: whatever a field of Settings holds
    if value is None:
        return _NOT_GIVEN
    return str(value.value if isinstance(value, Enum) else value)
