"""Whatever single element of a buffer is wrong, it is found: its index, what it is and what it must be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from distdoctor.nccl_bench.dtypes import DTYPES, DType, Kind, dtype_named  # noqa: E402
from distdoctor.nccl_bench.measure import buffers  # noqa: E402
from distdoctor.nccl_bench.measure.buffers import Block, fill, find_wrong  # noqa: E402
from distdoctor.nccl_bench.measure.patterns import moved, reduced  # noqa: E402

FLOAT32 = dtype_named("float32")


def blocks_of(buffer: torch.Tensor, sizes: list[int], sources: bool = True) -> list[Block]:
    found, start = [], 0
    for position, size in enumerate(sizes):
        view = buffer[start : start + size]
        found.append(Block(view=view, start=start, phase=position, source=position if sources else None))
        start += size
    return found


def empty(dtype: DType, count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=getattr(torch, dtype.name))


def flip(buffer: torch.Tensor, index: int) -> None:
    """Change the lowest bit of one element's first byte: the smallest difference that there is."""
    buffer.view(torch.uint8)[index * buffer.element_size()] ^= 1


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(1, 700), min_size=1, max_size=6),
    st.data(),
)
def test_any_single_changed_element_is_found(dtype: DType, sizes: list[int], data: st.DataObject) -> None:
    pattern = moved(dtype, len(sizes))
    buffer = empty(dtype, sum(sizes))
    blocks = blocks_of(buffer, sizes)
    fill(blocks, pattern.table, dtype)
    assert find_wrong(blocks, pattern.expected, dtype, rank=0) is None
    index = data.draw(st.integers(0, sum(sizes) - 1))
    flip(buffer, index)
    wrong = find_wrong(blocks, pattern.expected, dtype, rank=0)
    assert wrong is not None
    assert (wrong.count, wrong.index) == (1, index)
    assert wrong.example.startswith(f"element {index} ")


def test_the_example_says_what_is_there_and_what_must_be() -> None:
    buffer = empty(FLOAT32, 300)
    blocks = blocks_of(buffer, [100, 200])
    table = moved(FLOAT32, 2).table
    fill(blocks, table, FLOAT32)
    buffer[117] = 9000
    wrong = find_wrong(blocks, table, FLOAT32, rank=5)
    assert wrong is not None
    must = table[(17 + 1) % len(table)]
    assert wrong.example == f"element 117 is 9000, must be {must} (rank 5, in the part from rank 1)"


def test_a_reduced_result_names_no_source() -> None:
    pattern = reduced("sum", FLOAT32, 4)
    buffer = empty(FLOAT32, 50)
    blocks = blocks_of(buffer, [50], sources=False)
    fill(blocks, [int(value) for value in pattern.expected], FLOAT32)
    buffer[17] += 1
    wrong = find_wrong(blocks, pattern.expected, FLOAT32, rank=2)
    assert wrong is not None
    must = int(pattern.expected[17])
    assert wrong.example == f"element 17 is {must + 1}, must be {must} (rank 2)"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("tolerance", [0.0, 0.25])
def test_what_is_no_number_is_wrong_even_within_a_tolerance(value: float, tolerance: float) -> None:
    table = moved(FLOAT32, 2).table
    buffer = empty(FLOAT32, 40)
    blocks = blocks_of(buffer, [40])
    fill(blocks, table, FLOAT32)
    buffer[39] = value
    wrong = find_wrong(blocks, table, FLOAT32, rank=0, tolerance=tolerance)
    assert wrong is not None
    assert (wrong.count, wrong.index) == (1, 39)


def test_a_tolerance_lets_pass_what_lies_within() -> None:
    pattern = reduced("avg", FLOAT32, 3)
    buffer = empty(FLOAT32, 400)
    blocks = blocks_of(buffer, [400], sources=False)
    buffer.copy_(torch.tensor([pattern.expected[at % len(pattern.expected)] for at in range(400)]))
    assert find_wrong(blocks, pattern.expected, FLOAT32, rank=0, tolerance=pattern.tolerance) is None
    buffer[7] *= 1 + 4 * pattern.tolerance
    wrong = find_wrong(blocks, pattern.expected, FLOAT32, rank=0, tolerance=pattern.tolerance)
    assert wrong is not None
    assert wrong.index == 7


def test_both_parts_of_a_complex_number_are_looked_at() -> None:
    dtype = dtype_named("complex64")
    assert dtype.kind is Kind.COMPLEX
    table = moved(dtype, 2).table
    buffer = empty(dtype, 20)
    blocks = blocks_of(buffer, [20])
    fill(blocks, table, dtype)
    buffer[3] += 1j
    wrong = find_wrong(blocks, table, dtype, rank=0)
    assert wrong is not None
    assert wrong.example.startswith("element 3 (imaginary part) is ")


@pytest.mark.parametrize("name", ["float32", "int8", "bool"])
def test_buffers_longer_than_a_chunk_are_compared_to_their_last_element(name: str) -> None:
    dtype = dtype_named(name)
    count = 2 * buffers.CHUNK_ELEMENTS + 3
    buffer = empty(dtype, count)
    table = moved(dtype, 2).table
    blocks = blocks_of(buffer, [buffers.CHUNK_ELEMENTS + 1, buffers.CHUNK_ELEMENTS + 2])
    fill(blocks, table, dtype)
    assert find_wrong(blocks, table, dtype, rank=0) is None
    for index in (0, buffers.CHUNK_ELEMENTS, count - 1):
        flip(buffer, index)
    wrong = find_wrong(blocks, table, dtype, rank=0)
    assert wrong is not None
    assert (wrong.count, wrong.index) == (3, 0)


def test_no_elements_are_no_wrong_elements() -> None:
    assert find_wrong([], (1, 2), FLOAT32, rank=0) is None
    assert find_wrong(blocks_of(empty(FLOAT32, 0), [0]), (1, 2), FLOAT32, rank=0) is None
