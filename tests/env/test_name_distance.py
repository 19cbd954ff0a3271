"""Distance of names: the properties of a metric on the slips that people make."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distdoctor.env.catalog.variables import nccl_variables, torch_variables
from distdoctor.env.distance import edit_distance
from distdoctor.env.near_names import is_known, near_name

words = st.text(alphabet="ABC_", max_size=8)


@given(words, words)
def test_it_is_symmetric_and_zero_for_equal_names_only(one: str, two: str) -> None:
    distance = edit_distance(one, two, 20)
    assert distance == edit_distance(two, one, 20)
    assert (distance == 0) == (one == two)
    assert abs(len(one) - len(two)) <= distance <= max(len(one), len(two))


@given(words, words, st.integers(0, 3))
def test_a_limit_only_cuts_what_lies_beyond_it(one: str, two: str, limit: int) -> None:
    exact = edit_distance(one, two, 20)
    assert edit_distance(one, two, limit) == min(exact, limit + 1)


@given(st.sampled_from(sorted(nccl_variables())), st.data())
def test_one_slip_is_one_step(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 2))
    swapped = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    assert edit_distance(name, swapped, 3) <= 1
    assert edit_distance(name, name[:at] + name[at + 1 :], 3) == 1


@given(st.sampled_from(sorted([*nccl_variables(), *torch_variables()])))
def test_a_known_name_is_never_called_a_slip(name: str) -> None:
    assert is_known(name)
    assert near_name(name) is None


@given(st.text(max_size=40))
def test_any_text_is_judged_without_error(name: str) -> None:
    near = near_name(name)
    assert near is None or is_known(near.name)
