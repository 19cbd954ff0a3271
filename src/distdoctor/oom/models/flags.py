"""A model from what a command line says: sizes, a number of parameters, or one word."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from distdoctor.errors import InputError, UsageError
from distdoctor.evidence import read_evidence
from distdoctor.oom.models.config_json import MAX_SIZE
from distdoctor.oom.models.hf_config import model_from_hf_config
from distdoctor.oom.models.presets import find_preset, preset
from distdoctor.oom.parameters import count_parameters
from distdoctor.oom.shape import MixtureOfExperts, Model, ModelShape

# Below it is a slip (`--params 7` for 7B), above it no model has been trained. Our own bounds.
MIN_PARAMS = 10_000
MAX_PARAMS = 10**15

# A stated number of parameters that the shape misses by more is a contradiction; by more than the second, worth a
# note (rounded names miss by up to 15 %: "7B" of 6.74e9, "8B" of 7.6e9). Our own thresholds.
MAX_DISAGREEMENT = 2.0
NOTED_DISAGREEMENT = 1.15

_COUNT = re.compile(
    r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(?:\.\d+)?(?:e[+-]?\d{1,3})?)\s*(k|m|b|bn|g|t)?", re.IGNORECASE
)
_FACTORS = {"k": 10**3, "m": 10**6, "b": 10**9, "bn": 10**9, "g": 10**9, "t": 10**12}

# A gated MLP as wide as Llama's: 8/3 of the hidden size, rounded up to this.
_FFN_MULTIPLE = 256


def parse_count(text: str) -> int:
    """A number of parameters: `7.5e9`, `7.5B`, `8b`, `350M`, `70_000_000`. Raises UsageError for anything else."""
    match = _COUNT.fullmatch(text.strip()) if len(text) <= 60 else None
    if match is None:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise UsageError(f"`{shown}` is no number of parameters", hint="write `7.5e9`, `7.5B` or `350M`")
    value = float(match[1].replace(",", "").replace("_", "")) * _FACTORS.get((match[2] or "").lower(), 1)
    return _checked_params(value, text.strip())


def load_model(word: str) -> Model:
    """The model that `word` names: a `config.json`, a folder that holds one, or a preset; files come first.

    Raises InputError for a file that cannot be read as a model, UsageError for an unknown name.
    """
    path = Path(word)
    if "\0" in word or len(word) > 4096 or not word.strip():
        raise UsageError(
            "`--model` names no model", hint="give a preset (`llama3-8b`) or the path of a `config.json`"
        )
    if _is(path, "file"):
        return _from_file(path)
    if _is(path, "folder"):
        inside = path / "config.json"
        if _is(inside, "file"):
            return _from_file(inside)
        if find_preset(word) is None:
            raise InputError(
                f"`{word}` holds no config.json", hint="give the folder of a model, or a preset's name"
            )
    if find_preset(word) is None and (word.endswith((".json", "/")) or word.startswith((".", "/", "~"))):
        raise InputError(
            f"there is no file or folder `{word}`", hint="give a `config.json`, or a preset's name"
        )
    return preset(word)


def model_from_options(
    *,
    params: float | None = None,
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_size: int | None = None,
    ffn: int | None = None,
    vocab: int | None = None,
    gated: bool | None = None,
    tied: bool | None = None,
    experts: int | None = None,
    experts_per_token: int | None = None,
    expert_ffn: int | None = None,
    shared_ffn: int | None = None,
) -> Model:
    """A model from its sizes, or from `params` (number of parameters) alone, which says nothing of activations.

    Of a shape, layers, hidden, heads and vocab are needed; the rest has defaults, told in the notes. Raises
    UsageError for what is missing, impossible or contradictory.
    """
    stated = None if params is None else _checked_params(params, f"--params {params:g}")
    sizes: dict[str, int | None] = {
        "--layers": layers,
        "--hidden": hidden,
        "--heads": heads,
        "--vocab": vocab,
        "--kv-heads": kv_heads,
        "--head-size": head_size,
        "--ffn": ffn,
        "--experts": experts,
        "--experts-per-token": experts_per_token,
        "--expert-ffn": expert_ffn,
        "--shared-ffn": shared_ffn,
    }
    if all(size is None for size in sizes.values()) and gated is None and tied is None:
        if stated is None:
            raise UsageError(
                "no model is given", hint="`--model llama3-8b`, sizes (`--layers` ...) or `--params 7.5B`"
            )
        return Model(
            name=f"{stated:,} parameters",
            source="--params",
            stated_params=stated,
            notes=("Only the number of parameters is known: activations are not estimated.",),
        )
    for option, size in sizes.items():
        _check_size(option, size)
    if layers is None or hidden is None or heads is None or vocab is None:
        raise _missing(sizes)
    notes: list[str] = []
    is_gated = True if gated is None else gated
    moe = _experts(experts, experts_per_token, expert_ffn, shared_ffn, ffn)
    width = ffn if moe is None else ffn or moe.expert_ffn_size
    shape = ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=_kv_heads(kv_heads, heads),
        head_size=_head_size(head_size, hidden, heads),
        ffn_size=width or _default_ffn(hidden, is_gated, notes),
        vocab_size=vocab,
        is_gated=is_gated,
        ties_embeddings=bool(tied),
        moe=moe,
    )
    if tied is None:
        notes.append("Embedding and output are taken to be two matrices (`--tied` when they are one).")
    notes += _compare(stated, shape)
    return Model(name=f"{layers} layers of {hidden}", source="options", shape=shape, notes=tuple(notes))


def _is(path: Path, kind: str) -> bool:
    try:
        return path.is_file() if kind == "file" else path.is_dir()
    except (OSError, ValueError):
        # A name that is too long for a file, or a folder that may not be searched.
        return False


def _from_file(path: Path) -> Model:
    return model_from_hf_config(read_evidence(str(path)).text, str(path))


def _checked_params(value: float, shown: str) -> int:
    if math.isnan(value) or not MIN_PARAMS <= value <= MAX_PARAMS:
        meant = f"did you mean `{shown}B`? " if re.fullmatch(r"[1-9]\d{0,3}(?:\.\d+)?", shown) else ""
        raise UsageError(
            f"`{shown}` is no number of parameters that a model has",
            hint=f"{meant}write `7.5e9`, `7.5B` or `350M`",
        )
    return round(value)


def _check_size(option: str, size: int | None) -> None:
    if size is None:
        return
    # NaN fails the comparison.
    if isinstance(size, bool) or not 0 < size <= MAX_SIZE or size != int(size):
        raise UsageError(
            f"`{option} {size}` is no size of a model", hint=f"a whole number from 1 to {MAX_SIZE:,}"
        )


def _missing(sizes: Mapping[str, int | None]) -> UsageError:
    missing = [option for option in ("--layers", "--hidden", "--heads", "--vocab") if sizes[option] is None]
    return UsageError(
        f"for a model from its sizes, {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
        hint="or name a preset (`--model llama3-8b`), or give `--params` alone",
    )


def _kv_heads(kv_heads: int | None, heads: int) -> int:
    if kv_heads is None:
        return heads
    if heads % kv_heads:
        raise UsageError(f"`--kv-heads {kv_heads}` does not divide `--heads {heads}`")
    return kv_heads


def _head_size(head_size: int | None, hidden: int, heads: int) -> int:
    if head_size is not None:
        return head_size
    if hidden % heads:
        raise UsageError(
            f"`--hidden {hidden}` is not a multiple of `--heads {heads}`",
            hint="say how large a head is: `--head-size 128`",
        )
    return hidden // heads


def _default_ffn(hidden: int, is_gated: bool, notes: list[str]) -> int:
    width = 4 * hidden
    rule = "4 x the hidden size"
    if is_gated:
        width = -(-8 * hidden // (3 * _FFN_MULTIPLE)) * _FFN_MULTIPLE
        rule = "8/3 of the hidden size, rounded up to 256, as Llama's first"
    notes.append(f"The width of the MLP was not given; {width} is taken ({rule}).")
    return width


def _experts(
    experts: int | None,
    experts_per_token: int | None,
    expert_ffn: int | None,
    shared_ffn: int | None,
    ffn: int | None,
) -> MixtureOfExperts | None:
    if experts is None:
        for option, value in (
            ("--experts-per-token", experts_per_token),
            ("--expert-ffn", expert_ffn),
            ("--shared-ffn", shared_ffn),
        ):
            if value is not None:
                raise UsageError(f"`{option}` needs `--experts`", hint="say how many experts a layer has")
        return None
    if experts_per_token is None:
        raise UsageError("`--experts` needs `--experts-per-token`", hint="Mixtral has 2, DeepSeek-V3 8")
    if experts_per_token > experts:
        raise UsageError(f"`--experts-per-token {experts_per_token}` is more than `--experts {experts}`")
    width = expert_ffn or ffn
    if width is None:
        raise UsageError("`--experts` needs `--expert-ffn`", hint="the width of one expert's MLP")
    return MixtureOfExperts(
        num_experts=experts,
        experts_per_token=experts_per_token,
        expert_ffn_size=width,
        shared_ffn_size=shared_ffn or 0,
    )


def _compare(stated: int | None, shape: ModelShape) -> list[str]:
    """What is said when the stated number of parameters is not that of the shape. Raises UsageError beyond a factor."""
    if stated is None:
        return []
    counted = count_parameters(shape)
    factor = max(stated / counted, counted / stated)
    if factor > MAX_DISAGREEMENT:
        raise UsageError(
            f"`--params` says {stated:,} and the sizes make {counted:,} parameters",
            hint="leave out one of the two, or correct it",
        )
    if factor > NOTED_DISAGREEMENT:
        return [f"--params says {stated:,}; the sizes make {counted:,} parameters, and those are used."]
    return []
