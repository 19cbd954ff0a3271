"""How the CUDA caching allocator is set: PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF, as far as it changes reserved.

Grammar and limits are those of c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp, torch 2.6 to 2.13:
`key:value,key:[a:b,c:d]`, whitespace ignored, the last of two equal keys wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from distdoctor.errors import UsageError
from distdoctor.oom.allocator.sizes import LARGE_SEGMENT_BYTES, MIN_LARGE_BYTES, NUM_INTERVALS
from distdoctor.units import MIB

# A setting is a line of an environment. Our own bound.
MAX_TEXT = 4096

# Keys that torch knows and that do not change what is reserved on the GPU: pinned host memory, locks, graph capture.
WITHOUT_EFFECT = (
    "graph_capture_record_stream_reuse",
    "max_cached_size",
    "max_round_threshold",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "throw_on_cudamalloc_oom",
)

_TOKEN = re.compile(r"[,:\[\]]|[^,:\[\]]+")
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorOptions:
    """Settings of the allocator; the defaults are torch's own."""

    expandable_segments: bool = False
    max_split_size_bytes: int | None = None
    """Blocks of this size and more are not cut, and serve only requests of this size and more. None: no limit."""
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES
    """A block that may not be cut serves a request that is smaller by less than this."""
    garbage_collection_threshold: float | None = None
    """Share of torch's own cap from which on old free segments are given back. Without a cap it does nothing."""
    roundup_power2_divisions: tuple[int, ...] = (0,) * NUM_INTERVALS
    """For requests from 2^i to 2^(i+1) MiB, i from 0 to 15 (smaller and larger ones use the ends): each power of two is
    cut into so many sizes; 0 and 1 turn rounding off."""
    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    """Segment for requests of 1 to 10 MiB, and page of an expandable segment for large requests."""
    per_process_memory_fraction: float | None = None
    """Cap on what torch reserves, as a share of the device. None: no cap."""
    uses_driver_pool: bool = False
    """`backend:cudaMallocAsync`: CUDA's own pool decides, which is not modelled here."""
    is_oldest_first: bool = True
    """Of free blocks of equal size the one made first is taken, as torch 2.12 does. False: the one at the lowest
    address, as torch up to 2.11 does. No setting, but a difference between versions."""
    notes: tuple[str, ...] = ()
    """What was given and does not act here, in words."""


def parse_allocator_conf(text: str) -> AllocatorOptions:
    """What `text`, the value of PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF, sets.

    A key that is unknown here is kept as a note. Raises UsageError where torch would refuse the value or cannot read it.
    """
    if len(text) > MAX_TEXT:
        raise UsageError(f"the allocator's settings are longer than {MAX_TEXT} characters")
    options = AllocatorOptions()
    notes: list[str] = []
    for key, value in _pairs(text):
        reader = _READERS.get(key)
        if reader is not None:
            options = reader(options, value)
        elif key in WITHOUT_EFFECT:
            notes.append(f"`{key}` does not change what is reserved on the GPU")
        else:
            notes.append(f"`{key[:60]}` is unknown here; torch refuses keys that it does not know")
    if (
        options.max_split_size_bytes is not None
        and options.max_split_size_bytes < options.large_segment_bytes
    ):
        raise UsageError(
            f"max_split_size_mb must be {options.large_segment_bytes // MIB} or more",
            hint="torch refuses smaller values",
        )
    return replace(options, notes=(*notes, *_idle(options)))


def _idle(options: AllocatorOptions) -> Iterator[str]:
    """Settings that do nothing for want of another."""
    if options.garbage_collection_threshold is not None and options.per_process_memory_fraction is None:
        yield "`garbage_collection_threshold` acts only with a cap, as per_process_memory_fraction below 1 sets"
    if options.max_non_split_rounding_bytes != LARGE_SEGMENT_BYTES and options.max_split_size_bytes is None:
        yield "`max_non_split_rounding_mb` acts only with max_split_size_mb"
    if options.uses_driver_pool:
        yield "`backend:cudaMallocAsync` leaves reserving to CUDA's own pool, which is not modelled"


