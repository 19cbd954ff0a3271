"""How many elements each rank sends and receives for a "size", rounded as nccl-tests rounds. Torch-free.

The elements of a part are rounded down to 16 bytes, so that every rank's part begins aligned; a size that is too
small for all ranks becomes 0. Source: the `…GetCollByteCount` functions of NVIDIA/nccl-tests.
"""

from __future__ import annotations

from distdoctor.nccl_bench.definitions import BARRIER, BY_NAME

# Alignment of each rank's part, bytes; nccl-tests' `& ~(16/eltSize - 1)`.
ALIGNMENT_BYTES = 16

# The rank at position s sends `1 + (s + d) % 4` units to the one at position d: uneven splits that are the same
# in every run, nobody's empty, and as much received as sent by each rank. Our own pattern; nccl-tests has others.
_UNEVEN_CYCLE = 4

_IN_PLACE_ONLY = frozenset(("all_reduce", "broadcast", "reduce", BARRIER))
_BOTH_PLACES = frozenset(("all_gather", "reduce_scatter"))


def natural_places(collective: str) -> tuple[bool, ...]:
    """Which of out of place (False) and in place (True) torch.distributed offers, in this order."""
    if collective in _IN_PLACE_ONLY:
        return (True,)
    return (False, True) if collective in _BOTH_PLACES else (False,)


def part_elements(collective: str, size_bytes: int, num_ranks: int, element_bytes: int) -> int:
    """Elements of one rank's part; for uneven splits, of one unit; for the others, of the whole buffer."""
    count = size_bytes // element_bytes
    if collective == BARRIER:
        return 0
    if not BY_NAME[collective].is_split:
        return count
    parts = most_units(num_ranks) if collective == "all_to_all_uneven" else num_ranks
    return _aligned(count // parts, element_bytes)


def actual_size_bytes(collective: str, size_bytes: int, num_ranks: int, element_bytes: int) -> int:
    """The size that is measured when `size_bytes` is asked for; 0 when it is too small for so many ranks."""
    part = part_elements(collective, size_bytes, num_ranks, element_bytes)
    if collective == BARRIER:
        return 0
    if not BY_NAME[collective].is_split:
        return part * element_bytes
    parts = most_units(num_ranks) if collective == "all_to_all_uneven" else num_ranks
    return part * parts * element_bytes


def uneven_units(position: int, num_ranks: int) -> tuple[int, ...]:
    """Units that the rank at `position` of the group sends to each position, and receives from each."""
    return tuple(1 + (position + peer) % _UNEVEN_CYCLE for peer in range(num_ranks))


def most_units(num_ranks: int) -> int:
    """Units that the busiest rank sends."""
    # Positions repeat after one cycle.
    return max(sum(uneven_units(position, num_ranks)) for position in range(min(num_ranks, _UNEVEN_CYCLE)))


def _aligned(count: int, element_bytes: int) -> int:
    step = max(1, ALIGNMENT_BYTES // element_bytes)
    return count - count % step
