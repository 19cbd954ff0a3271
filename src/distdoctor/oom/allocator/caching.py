"""Which segments torch's CUDA caching allocator takes from the driver, request by request.

A model of `DeviceCachingAllocator` in c10/cuda/CUDACachingAllocator.cpp, torch 2.6 to 2.13, for ordinary pools: best
fit within a pool for each stream, blocks cut and joined, free segments given back when the driver has no more. Where the
versions differ the newest is followed. Event by event it gives the same numbers as the allocators of torch 2.6.0, 2.10.0,
2.11.0 and 2.12.0 (docs/measurements/oom-allocator.md).

Not modelled: private pools (CUDA graphs, `torch.cuda.MemPool`), and blocks that wait for another stream
(`record_stream`): here a block is free as soon as it is freed. Addresses of new segments ascend; on a GPU the driver
chooses them, which decides only between free blocks of equal size.
"""

from __future__ import annotations

from itertools import count

from distdoctor.oom.allocator.blocks import Block, Pool, cut, merge
from distdoctor.oom.allocator.driver import Driver
from distdoctor.oom.allocator.expandable import ExpandableSegments, size_when_grown
from distdoctor.oom.allocator.options import AllocatorOptions
from distdoctor.oom.allocator.sizes import MIN_BLOCK_BYTES, SMALL_BYTES, rounded_request, segment_for

# Where segments start. Any address will do.
_FIRST_ADDRESS = 1 << 44


