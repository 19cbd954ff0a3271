"""How much memory this rank's buffers may take."""

from __future__ import annotations

from distdoctor.ranks.group.device import available_bytes
from distdoctor.ranks.group.target import Target

# Of what is free: the rest is for what backends and allocators take beside our buffers. Our own choice.
_SHARE_FOR_BUFFERS = 0.7


def buffer_bytes(target: Target, *, ranks_here: int) -> int | None:
    """Memory for this rank's buffers; the host's is shared by all its ranks. None where it is not known."""
    free = available_bytes(target.device)
    if free is None:
        return None
    share = 1 if target.device.type == "cuda" else max(1, ranks_here)
    return int(free * _SHARE_FOR_BUFFERS) // share
