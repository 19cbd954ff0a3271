"""Shapes of published models by the names that people type."""

from __future__ import annotations

import difflib
import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdoctor.errors import UsageError
from distdoctor.oom.shape import LatentAttention, MixtureOfExperts, Model, ModelShape, Norm

OTHER_WAYS = (
    "or give a folder with `config.json` (`--model ./my-model`), the sizes (`--layers`, `--hidden`, ...), "
    "or the number of parameters (`--params 7.5B`)"
)

# Longer names are not looked up: the longest of a published model has some 60 characters.
_MAX_NAME_CHARACTERS = 200

# Words in a repository's name that say how a model was trained on or stored, not which shape it has.
_DECORATION = frozenset(
    (
        *(
            "instruct",
            "chat",
            "base",
            "it",
            "pt",
            "hf",
            "text",
            "preview",
            "thinking",
            "distilled",
            "sft",
            "dpo",
        ),
        *(
            "bf16",
            "fp16",
            "fp8",
            "nvfp4",
            "mxfp4",
            "awq",
            "gptq",
            "gguf",
            "bnb",
            "4bit",
            "8bit",
            "int4",
            "int8",
        ),
        *("meta", "openai", "unsloth", "hq", "latest"),
    )
)
# A release by date or time of year: 2407, 0324, 20240806.
_RELEASE = re.compile(r"\d{4}|\d{8}")

# "llama31-8b", "qwen25-7b": two digits behind a family's name are a version where a size follows.
_FUSED_VERSION = re.compile(r"(?<=[a-z])([1-9])([1-9])(?=[-_ .]\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One published model."""

    name: str
    also: tuple[str, ...]
    """Other names of the same shape."""
    published_params: int
    is_exact: bool
    """Published to the last parameter; otherwise rounded by a paper."""
    source: str
    notes: tuple[str, ...]
    shape: ModelShape
    seq_len: int | None
    """The sequence length that it is meant for; None: any."""


def preset(name: str) -> Model:
    """The published model called `name`: `llama3-8b`, `Llama-3.1-8B`, `meta-llama/Meta-Llama-3-8B-Instruct`.

    Raises UsageError with the nearest names when it is none.
    """
    found = find_preset(name)
    if found is None:
        raise _unknown(name)
    return Model(
        name=found.name,
        source=f"preset {found.name}",
        shape=found.shape,
        notes=found.notes,
        seq_len=found.seq_len,
    )


def find_preset(name: str) -> Preset | None:
    """The preset called `name`, however it is spelled; None when there is none."""
    position = _by_key().get(_key(name))
    return None if position is None else _preset_at(position)


def preset_names() -> tuple[str, ...]:
    """The names of all presets, in the order of the table: by family and size."""
    return tuple(row["name"] for row in _rows())


def _unknown(name: str) -> UsageError:
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    near = _near_names(name)
    hint = f"did you mean {' or '.join(f'`{each}`' for each in near)}? " if near else ""
    families = sorted({re.split(r"[-\d.]", each)[0] for each in preset_names()})
    if not near:
        hint = f"families with presets: {', '.join(families)}; "
    return UsageError(f"no model is known by the name `{shown}`", hint=hint + OTHER_WAYS)


def _near_names(name: str) -> list[str]:
    """At most three presets with a name like this one, nearest first."""
    words = _words(name)
    of_spelling = {each: row["name"] for row in _rows() for each in (row["name"], *row.get("also", ()))}
    spelled = {"-".join(_words(each)): preset for each, preset in of_spelling.items()}
    near = difflib.get_close_matches("-".join(words), spelled, n=8, cutoff=0.6)
    return list(dict.fromkeys(spelled[each] for each in near))[:3]


def _words(name: str) -> list[str]:
    """Runs of letters and of digits in a name, without its organisation and what does not change the shape."""
    tail = name[:_MAX_NAME_CHARACTERS].strip().rstrip("/").rsplit("/", 1)[-1].lower()
    tail = _FUSED_VERSION.sub(r"\1.\2", tail)
    parts = [part for part in re.split(r"[-_\s:]+", tail) if part]
    kept = [part for part in parts if part not in _DECORATION and not _RELEASE.fullmatch(part)]
    return re.findall(r"[a-z]+|\d+", " ".join(kept or parts))


def _key(name: str) -> tuple[str, ...]:
    return tuple(_words(name))


@functools.cache
def _rows() -> list[dict[str, Any]]:
    """The table as it lies beside this file. Any: `_preset_at` gives a row its types."""
    table = json.loads(Path(__file__).with_name("presets.json").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = table["presets"]
    return rows


@functools.cache
def _by_key() -> dict[tuple[str, ...], int]:
    return {
        _key(name): position
        for position, row in enumerate(_rows())
        for name in (row["name"], *row.get("also", ()))
    }


def _preset_at(position: int) -> Preset:
    row = _rows()[position]
    sizes = dict(row["shape"])
    if "moe" in sizes:
        sizes["moe"] = MixtureOfExperts(**sizes["moe"])
    if "mla" in sizes:
        sizes["mla"] = LatentAttention(**sizes["mla"])
    if "norm" in sizes:
        sizes["norm"] = Norm(sizes["norm"])
    return Preset(
        name=row["name"],
        also=tuple(row.get("also", ())),
        published_params=row["published_params"],
        is_exact=row["is_exact"],
        source=row["source"],
        notes=tuple(row.get("notes", ())),
        shape=ModelShape(**sizes),
        seq_len=row.get("seq_len"),
    )
