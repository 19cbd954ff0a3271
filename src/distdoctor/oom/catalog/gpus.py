"""How much memory a GPU has, by the names that people give it, and how many of them a job has."""

from __future__ import annotations

import difflib
import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdoctor.errors import UsageError
from distdoctor.units import GIB, MIB

# The largest jobs have some 100,000 GPUs; more is a slip. Our own bounds, as are those of a size.
MAX_GPUS = 1_000_000
MIN_BYTES = 64 * MIB
MAX_BYTES = 16 * 1024 * GIB

_MAX_CHARACTERS = 100

_UNITS = {
    "gib": 1 << 30,
    "gb": 10**9,
    "g": 10**9,
    "mib": 1 << 20,
    "mb": 10**6,
    "tib": 1 << 40,
    "tb": 10**12,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(gib|gb|g|mib|mb|tib|tb)", re.IGNORECASE)
_COUNT = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*[x×*]\s*", re.IGNORECASE)
_TRAILING_COUNT = re.compile(r"(.+?)\s*[x×*:]\s*(\d+)", re.IGNORECASE)

# What nvidia-smi and torch print around the type: maker, product line, board, memory technology.
_DECORATION = re.compile(
    r"\b(?:nvidia|amd|tesla|geforce|instinct|graphics|generation|edition|server|workstation|oam"
    r"|sxm\d?|pcie|hbm\d?e?|gpu)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """A type of GPU and what torch can use of it."""

    name: str
    total_bytes: int
    """What torch and out-of-memory messages call total capacity; of several values seen, the lowest."""
    largest_bytes: int
    """The highest value seen: drivers and ECC differ."""
    smi_bytes: int | None
    """What nvidia-smi shows as total memory; None: not known."""
    architecture: str | None
    """`hopper`, `ampere`, `cdna` ...; None for a plain size."""
    is_approximate: bool
    """The capacity was not seen in a report, but derived or remembered."""
    source: str
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """GPUs of a job; all of one type."""

    num_gpus: int | None
    """None: only a type was given."""
    gpus_per_node: int | None
    type: GpuType


def gpu_type(word: str) -> GpuType:
    """The type called `word`: `h100-80gb`, `H200`, `NVIDIA A100-SXM4-80GB`; or a plain size: `80GiB`, `24 GB`.

    GB is 10^9 bytes and GiB 2^30. Raises UsageError when the word names several types or none.
    """
    if len(word) > _MAX_CHARACTERS:
        raise UsageError("the name of a GPU type is too long", hint=_examples())
    size = _SIZE.fullmatch(word.strip())
    if size is not None:
        return _plain_size(word.strip(), float(size[1]) * _UNITS[size[2].lower()])
    found = find_gpu_type(word)
    if found is not None:
        return found
    choices = _several().get(_key(word))
    if choices is not None:
        shown = " and ".join(f"`{each}`" for each in choices)
        raise UsageError(f"`{word.strip()}` exists with different memories: {shown}", hint="say which one")
    raise _unknown(word.strip())


def find_gpu_type(word: str) -> GpuType | None:
    """The type called `word` when it names exactly one of the catalog, else None."""
    row = _by_key().get(_key(word))
    return None if row is None else _type_of(row)


def gpu_names() -> tuple[str, ...]:
    """The names of all types, newest first."""
    return tuple(row["name"] for row in _table()["types"])


def parse_cluster(text: str) -> Cluster:
    """`16xh100-80gb`, `2x8xh100` (nodes x GPUs of a node), `8 x 80GiB`, or a type alone.

    Raises UsageError for an unknown or ambiguous type and for a number of GPUs that no job has.
    """
    if len(text) > _MAX_CHARACTERS:
        raise UsageError("the description of the GPUs is too long", hint=_examples())
    counts, word = _split(text)
    if not word:
        raise UsageError(f"`{text.strip()}` names no GPU type", hint=_examples())
    of_type = gpu_type(word)
    if len(counts) > 2:
        raise UsageError(
            f"`{text.strip()}` has {len(counts)} numbers in front of the type",
            hint="write GPUs x type (`16xh100`) or nodes x GPUs of a node x type (`2x8xh100`)",
        )
    num_gpus = None
    if counts:
        num_gpus = counts[0] * counts[-1] if len(counts) == 2 else counts[0]
        if num_gpus > MAX_GPUS:
            raise UsageError(f"{num_gpus:,} GPUs are more than any job has", hint=_examples())
    return Cluster(num_gpus=num_gpus, gpus_per_node=counts[1] if len(counts) == 2 else None, type=of_type)


def _split(text: str) -> tuple[list[int], str]:
    """The numbers in front of the type (or the one behind it), and the type."""
    counts: list[int] = []
    rest = text.strip()
    while (match := _COUNT.match(rest)) is not None:
        counts.append(_count(match[1], text))
        rest = rest[match.end() :]
    behind = _TRAILING_COUNT.fullmatch(rest)
    if not counts and behind is not None and _key(rest) not in _by_key() and _key(behind[1]) in _known_keys():
        return [_count(behind[2], text)], behind[1]
    return counts, rest.strip()


def _count(number: str, text: str) -> int:
    if "." in number or number.startswith("-") or int(number) == 0:
        raise UsageError(
            f"`{text.strip()}`: {number} is no number of GPUs or nodes", hint="it starts at 1: `8xh100`"
        )
    return int(number)


def _plain_size(word: str, num_bytes: float) -> GpuType:
    if not MIN_BYTES <= num_bytes <= MAX_BYTES:
        raise UsageError(
            f"`{word}` is no memory of a GPU: between 64 MiB and 16 TiB are taken", hint=_examples()
        )
    return GpuType(
        name=word,
        total_bytes=int(num_bytes),
        largest_bytes=int(num_bytes),
        smi_bytes=None,
        architecture=None,
        is_approximate=False,
        source="given as a size",
    )


def _unknown(word: str) -> UsageError:
    if word.isdigit():
        return UsageError(f"`{word}` has no unit", hint=f"write `{word}GiB`, or a type: {_examples()}")
    spelled = {_key(each): each for each in (*gpu_names(), *_several())}
    near = difflib.get_close_matches(_key(word), spelled, n=3, cutoff=0.6)
    meant = f"did you mean {' or '.join(f'`{spelled[each]}`' for each in near)}? " if near else ""
    return UsageError(f"no GPU type is known by the name `{word}`", hint=f"{meant}{_examples()}")


def _examples() -> str:
    return "for example `h100-80gb`, `16xh100-80gb`, `2x8xa100-80gb`, or a size: `16x80GiB`"


def _key(word: str) -> str:
    """A name without maker, board and punctuation: `NVIDIA A100-SXM4-80GB` -> `a10080gb`."""
    spaced = re.sub(r"[-_/().,]+", " ", word.lower())
    spaced = re.sub(r"(\d)\s*(?:gib|gb|g)\b", r"\1gb", spaced)
    return "".join(_DECORATION.sub(" ", spaced).split())


@functools.cache
def _table() -> dict[str, Any]:
    """The catalog as it lies beside this file. Any: `_type_of` gives a row its types."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("gpus.json").read_text(encoding="utf-8"))
    return table


@functools.cache
def _by_key() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for row in _table()["types"]:
        for name in (row["name"], *row.get("also", ())):
            key = _key(name)
            rows[key] = row
            # `a100-80` is said as often as `a100-80gb`.
            if key.endswith("gb"):
                rows.setdefault(key[:-2], row)
    return rows


@functools.cache
def _several() -> dict[str, tuple[str, ...]]:
    return {_key(word): tuple(names) for word, names in _table()["several"].items()}


@functools.cache
def _known_keys() -> frozenset[str]:
    return frozenset((*_by_key(), *_several()))


def _type_of(row: dict[str, Any]) -> GpuType:
    lowest, highest = row["capacity_gib"]
    smi_mib = row.get("smi_mib")
    return GpuType(
        name=row["name"],
        total_bytes=round(lowest * GIB),
        largest_bytes=round(highest * GIB),
        smi_bytes=None if smi_mib is None else smi_mib * MIB,
        architecture=row["architecture"],
        is_approximate=row.get("is_approximate", False),
        source=row["source"],
        note=row.get("note"),
    )
