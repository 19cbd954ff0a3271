"""How large a block and a segment become: the constants and the rounding of the caching allocator.

c10/core/AllocatorConfig.h and `round_size`, `get_allocation_size` of c10/cuda/CUDACachingAllocator.cpp, torch 2.6 to
2.13. All sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.units import MIB

# kMinBlockSize: every block is a multiple of this.
MIN_BLOCK_BYTES = 512

# kSmallSize: requests up to this come from the small pool, and a rest up to this is not cut off a large block.
SMALL_BYTES = MIB

# kSmallBuffer: a segment of the small pool, and a page of its expandable segments.
SMALL_SEGMENT_BYTES = 2 * MIB

# kMinLargeAlloc: requests from here on get a segment of their own.
MIN_LARGE_BYTES = 10 * MIB

# kLargeBuffer, since torch 2.11 large_segment_size_mb: a segment for requests between the two, and a page of the large
# pool's expandable segments.
LARGE_SEGMENT_BYTES = 20 * MIB

# kRoundLarge: a segment of its own is a multiple of this.
ROUND_LARGE_BYTES = 2 * MIB

# kRoundUpPowerOfTwoIntervals: rounding to parts of powers of two can be set for each power from 1 MiB to 32 GiB.
NUM_INTERVALS = 16


def round_up(num_bytes: int, step: int) -> int:
    """The least multiple of `step` that is not below `num_bytes`."""
    return -(-num_bytes // step) * step


def rounded_request(requested: int, divisions: Sequence[int]) -> int:
    """Bytes of the block for a request of `requested` bytes: whole 512 bytes, or a part of a power of two.

    `divisions` are those of AllocatorOptions.roundup_power2_divisions.
    """
    if requested < MIN_BLOCK_BYTES:
        return MIN_BLOCK_BYTES
    parts = divisions[min(max(0, (requested // MIB).bit_length() - 1), NUM_INTERVALS - 1)]
    if parts <= 1 or requested <= MIN_BLOCK_BYTES * parts:
        return round_up(requested, MIN_BLOCK_BYTES)
    power = 1 << (requested.bit_length() - 1)
    return round_up(requested, power // parts)


def segment_for(size: int, large_segment: int = LARGE_SEGMENT_BYTES) -> int:
    """Bytes that are asked from the driver for a block of `size` bytes that no free block can serve."""
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < MIN_LARGE_BYTES:
        return large_segment
    return round_up(size, ROUND_LARGE_BYTES)
