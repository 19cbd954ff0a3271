"""Which integers each rank puts in, and what must come out: exact in the element type, known at every index.

The rank at position r of its group contributes `table[(i + phase(r, block)) % P]` at index i of a block. Phases of
neighbours differ by one, so that the contributions of all n ranks at one index are n neighbours of the table, and
a reduction over ranks is one over a window of the table. P is a prime, at least the number of ranks: blocks of no
two ranks look alike.

Values are bounded so that every partial sum, in whatever order it is taken, stays within the integers that the
type holds exactly. Pure: Python's own integers, without torch.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.dtypes import DType, Kind

# Shortest period. A prime, longer than values repeat in small types. Our own choice.
MIN_PERIOD = 251

# Blocks of one rank begin so far apart in the table; no multiple of a period. Our own choice.
BLOCK_STRIDE = 101

# Larger values tell no more. Our own choice.
MAX_VALUE = 1000

# premul_sum multiplies every contribution by this before it adds: exact in every type.
PREMUL_FACTOR = 2

# Differences in ulp that nccl-tests allows a sum of n floats: 1 + coefficient · n^power, from its regressions
# (`calcSumFloatTolerance` in NVIDIA/nccl-tests). NCCL averages floats by scaling each contribution by a rounded
# 1/n before it adds. The first is for float32 and float64, the second for the shorter types.
_ULPS_LONG, _ULPS_SHORT = (1.25, 0.51), (0.75, 0.91)
_LONG_MANTISSA_BITS = 23

# Beyond this the tolerance would hide a missing rank; averages over many ranks in 8 bits reach it. Our own bound.
MAX_TOLERANCE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What goes in and what must come out, by index modulo the period."""

    table: tuple[int, ...]
    expected: tuple[int | float, ...]
    tolerance: float = 0.0
    """Relative; 0: exact."""


def phase(position: int, block: int) -> int:
    """Where in the table the block for `block` of the rank at `position` begins."""
    return position + block * BLOCK_STRIDE


@functools.lru_cache(maxsize=32)
def moved(dtype: DType, num_ranks: int) -> Pattern:
    """For collectives that reduce nothing: what comes out is what one rank put in."""
    table = _values(dtype, num_ranks)
    return Pattern(table=table, expected=table)


