"""Who is the odd one out, and what matters first."""

from __future__ import annotations

from distdoctor.report.differences import Relevance, find_differences
from distdoctor.report.model import Severity


def relevance(key: str) -> Relevance | None:
    weights = {"torch": 100, "driver": 60, "kernel": 20, "boring": 0}
    if key.startswith("var."):
        return Relevance(
            weight=80, severity=Severity.WARNING, consequence="", topic="variables", absence_counts=True
        )
    if key not in weights:
        return None
    return Relevance(weight=weights[key], severity=Severity.WARNING, consequence="", topic="versions")


def test_the_odd_one_of_five_is_named() -> None:
    values = {f"host-{name}": {"torch": "2.9.1"} for name in "abcde"}
    values["host-d"] = {"torch": "2.8.0"}
    (difference,) = find_differences(values, relevance)
    assert difference.has_majority
    assert difference.odd == ("host-d",)
    assert difference.majority == "2.9.1"


def test_two_holders_have_no_majority() -> None:
    (difference,) = find_differences({"a": {"torch": "1"}, "b": {"torch": "2"}}, relevance)
    assert not difference.has_majority
    assert set(difference.odd) == {"a", "b"}


def test_half_and_half_has_no_majority() -> None:
    values = {name: {"torch": "1" if name in "ab" else "2"} for name in "abcd"}
    (difference,) = find_differences(values, relevance)
    assert not difference.has_majority


def test_the_most_relevant_comes_first_and_the_irrelevant_not_at_all() -> None:
    a = {"kernel": "5", "torch": "1", "driver": "570", "boring": 1, "unknown": 1}
    b = {"kernel": "6", "torch": "2", "driver": "580", "boring": 2, "unknown": 2}
    assert [each.key for each in find_differences({"a": a, "b": b}, relevance)] == [
        "torch",
        "driver",
        "kernel",
    ]


def test_a_fact_that_was_not_read_is_no_difference() -> None:
    assert find_differences({"a": {"torch": "1"}, "b": {}, "c": {"torch": "1"}}, relevance) == ()


def test_a_variable_that_is_not_set_is_a_difference() -> None:
    values = {"a": {}, "b": {}, "c": {"var.NCCL_ALGO": "Tree"}}
    (difference,) = find_differences(values, relevance)
    assert difference.odd == ("c",)
    assert difference.majority is None


def test_true_and_one_are_different_values() -> None:
    assert find_differences({"a": {"torch": True}, "b": {"torch": 1}}, relevance)


def test_a_value_that_is_right_needs_no_majority() -> None:
    def right(_: str) -> Relevance:
        return Relevance(weight=1, severity=Severity.CRITICAL, consequence="", topic="versions", right=True)

    values = {"a": {"found": True}, "b": {"found": False}, "c": {"found": False}}
    (difference,) = find_differences(values, right)
    assert difference.odd == ("b", "c")
