"""What ranks tell one another first, through the store: typed JSON, decoded with limits, for a peer is not trusted."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from distdoctor.ranks.places import Place

# One rank's greeting or farewell takes some 300 bytes.
MAX_MESSAGE_BYTES = 16 * 1024

M = TypeVar("M", bound=msgspec.Struct)


class Hello(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rank's place and means, told before the work begins."""

    rank: int
    host: str
    local_rank: int
    node_rank: int | None = None
    pod: str | None = None
    device: str = "cpu"
    gpu_pci: str | None = None
    gpu_uuid: str | None = None
    gpu_model: str | None = None
    memory_bytes: int | None = None
    """What this rank may take; None when it cannot be told."""
    import_torch_s: float = 0.0
    process_group_s: float = 0.0
    torch: str | None = None
    cuda: str | None = None
    nccl: str | None = None


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Everybody's greeting, by rank, put together by rank 0."""

    ranks: tuple[Hello, ...]


def encode(message: msgspec.Struct) -> bytes:
    """The message as JSON."""
    return msgspec.json.encode(message)


def decode(data: bytes, kind: type[M], *, max_bytes: int = MAX_MESSAGE_BYTES) -> M | None:
    """The message, or None when it is too long or not of that kind."""
    if len(data) > max_bytes:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None


def places_of(layout: Layout) -> tuple[Place, ...]:
    """Places by rank. Hosts that share a name are told apart by their number in the launch."""
    nodes: dict[str, list[int | None]] = {}
    for each in layout.ranks:
        known = nodes.setdefault(each.host, [])
        if each.node_rank not in known:
            known.append(each.node_rank)
    return tuple(
        Place(
            rank=each.rank,
            host=each.host if len(nodes[each.host]) == 1 else f"{each.host}/{each.node_rank}",
            local_rank=each.local_rank,
            pod=each.pod,
            gpu_pci=each.gpu_pci,
            gpu_uuid=each.gpu_uuid,
            gpu_model=each.gpu_model,
            device=each.device,
        )
        for each in layout.ranks
    )
