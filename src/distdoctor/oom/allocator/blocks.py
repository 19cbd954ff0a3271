"""Blocks of memory and the pools that hold the free ones, in the order in which torch looks through them."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """A piece of a segment. A segment is a chain of blocks in the order of their addresses."""

    address: int
    size: int
    pool: Pool
    number: int
    """How many blocks were made before: decides between free blocks of equal size where the oldest goes first."""
    requested: int = 0
    is_allocated: bool = False
    is_expandable: bool = False
    is_mapped: bool = True
    """False: address space of an expandable segment that has no memory behind it."""
    previous: Block | None = None
    next: Block | None = None
    freed_at: int = 0
    """Of a free block: how often its pool had been searched when it became free."""

    @property
    def is_split(self) -> bool:
        """The segment has other blocks besides this one."""
        return self.previous is not None or self.next is not None


@dataclass(slots=True, eq=False, repr=False)
class Pool:
    """What one stream may use, for small or for large requests. Free blocks are ordered by size; between equal ones
    the oldest comes first, or else the one at the lowest address.
    """

    stream: int
    is_small: bool
    is_oldest_first: bool
    free: list[tuple[int, int, Block]] = field(default_factory=list)
    unmapped: list[tuple[int, Block]] = field(default_factory=list)
    """Address space without memory, ordered by address."""

    def add(self, block: Block) -> None:
        """`block` is free from now on, or is address space without memory."""
        if block.is_mapped:
            insort(self.free, (*self._key(block), block))
        else:
            insort(self.unmapped, (block.address, block))

    def remove(self, block: Block) -> None:
        """`block` is no longer free. Its size and address must be those with which it was added."""
        if block.is_mapped:
            del self.free[bisect_left(self.free, self._key(block))]
        else:
            del self.unmapped[bisect_left(self.unmapped, (block.address,))]

    def _key(self, block: Block) -> tuple[int, int]:
        return block.size, block.number if self.is_oldest_first else block.address

    def first_of_at_least(self, size: int) -> int:
        """Place, in `free`, of the smallest block that has `size` bytes; the length of `free` where none has."""
        return bisect_left(self.free, (size,))


def cut(block: Block, size: int, number: int) -> Block:
    """Cut the rest behind the first `size` bytes off `block`, as a block of its own that no list holds yet."""
    rest = Block(
        block.address + size,
        block.size - size,
        block.pool,
        number,
        is_expandable=block.is_expandable,
        is_mapped=block.is_mapped,
        previous=block,
        next=block.next,
    )
    if block.next is not None:
        block.next.previous = rest
    block.next = rest
    block.size = size
    return rest


def merge(block: Block, neighbour: Block | None) -> int:
    """Take the free `neighbour` into `block`, which no list holds; bytes that were taken, 0 where that cannot be."""
    if neighbour is None or neighbour.is_allocated or neighbour.is_mapped is not block.is_mapped:
        return 0
    block.pool.remove(neighbour)
    if block.previous is neighbour:
        block.address = neighbour.address
        block.previous = neighbour.previous
        if block.previous is not None:
            block.previous.next = block
    else:
        block.next = neighbour.next
        if block.next is not None:
            block.next.previous = block
    block.size += neighbour.size
    return neighbour.size