class CachingAllocator:
    """The allocator of one device. Sizes are bytes.

    `capacity_bytes` is what the driver can give to torch; None: without end. `allowed_bytes` is torch's own cap
    (`set_per_process_memory_fraction`); None: no cap. `device_bytes` is the whole device, which only bounds the address
    space of expandable segments; None: as much as `capacity_bytes`.
    """

    def __init__(
        self,
        options: AllocatorOptions,
        *,
        capacity_bytes: int | None = None,
        allowed_bytes: int | None = None,
        device_bytes: int | None = None,
    ) -> None:
        self.allocated = 0
        """Bytes of blocks in use, as `torch.cuda.memory_allocated()` counts."""
        self.requested = 0
        """Bytes that the program asked for, of blocks in use."""
        self.inactive_split = 0
        """Free bytes in segments that are partly in use. As torch does, expandable segments are not counted."""
        self.num_retries = 0
        """How often everything free was given back to the driver to serve a request (`num_alloc_retries`)."""
        self._options = options
        self._numbers = count()
        self._driver = Driver(capacity=capacity_bytes)
        self._allowed = allowed_bytes
        self._expandable = ExpandableSegments(
            self._driver,
            self._numbers,
            large_page=options.large_segment_bytes,
            device_bytes=device_bytes if device_bytes is not None else capacity_bytes,
        )
        self._next_address = _FIRST_ADDRESS
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._collects = allowed_bytes is not None and options.garbage_collection_threshold is not None
        self._large_searches = 0

    @property
    def reserved(self) -> int:
        """Bytes taken from the driver, as `torch.cuda.memory_reserved()` counts."""
        return self._driver.reserved

    def allocate(self, requested: int, stream: int = 0) -> Block | None:
        """A block for `requested` bytes (at least 1) on `stream`; None: out of memory, and nothing is allocated."""
        size = rounded_request(requested, self._options.roundup_power2_divisions)
        is_small = size <= SMALL_BYTES
        pool = self._pools.get((stream, is_small))
        if pool is None:
            pool = self._pools[stream, is_small] = Pool(stream, is_small, self._options.is_oldest_first)
        block = self._take_free(pool, size) or self._take_new(pool, size)
        if block is None:
            return None
        was_split = block.is_split
        if self._is_worth_cutting(block, size):
            # The rest is the block that was there, the part in use is made new.
            rest = cut(block, size, block.number)
            block.number = next(self._numbers)
            self._add_free(rest)
            if not block.is_expandable:
                self.inactive_split += -size if was_split else rest.size
        elif was_split and not block.is_expandable:
            self.inactive_split -= block.size
        block.is_allocated = True
        block.requested = requested
        self.allocated += block.size
        self.requested += requested
        return block

    def free(self, block: Block) -> None:
        """Give `block` back to its pool, joined with free neighbours."""
        self.allocated -= block.size
        self.requested -= block.requested
        block.is_allocated = False
        taken = merge(block, block.previous) + merge(block, block.next)
        if not block.is_expandable:
            self.inactive_split += (block.size if block.is_split else 0) - taken
        self._add_free(block)

    def empty_cache(self) -> None:
        """Give free segments, and free pages of expandable ones, back to the driver (`torch.cuda.empty_cache()`)."""
        for pool in self._pools.values():
            for _, _, block in tuple(pool.free):
                if block.is_expandable:
                    self._expandable.unmap(block)
                elif not block.is_split:
                    self._release(block)

    def _take_free(self, pool: Pool, size: int) -> Block | None:
        """The free block that fits best, taken out of its pool."""
        if self._collects and not pool.is_small:
            self._large_searches += 1
        free = pool.free
        at = pool.first_of_at_least(size)
        if at == len(free):
            return None
        if self._options.expandable_segments:
            # A block that can grow counts with what it can grow to; so a larger one that cannot may be preferred.
            while at + 1 < len(free) and size_when_grown(free[at + 1][2]) < size_when_grown(free[at][2]):
                at += 1
        block = free[at][2]
        limit = self._options.max_split_size_bytes
        if limit is not None:
            if size < limit <= block.size:
                return None
            if size >= limit and block.size >= size + self._options.max_non_split_rounding_bytes:
                return None
        del free[at]
        return block

    def _take_new(self, pool: Pool, size: int) -> Block | None:
        """Memory from the driver; when it has none, free segments are given back first."""
        if self._collects:
            self._collect_garbage()
        block = self._from_driver(pool, size)
        if block is None and self._release_oversize(pool, size):
            block = self._from_driver(pool, size)
        if block is None:
            self.empty_cache()
            self.num_retries += 1
            block = self._from_driver(pool, size)
        return block

    def _from_driver(self, pool: Pool, size: int) -> Block | None:
        segment = segment_for(size, self._options.large_segment_bytes)
        if self._allowed is not None and self.reserved + segment > self._allowed:
            return None
        if self._options.expandable_segments:
            return self._expandable.grow(pool, size)
        if not self._driver.lend(segment):
            return None
        block = Block(self._next_address, segment, pool, next(self._numbers))
        self._next_address += segment
        return block

    def _is_worth_cutting(self, block: Block, size: int) -> bool:
        """`should_split`: whether the rest of `block` becomes a block of its own."""
        rest = block.size - size
        if block.pool.is_small or self._options.expandable_segments:
            return rest >= MIN_BLOCK_BYTES
        limit = self._options.max_split_size_bytes
        return rest > SMALL_BYTES and (limit is None or size < limit)

    def _add_free(self, block: Block) -> None:
        block.freed_at = self._large_searches
        block.pool.add(block)

    def _release(self, block: Block) -> None:
        """cudaFree of a segment that is one free block."""
        block.pool.remove(block)
        self._driver.take_back(block.size)

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """With max_split_size: give back just enough of the blocks that may not be cut; whether that was enough."""
        limit = self._options.max_split_size_bytes
        if limit is None:
            return False
        wanted = max(size, limit)
        at = pool.first_of_at_least(wanted)
        if at < len(pool.free) and not pool.free[at][2].is_expandable:
            self._release(pool.free[at][2])
            return True
        released = 0
        for _, _, block in reversed(pool.free[:at]):
            if released >= wanted or block.size < limit:
                break
            if not block.is_expandable:
                released += block.size
                self._release(block)
        return released >= wanted

    def _collect_garbage(self) -> None:
        """`garbage_collect_cached_blocks`: above the threshold give back free segments that were idle for longest."""
        if self._allowed is None or self._options.garbage_collection_threshold is None:
            return
        threshold = int(self._options.garbage_collection_threshold * self._allowed)
        target = self.reserved - threshold
        idle = [
            block
            for pool in self._pools.values()
            if not pool.is_small
            for _, _, block in pool.free
            if not block.is_split
        ]
        while target > 0 and idle:
            # Those of more than average age, all of them, even past the target.
            mean_age = sum(self._age(block) for block in idle) / len(idle)
            for block in idle:
                if self._age(block) >= mean_age:
                    target -= block.size
                    self._release(block)
            idle = [block for block in idle if self._age(block) < mean_age]

    def _age(self, block: Block) -> int:
        return self._large_searches - block.freed_at