def _pairs(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each key with the tokens of its value, brackets included."""
    tokens: list[str] = _TOKEN.findall("".join(text.split()))
    at = 0
    while at < len(tokens):
        key = tokens[at]
        if key in ",:[]" or tokens[at + 1 : at + 2] != [":"]:
            raise UsageError(
                f"cannot read `{key[:60]}` in the allocator's settings",
                hint="write key:value,key:value, as in `expandable_segments:True,max_split_size_mb:512`",
            )
        end = at + 3
        if tokens[at + 2 : end] == ["["]:
            if "]" not in tokens[end:]:
                raise UsageError(f"`{key[:60]}` has no closing bracket")
            end = tokens.index("]", end) + 1
        value = tokens[at + 2 : end]
        if not value or value[0] in (",", ":", "]"):
            raise UsageError(f"`{key[:60]}` has no value")
        yield key, value
        if end < len(tokens) and tokens[end] != ",":
            raise UsageError(f"cannot read `{tokens[end][:60]}` after the value of `{key[:60]}`")
        at = end + 1


def _single(key: str, value: list[str]) -> str:
    if len(value) != 1:
        raise UsageError(f"{key} takes one value, not a list")
    return value[0]


def _number(key: str, text: str, kind: Callable[[str], _Number]) -> _Number:
    # `int` and `float` also take `1_000`, signs, `nan`.
    if not re.fullmatch(r"\d{1,12}(?:\.\d{1,12})?", text) or (kind is int and "." in text):
        raise UsageError(f"{key} is `{text[:40]}`, which is no {'whole ' if kind is int else ''}number")
    return kind(text)


def _mib(key: str, value: list[str], at_least: int) -> int:
    number = _number(key, _single(key, value), int)
    if number * MIB < at_least:
        raise UsageError(
            f"{key} must be {-(-at_least // MIB)} or more, not {number}", hint="torch refuses smaller values"
        )
    return number * MIB


def _expandable(options: AllocatorOptions, value: list[str]) -> AllocatorOptions:
    word = _single("expandable_segments", value)
    if word not in ("True", "False"):
        raise UsageError(
            f"expandable_segments is `{word[:40]}`", hint="torch takes True or False, spelled so"
        )
    return replace(options, expandable_segments=word == "True")


def _max_split(options: AllocatorOptions, value: list[str]) -> AllocatorOptions:
    # Its least value is that of a large segment, which a later key may set: checked at the end.
    return replace(options, max_split_size_bytes=_mib("max_split_size_mb", value, 0))


def _rounding(options: AllocatorOptions, value: list[str]) -> AllocatorOptions:
    size = _mib("max_non_split_rounding_mb", value, LARGE_SEGMENT_BYTES)
    return replace(options, max_non_split_rounding_bytes=size)


def _large_segment(options: AllocatorOptions, value: list[str]) -> AllocatorOptions:
    return replace(options, large_segment_bytes=_mib("large_segment_size_mb", value, MIN_LARGE_BYTES + MIB))


def _threshold(options: AllocatorOptions, value: list[str]) -> AllocatorOptions:
    key = "garbage_collection_threshold"
    share = _number(key, _single(key, value), float)
    if not 0 < share < 1:
        raise UsageError(f"{key} must lie between 0 and 1, not {share:g}")
    return replace(options, garbage_collection_threshold=share)


def _fraction(options: AllocatorOptions, value: list[str]) -> AllocatorOptions:
    key = "per_process_memory_fraction"
    share = _number(key, _single(key, value), float)
    if share > 1:
        raise UsageError(f"{key} must lie between 0 and 1, not {share:g}")
    # torch sets a cap only below 1.
    return replace(options, per_process_memory_fraction=share if share < 1 else None)


def _backend(options: AllocatorOptions, value: list[str]) -> AllocatorOptions:
    word = _single("backend", value)
    if word not in ("native", "cudaMallocAsync", "hipMallocAsync"):
        raise UsageError(f"`{word[:40]}` is no backend", hint="torch knows native and cudaMallocAsync")
    return replace(options, uses_driver_pool=word != "native")


def _divisions(options: AllocatorOptions, value: list[str]) -> AllocatorOptions:
    if value[0] != "[":
        number = _power_of_two(_single("roundup_power2_divisions", value))
        return replace(options, roundup_power2_divisions=(number,) * NUM_INTERVALS)
    divisions = [0] * NUM_INTERVALS
    last = None
    for boundary, number in _bounds(value[1:-1]):
        if boundary is None:
            # `>`: what lies above the last boundary. torch 2.6 overwrites the last boundary itself as well.
            start = 0 if last is None else last + 1
            divisions[start:] = [number] * (NUM_INTERVALS - start)
            continue
        index = min(boundary.bit_length() - 1, NUM_INTERVALS - 1)
        if last is None:
            divisions[:index] = [number] * index
        divisions[index] = number
        last = index
    return replace(options, roundup_power2_divisions=tuple(divisions))


def _bounds(tokens: list[str]) -> Iterator[tuple[int | None, int]]:
    """`256:1,512:2,>:4` as pairs of a boundary in MiB (None: everything above) and a number of divisions."""
    key = "roundup_power2_divisions"
    for at in range(0, len(tokens), 4):
        pair = tokens[at : at + 4]
        if len(pair) < 3 or pair[1] != ":" or pair[3:] not in ([], [","]):
            raise UsageError(f"cannot read the list of {key}", hint="write [256:1,512:2,1024:4,>:8]")
        yield None if pair[0] == ">" else _power_of_two(pair[0], least=1), _power_of_two(pair[2])


def _power_of_two(text: str, least: int = 0) -> int:
    number = _number("roundup_power2_divisions", text, int)
    if number < least or number & (number - 1):
        raise UsageError(f"roundup_power2_divisions has {number}, which is no power of two")
    return number


_READERS: dict[str, Callable[[AllocatorOptions, list[str]], AllocatorOptions]] = {
    "expandable_segments": _expandable,
    "max_split_size_mb": _max_split,
    "max_non_split_rounding_mb": _rounding,
    "garbage_collection_threshold": _threshold,
    "roundup_power2_divisions": _divisions,
    "large_segment_size_mb": _large_segment,
    "per_process_memory_fraction": _fraction,
    "backend": _backend,
}
