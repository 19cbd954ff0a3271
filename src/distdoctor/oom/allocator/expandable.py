"""Expandable segments: address space for the whole device, behind which memory is put and taken away page by page.

`try_allocate_expandable_block`, `map_block` and `unmap_block` of c10/cuda/CUDACachingAllocator.cpp, torch 2.6 to 2.13.
Each pool of each stream has one segment, and a further one only where the first has no address space left.
"""

from __future__ import annotations

from collections.abc import Iterator

from distdoctor.oom.allocator.blocks import Block, Pool, cut, merge
from distdoctor.oom.allocator.driver import Driver
from distdoctor.oom.allocator.sizes import SMALL_SEGMENT_BYTES, round_up

# Above all segments that are not expandable. Any address will do.
_FIRST_ADDRESS = 1 << 60

# Address space of a segment where the device's size is not told: more than any device has.
_NO_LIMIT = 1 << 50


class ExpandableSegments:
    """The expandable segments of one device. Sizes are bytes; `numbers` counts blocks as they are made."""

    def __init__(
        self, driver: Driver, numbers: Iterator[int], *, large_page: int, device_bytes: int | None
    ) -> None:
        self._driver = driver
        self._numbers = numbers
        self._large_page = large_page
        # An eighth more than the device has, so that memory can move towards the end.
        self._address_space = _NO_LIMIT if device_bytes is None else device_bytes + device_bytes // 8
        self._next_address = _FIRST_ADDRESS

    def grow(self, pool: Pool, size: int) -> Block | None:
        """Put memory behind the lowest addresses where `size` bytes find room; None: the driver has too little.

        What was mapped before the driver had no more stays mapped, as in torch.
        """
        block = _room_for(pool, size) or self._new_segment(pool)
        if not block.is_mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            behind = block.next
            if behind is None or not self._map(behind, min(size - block.size, behind.size)):
                return None
            block = behind
        pool.remove(block)
        return block

    def unmap(self, block: Block) -> None:
        """Give the whole pages inside the free `block` back to the driver."""
        pool, page = block.pool, self._page(block.pool)
        start = round_up(block.address, page)
        end = (block.address + block.size) // page * page
        if start >= end:
            return
        pool.remove(block)
        if start > block.address:
            before = block
            block = cut(before, start - before.address, before.number)
            before.number = next(self._numbers)
            pool.add(before)
        if end < block.address + block.size:
            pool.add(cut(block, end - block.address, next(self._numbers)))
        block.is_mapped = False
        merge(block, block.previous)
        merge(block, block.next)
        self._driver.take_back(end - start)
        # A segment without any memory goes as a whole.
        if block.is_split:
            pool.add(block)

    def _page(self, pool: Pool) -> int:
        return SMALL_SEGMENT_BYTES if pool.is_small else self._large_page

    def _new_segment(self, pool: Pool) -> Block:
        page = self._page(pool)
        start, space = round_up(self._next_address, page), round_up(self._address_space, page)
        block = Block(start, space, pool, next(self._numbers), is_expandable=True, is_mapped=False)
        self._next_address = start + space
        pool.add(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Put memory behind the first `size` bytes of `block`, in whole pages; False: the driver has too little."""
        mapped = round_up(size, self._page(block.pool))
        if not self._driver.lend(mapped):
            return False
        pool = block.pool
        pool.remove(block)
        if mapped < block.size:
            pool.add(cut(block, mapped, next(self._numbers)))
        block.is_mapped = True
        merge(block, block.previous)
        merge(block, block.next)
        pool.add(block)
        return True


def size_when_grown(block: Block) -> int:
    """Bytes that a free block can have without another segment."""
    behind = block.next
    return block.size + (behind.size if behind is not None and not behind.is_mapped else 0)


def _room_for(pool: Pool, size: int) -> Block | None:
    """The block at the lowest address from which free blocks and address space make `size` bytes."""
    for _, unmapped in pool.unmapped:
        first = unmapped
        if first.previous is not None and not first.previous.is_allocated:
            first = first.previous
        room = first.size
        block = first.next
        while room < size and block is not None and not block.is_allocated:
            room += block.size
            block = block.next
        if room >= size:
            return first
    return None
