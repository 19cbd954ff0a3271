"""How much memory a measurement needs on one rank. Torch-free."""

from __future__ import annotations

from distdoctor.nccl_bench.definitions import BARRIER
from distdoctor.units import MIB

# What filling and checking a buffer takes beside it, at most: pieces of 2^20 elements, their expected values, and
# for averages three copies in float64 (measure/buffers.py). Without what the backend stages by itself.
CHECK_BYTES = 64 * MIB

_TWO_BUFFERS = frozenset(("all_to_all", "all_to_all_uneven", "sendrecv"))
_BUFFER_AND_PART = frozenset(("all_gather", "reduce_scatter", "gather", "scatter"))


def predicted_bytes(name: str, size_bytes: int, num_ranks: int, in_place: bool) -> int:
    """Bytes of the buffers of the rank that needs most, for a collective at `size_bytes` (nccl-tests' size).

    An upper bound: sizes are rounded down afterwards. NCCL and Gloo stage further bytes by themselves, which are
    not counted; neither is CHECK_BYTES.
    """
    if name == BARRIER:
        return 0
    if name in _TWO_BUFFERS:
        return 2 * size_bytes
    if name in _BUFFER_AND_PART and not in_place:
        return size_bytes + -(-size_bytes // max(1, num_ranks))
    return size_bytes