@functools.lru_cache(maxsize=32)
def reduced(op: str, dtype: DType, num_ranks: int) -> Pattern:
    """For a reduction over all ranks; `expected[k]` belongs to a block whose first rank has phase k."""
    limit = dtype.exact_limit
    match op:
        case "sum":
            table = shares(limit, num_ranks)
            return Pattern(table=table, expected=window_sums(table, num_ranks))
        case "premul_sum":
            table = shares(limit // PREMUL_FACTOR, num_ranks)
            sums = window_sums(table, num_ranks)
            return Pattern(table=table, expected=tuple(PREMUL_FACTOR * each for each in sums))
        case "avg":
            return _average(dtype, num_ranks)
        case "product" if dtype.kind is Kind.BOOL:
            return reduced("min", dtype, num_ranks)
        case "product":
            exponents = shares(limit.bit_length() - 1, num_ranks)
            sums = window_sums(exponents, num_ranks)
            return Pattern(table=_powers_of_two(exponents), expected=_powers_of_two(sums))
        case "min" | "max":
            table = _values(dtype, num_ranks)
            better: Callable[[int, int], bool] = (
                (lambda a, b: a <= b) if op == "min" else (lambda a, b: a >= b)
            )
            return Pattern(table=table, expected=tuple(_window_best(table, num_ranks, better)))
        case "band" | "bor" | "bxor":
            table = _values(dtype, num_ranks)
            return Pattern(table=table, expected=_window_bits(op, table, num_ranks))
        case _:
            raise ValueError(f"no reduction is called {op}")


def shares(total: int, num_ranks: int) -> tuple[int, ...]:
    """A table in which any `num_ranks` neighbours add up to `total` at most.

    While every rank can have something at each index, it has: a call that does nothing is seen in any single
    element. Beyond that a few ranks contribute at one index, and each rank contributes at some.
    """
    share = total // num_ranks
    if share > 0:
        period = _period(num_ranks)
        return tuple(1 + draw % min(share, MAX_VALUE) for draw in _draws(period))
    # Ones at least `gap` apart: a window of num_ranks meets ceil(num_ranks / gap) ≤ total of them.
    gap = num_ranks if total < 1 else -(-num_ranks // total)
    places = list(_spaced(gap, _period(num_ranks)))
    period = next_prime(places[-1] + gap)
    ones = set(places) if total > 0 else set()
    return tuple(int(index in ones) for index in range(period))


def window_sums(table: Sequence[int], width: int) -> tuple[int, ...]:
    """For every index the sum of the `width` values from there on, round the end; `width` ≤ the table's length."""
    upto = (0, *itertools.accumulate((*table, *table[:width])))
    return tuple(upto[index + width] - upto[index] for index in range(len(table)))


def next_prime(number: int) -> int:
    """The smallest prime that is at least `number`."""
    candidate = max(2, number)
    while any(candidate % divisor == 0 for divisor in range(2, math.isqrt(candidate) + 1)):
        candidate += 1
    return candidate


def poison(expected: Sequence[int | float]) -> tuple[int, ...]:
    """Values that are wrong at every index: what an output holds before the collective writes it."""
    return tuple(int(value == 0) for value in expected)


def _average(dtype: DType, num_ranks: int) -> Pattern:
    table = shares(dtype.exact_limit, num_ranks)
    sums = window_sums(table, num_ranks)
    if dtype.mantissa_bits is None:
        # Integers are added and then divided, rounding down.
        return Pattern(table=table, expected=tuple(each // num_ranks for each in sums))
    coefficient, power = _ULPS_LONG if dtype.mantissa_bits >= _LONG_MANTISSA_BITS else _ULPS_SHORT
    ulps = 1 + coefficient * num_ranks**power
    tolerance = min(MAX_TOLERANCE, ulps * 2.0**-dtype.mantissa_bits)
    return Pattern(table=table, expected=tuple(each / num_ranks for each in sums), tolerance=tolerance)


def _values(dtype: DType, num_ranks: int) -> tuple[int, ...]:
    """Anything that the type holds; never 0, but for bool, which has nothing else to vary."""
    period = _period(num_ranks)
    if dtype.kind is Kind.BOOL:
        return tuple(draw % 2 for draw in _draws(period))
    return tuple(1 + draw % min(dtype.exact_limit, MAX_VALUE) for draw in _draws(period))


def _period(num_ranks: int) -> int:
    return next_prime(max(MIN_PERIOD, num_ranks))


def _draws(count: int) -> Iterator[int]:
    """The same numbers on every rank: the linear congruential generator of ANSI C's example, its upper bits."""
    state = 1
    for _ in range(count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        yield state >> 12


def _spaced(gap: int, at_least: int) -> Iterator[int]:
    """Ascending places, `gap` to two gaps apart, until one lies at or beyond `at_least`."""
    place = 0
    for draw in _draws(at_least + 1):
        yield place
        if place >= at_least:
            return
        place += gap + draw % (gap + 1)


def _powers_of_two(exponents: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 << each for each in exponents)


def _window_best(table: Sequence[int], width: int, better: Callable[[int, int], bool]) -> Iterator[int]:
    """The smallest or largest of each window, in one pass: the queue holds those that may still win."""
    length = len(table)
    queue: deque[int] = deque()
    for index in range(length + width - 1):
        value = table[index % length]
        while queue and better(value, table[queue[-1] % length]):
            queue.pop()
        queue.append(index)
        if queue[0] <= index - width:
            queue.popleft()
        if index >= width - 1:
            yield table[queue[0] % length]


def _window_bits(op: str, table: Sequence[int], width: int) -> tuple[int, ...]:
    """Bit by bit: a window's and is set where all have the bit, its or where any has, its xor where an odd number has."""
    results = [0] * len(table)
    for bit in range(max(table).bit_length()):
        counts = window_sums([value >> bit & 1 for value in table], width)
        for index, count in enumerate(counts):
            is_set = count == width if op == "band" else count > 0 if op == "bor" else count % 2 == 1
            results[index] |= is_set << bit
    return tuple(results)
