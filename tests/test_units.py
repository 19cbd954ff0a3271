"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.units import fold_ints, format_bytes, format_seconds


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (64 << 20, "64 MiB"),
        ((1 << 20) - 16, "1 MiB"),
        (1536 << 20, "1.5 GiB"),
        (1 << 50, "1024 TiB"),
    ],
)
def test_bytes_use_the_largest_binary_unit(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.035, "35 ms"), (1.5, "1.5 s"), (60, "60 s"), (720, "12 min"), (11520, "3.2 h")]
)
def test_seconds_use_the_unit_a_person_would_say(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([1, 0, 2, 8], "0-2,8"), ([5, 5, 7], "5,7")]
)
def test_numbers_fold_to_ranges(numbers: list[int], text: str) -> None:
    assert fold_ints(numbers) == text


@given(st.sets(st.integers(min_value=0, max_value=300)))
def test_folded_numbers_unfold_to_the_same_set(numbers: set[int]) -> None:
    unfolded: set[int] = set()
    for part in filter(None, fold_ints(tuple(numbers)).split(",")):
        first, _, last = part.partition("-")
        unfolded |= set(range(int(first), int(last or first) + 1))
    assert unfolded == numbers
