"""What a trace says of itself beside its events: rank, host, GPU models, process groups, the base of its clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

# Ranks and world sizes beyond this are no counts of any job.
MAX_RANKS = 1_000_000

# Groups of one rank: a job with five dimensions has some twenty. More are not kept; our own choice.
MAX_GROUPS = 4096

MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """One process group that this rank is in, as `distributedInfo.pg_config` lists it."""

    name: str
    what: str | None
    ranks: tuple[int, ...] | None
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """None: the trace does not say."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    base_s: float | None = None
    """What `ts` counts from, seconds since 1970 UTC; None: from 1970 itself, as Kineto did until 2024."""
    gpu_models: Mapping[int, str] = field(default_factory=dict)
    groups: tuple[ProcessGroup, ...] = ()


def parse_header(head: bytes, tail: bytes) -> Header:
    """The metadata before and behind the events. What is broken or absurd there is left out."""
    fields = _fields(head, tail)
    info = fields.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    world_size = bounded_int(info.get("world_size"), 1, MAX_RANKS)
    rank = bounded_int(info.get("rank"), 0, MAX_RANKS - 1)
    base_ns = bounded_int(fields.get("baseTimeNanoseconds"), 1, 1 << 62)
    return Header(
        rank=rank,
        world_size=world_size if rank is None or world_size is None or rank < world_size else None,
        backend=_text(info.get("backend")),
        host=next((text for key in _HOST_KEYS if (text := _text(fields.get(key)))), None),
        base_s=None if base_ns is None else base_ns / 1e9,
        gpu_models=_gpu_models(fields.get("deviceProperties")),
        groups=_groups(info.get("pg_config"), world_size),
    )


def bounded_int(value: object, low: int, high: int) -> int | None:
    """`value` as a whole number from `low` to `high`; None for everything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        return None
    return value


# `host_name` is torch's since 2.12; others come from `add_metadata_json` of users and from launchers.
_HOST_KEYS = ("host_name", "hostname", "host")
_KEYS = ("distributedInfo", "deviceProperties", "baseTimeNanoseconds", *_HOST_KEYS)


def _fields(head: bytes, tail: bytes) -> dict[str, Any]:  # Any: JSON that is looked at key by key
    """The wanted keys; each decoded on its own, so that one broken value costs no other."""
    found: dict[str, Any] = {}
    for part in (_as_object(head, is_head=True), _as_object(tail, is_head=False)):
        try:
            raw = msgspec.json.decode(part, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            _by_pattern(part, found)
            continue
        for key in _KEYS:
            if key in raw and key not in found:
                try:
                    found[key] = msgspec.json.decode(raw[key])
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
    return found


def _as_object(part: bytes, *, is_head: bool) -> bytes:
    text = part.strip().removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n,")
    if is_head:
        return text + b"}" if text.startswith(b"{") else b"{}"
    return b"{" + text if text.endswith(b"}") else b"{" + text + b"}"


def _by_pattern(part: bytes, found: dict[str, Any]) -> None:
    """The few numbers that matter out of metadata that is no JSON (an unescaped path, a cut)."""
    base = re.search(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b', part)
    if base:
        found.setdefault("baseTimeNanoseconds", int(base[1]))
    info = re.search(rb'"distributedInfo"\s*:\s*\{([^{}\[\]]*)', part)
    if info:
        pairs = re.findall(rb'"(rank|world_size)"\s*:\s*(\d{1,9})\b', info[1])
        found.setdefault("distributedInfo", {name.decode(): int(value) for name, value in pairs})


def _text(value: object) -> str | None:
    return value[:MAX_NAME_CHARACTERS] if isinstance(value, str) and value.strip() else None


def _gpu_models(value: object) -> dict[int, str]:
    models = {}
    for item in value[:64] if isinstance(value, list) else ():
        if isinstance(item, dict):
            index, name = bounded_int(item.get("id"), 0, 1023), _text(item.get("name"))
            if index is not None and name is not None:
                models[index] = name
    return models


def _groups(value: object, world_size: int | None) -> tuple[ProcessGroup, ...]:
    groups = []
    for item in value[:MAX_GROUPS] if isinstance(value, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("pg_name"), str):
            continue
        size = bounded_int(item.get("pg_size", item.get("group_size")), 1, MAX_RANKS)
        ranks = group_ranks(item.get("ranks"))
        # torch leaves the list empty for a group of all ranks.
        if not ranks and size is not None and size == world_size:
            ranks = tuple(range(size))
        groups.append(
            ProcessGroup(
                name=item["pg_name"][:MAX_NAME_CHARACTERS],
                what=_text(item.get("pg_desc")),
                ranks=ranks if ranks and (size is None or len(ranks) == size) else None,
                size=size if size is not None else len(ranks) or None,
            )
        )
    return tuple(groups)


def group_ranks(value: object) -> tuple[int, ...]:
    """A list of global ranks; empty unless it is one, whole and without absurd numbers."""
    if not isinstance(value, list) or not value or len(value) > MAX_RANKS:
        return ()
    ranks = tuple(rank for rank in value if isinstance(rank, int) and 0 <= rank < MAX_RANKS)
    return ranks if len(ranks) == len(value) else ()
