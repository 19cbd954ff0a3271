"""Which known variable an unknown name was probably meant to be."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from distdoctor.env.catalog.variables import (
    name_that_was_meant,
    nccl_variables,
    read_by_nobody,
    reader_of,
    renamed_torch_variables,
    torch_variables,
)
from distdoctor.env.distance import edit_distance

# Families in which every name is somebody's: an unknown one is worth a word even without a near match.
CLOSED_FAMILIES = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "GLOO_")

# Outside of those, only slips of these names are looked for: many programs read a CUDA_ or OMP_ name.
_TARGETS_OF_OPEN_FAMILIES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_CPP_LOG_LEVEL",
    "TORCH_SHOW_CPP_STACKTRACES",
    "OMP_NUM_THREADS",
    "MASTER_ADDR",
    "MASTER_PORT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "FI_PROVIDER",
    "FI_EFA_USE_DEVICE_RDMA",
)
# Real names of those families that lie near a target without being a slip of it.
_REAL_NAMES = frozenset(
    ("CUDA_DEVICE", "CUDA_DEVICES", "CUDA_VERSION", "LD_RUN_PATH", "MASTER_HOST", "MASTER_NAME")
)

# A slip changes one letter of a short name, two of a longer one. Own rule: with two, NCCL_IB_XX would become
# NCCL_IB_SL.
_SHORT_NAME = 8
_MAX_DISTANCE = 2

# Words are taken as one when the shorter is the beginning of the other: ALLOC, ALLOCATOR; SUBSYS, SUBSYSTEM.
_MIN_STEM = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NearName:
    """A known name close to an unknown one."""

    name: str
    why: str
    """"one letter differs", "the words are in another order" …"""
    is_close: bool
    """One slip, or the same words: hardly ever a coincidence."""


def is_known(name: str) -> bool:
    """True when somebody is known to read this exact name."""
    return (
        name in nccl_variables()
        or name in torch_variables()
        or name in renamed_torch_variables()
        or (name.startswith("NCCL") and reader_of(name) is not None)
    )


def in_closed_family(name: str) -> bool:
    """True for names of which the catalog should hold every one."""
    return name.upper().startswith(CLOSED_FAMILIES)


def near_name(name: str) -> NearName | None:
    """The known variable that `name` is a slip of; None for a known name and for one that resembles nothing."""
    if is_known(name) or name in _REAL_NAMES or read_by_nobody(name):
        return None
    bare = _bare(name)
    if bare != name and is_known(bare):
        return NearName(name=bare, why=_how_it_is_dressed(name), is_close=True)
    meant = name_that_was_meant(bare)
    if meant is not None:
        return NearName(name=meant, why="a popular wrong name", is_close=True)
    if in_closed_family(bare):
        candidates: Iterable[str] = _closed_names()
        swapped = bare.removeprefix("TORCH_") if bare.startswith("TORCH_") else f"TORCH_{bare}"
        if swapped in torch_variables() or swapped in nccl_variables():
            why = (
                "TORCH_ in front is missing"
                if swapped.startswith("TORCH_")
                else "TORCH_ in front is too much"
            )
            return NearName(name=swapped, why=why, is_close=True)
    else:
        candidates = _TARGETS_OF_OPEN_FAMILIES
    return (
        _by_letters(bare, candidates, limit=1)
        or _by_words(bare, candidates)
        or _turned_round(bare, candidates)
        or _cut_short(bare, candidates)
        or _by_letters(bare, candidates, limit=_MAX_DISTANCE)
    )


def _bare(name: str) -> str:
    """The name without what a configuration file or a shell slip leaves around it."""
    return name.strip().removeprefix("export ").strip(" \t\r'\"").upper()


def _how_it_is_dressed(name: str) -> str:
    if name.strip().startswith("export "):
        return "`export` is part of the name here"
    if name.strip() != name or any(mark in name for mark in "'\""):
        return "spaces or quotes are part of the name here"
    return "the case of the letters differs"


@functools.cache
def _closed_names() -> tuple[str, ...]:
    """Names worth suggesting: those that something current still reads."""
    nccl = [each.name for each in nccl_variables().values() if each.last is None]
    torch = [each for each in torch_variables() if each.startswith(CLOSED_FAMILIES)]
    return tuple(sorted({*nccl, *torch, *renamed_torch_variables()}))


def _by_words(name: str, candidates: Iterable[str]) -> NearName | None:
    words = name.split("_")
    for candidate in candidates:
        other = candidate.split("_")
        if sorted(words) == sorted(other):
            return NearName(name=candidate, why="the words are in another order", is_close=True)
    for candidate in candidates:
        other = candidate.split("_")
        if len(other) == len(words) and all(
            _same_stem(one, two) for one, two in zip(words, other, strict=True)
        ):
            return NearName(name=candidate, why="a word is longer or shorter", is_close=True)
    return None


def _same_stem(one: str, two: str) -> bool:
    if one == two:
        return True
    short, long = sorted((one, two), key=len)
    return len(short) >= _MIN_STEM and long.startswith(short)


def _turned_round(name: str, candidates: Iterable[str]) -> NearName | None:
    for word, opposite in (("ENABLE", "DISABLE"), ("DISABLE", "ENABLE")):
        if name.endswith(f"_{word}"):
            turned = name.removesuffix(word) + opposite
            if turned in candidates:
                why = f"there is no {word} form, so the value must be turned round"
                return NearName(name=turned, why=why, is_close=True)
    return None


def _cut_short(name: str, candidates: Iterable[str]) -> NearName | None:
    longer = [each for each in candidates if each.startswith(f"{name}_")]
    if len(longer) == 1 and name.count("_") >= 2:
        return NearName(name=longer[0], why="the end of the name is missing", is_close=True)
    return None


def _by_letters(name: str, candidates: Iterable[str], limit: int) -> NearName | None:
    family = next((each for each in CLOSED_FAMILIES if name.startswith(each)), "")
    allowed = 1 if len(name) - len(family) < _SHORT_NAME else limit
    best: tuple[int, str] | None = None
    for candidate in candidates:
        distance = min(
            edit_distance(name, candidate, allowed),
            edit_distance(name.replace("_", ""), candidate.replace("_", ""), allowed),
        )
        if distance > 1 and _another_word(name, candidate):
            continue
        if distance <= allowed and (best is None or distance < best[0]):
            best = (distance, candidate)
    if best is None:
        return None
    letters = "one letter differs" if best[0] <= 1 else "two letters differ"
    return NearName(name=best[1], why=letters, is_close=best[0] <= 1)


def _another_word(name: str, candidate: str) -> bool:
    """True when one short word stands for another (P2P, PAT): two letters of four are no slip."""
    words, other = name.split("_"), candidate.split("_")
    if len(words) != len(other):
        return False
    different = [max(len(one), len(two)) for one, two in zip(words, other, strict=True) if one != two]
    return len(different) == 1 and different[0] <= _MIN_STEM
