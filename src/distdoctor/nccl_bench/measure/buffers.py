"""Filling buffers with a pattern and finding every element that is not what it must be, in bounded extra memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from distdoctor.nccl_bench.dtypes import DType, Kind

# Elements that are filled or compared at a time: with their expected values, and in float64 for averages, less
# than memory.CHECK_BYTES. Our own choice.
CHUNK_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of a buffer that one table fills, or must have filled."""

    view: torch.Tensor
    """One-dimensional and contiguous."""
    start: int
    """Index of its first element in the whole buffer."""
    phase: int
    """Index in the table of its first element."""
    source: int | None = None
    """Global rank that it comes from; None where it is reduced over all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongElements:
    """How many elements are wrong on this rank, and the first of them in words."""

    count: int
    index: int
    example: str
    """ "element 17 is 9, must be 8 (rank 2)"."""


def fill(blocks: Sequence[Block], table: Sequence[int], dtype: DType) -> None:
    """Write the table's values, each block from its phase on."""
    for block, wheel in _turned(blocks, table, dtype):
        for _, piece, values in wheel.along(_plain(block.view, dtype), _steps(block.phase, dtype)):
            piece.copy_(values)


def find_wrong(
    blocks: Sequence[Block],
    expected: Sequence[int | float],
    dtype: DType,
    *,
    rank: int,
    tolerance: float = 0.0,
) -> WrongElements | None:
    """Compare every element with what the table says; None when all are right.

    `tolerance` is relative. NaN is wrong wherever it stands. Waits for the device once.
    """
    counts: list[torch.Tensor] = []
    for block, wheel in _turned(blocks, expected, dtype):
        count = torch.zeros((), dtype=torch.int64, device=block.view.device)
        for _, piece, values in wheel.along(_plain(block.view, dtype), _steps(block.phase, dtype)):
            count += torch.count_nonzero(_differs(piece, values, tolerance))
        counts.append(count)
    by_block = torch.stack(counts).tolist() if counts else []
    first = next((index for index, count in enumerate(by_block) if count), None)
    if first is None:
        return None
    found = _first_wrong(blocks[first], expected, dtype, tolerance)
    if found is None:
        # Memory that reads differently twice is broken all the same.
        found = blocks[first].start, f"{sum(by_block)} elements are wrong, and right when read again"
    index, example = found
    source = blocks[first].source
    whence = "" if source is None or source == rank else f", in the part from rank {source}"
    return WrongElements(count=sum(by_block), index=index, example=f"{example} (rank {rank}{whence})")


def _first_wrong(
    block: Block, expected: Sequence[int | float], dtype: DType, tolerance: float
) -> tuple[int, str] | None:
    """Index in the whole buffer, and the element in words; None when all are right."""
    (_, wheel), *_ = _turned((block,), expected, dtype)
    for start, piece, values in wheel.along(_plain(block.view, dtype), _steps(block.phase, dtype)):
        wrong = _differs(piece, values, tolerance).nonzero()
        if wrong.numel():
            offset = int(wrong[0, 0])
            got, must = piece[offset].item(), values[offset].item()
            place, part = _element(start + offset, dtype)
            index = block.start + place
            return index, f"element {index}{part} is {got:.9g}, must be {must:.9g}"
    return None


class _Wheel:
    """A table that repeats without end, as a tensor of bounded length."""

    def __init__(self, table: Sequence[int | float], dtype: torch.dtype, device: torch.device, longest: int):
        self._period = len(table)
        self._step = max(1, min(longest, CHUNK_ELEMENTS))
        exact = torch.float64 if dtype.is_floating_point else torch.int64
        once = torch.tensor(table, dtype=exact).to(dtype).to(device)
        turns = -(-(self._step + self._period) // self._period)
        # Types of 8 bits cannot be repeated everywhere; their bytes can.
        raw = once.view(torch.uint8) if once.element_size() == 1 else once
        self._values = raw.repeat(turns).view(dtype)

    def along(self, view: torch.Tensor, phase: int) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """(index in the view, piece of the view, the values that belong there)."""
        for start in range(0, view.numel(), self._step):
            piece = view[start : start + self._step]
            offset = (phase + start) % self._period
            yield start, piece, self._values[offset : offset + piece.numel()]


def _turned(
    blocks: Sequence[Block], table: Sequence[int | float], dtype: DType
) -> Iterator[tuple[Block, _Wheel]]:
    """Every block with the wheel that they share."""
    if not blocks:
        return
    values = [value for value in table for _ in range(2)] if dtype.kind is Kind.COMPLEX else table
    plain = [_plain(block.view, dtype) for block in blocks]
    longest = max(view.numel() for view in plain)
    wheel = _Wheel(values, plain[0].dtype, plain[0].device, longest)
    for block in blocks:
        yield block, wheel


def _plain(view: torch.Tensor, dtype: DType) -> torch.Tensor:
    """The view in a type that can be compared: complex as pairs of float32, bool as its bytes."""
    if dtype.kind is Kind.COMPLEX:
        return torch.view_as_real(view).view(-1)
    return view.view(torch.uint8) if dtype.kind is Kind.BOOL else view


def _steps(phase: int, dtype: DType) -> int:
    return 2 * phase if dtype.kind is Kind.COMPLEX else phase


def _element(index: int, dtype: DType) -> tuple[int, str]:
    if dtype.kind is not Kind.COMPLEX:
        return index, ""
    return index // 2, (" (real part)", " (imaginary part)")[index % 2]


def _differs(piece: torch.Tensor, values: torch.Tensor, tolerance: float) -> torch.Tensor:
    if tolerance > 0:
        exact = values.to(torch.float64)
        return ~((piece.to(torch.float64) - exact).abs() <= tolerance * exact.abs())
    if piece.element_size() == 1 and piece.is_floating_point():
        # Types of 8 bits have no comparison of their own.
        return piece.to(torch.float32) != values.to(torch.float32)
    return piece != values
