"""Node lists of the schedulers, in the forms that they print."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.ranks.nodelist import (
    MAX_NODES,
    expand_node_list,
    hosts_of_lsf,
    hosts_of_node_file,
    same_host,
    short_name,
)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("login", ("login",)),
        ("a,b", ("a", "b")),
        ("node[001-003,7],gpu1", ("node001", "node002", "node003", "node7", "gpu1")),
        ("n[08-10]", ("n08", "n09", "n10")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("r[1-2]x[01-02]-ib", ("r1x01-ib", "r1x02-ib", "r2x01-ib", "r2x02-ib")),
        ("a[1],a[1-2]", ("a1", "a2")),
        ("cn-0012.cluster.local,cn_3", ("cn-0012.cluster.local", "cn_3")),
        ("  a[1-2]\n", ("a1", "a2")),
    ],
)
def test_slurm_lists_expand_like_scontrol(text: str, hosts: tuple[str, ...]) -> None:
    assert expand_node_list(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        "a[1-2",
        "a]1[",
        "a[[1]]",
        "a[]",
        "a[x-y]",
        "a[3-1]",
        "a[1-2-3]",
        "a b",
        "a;rm -rf",
        "$(reboot)",
        "a[1-2]/b",
        "[1-4]" * 11,
    ],
)
def test_malformed_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand_node_list(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[1-65537]",
        "n[1-999999999]",
        "a[1-300]b[1-300]",
        "a[1-9999]b[1-9999]c[1-9999]",
        "a[" + "1," * 70_000 + "1]",
    ],
)
def test_huge_lists_are_refused_before_they_are_built(text: str) -> None:
    with pytest.raises(ValueError, match="more than 65536"):
        expand_node_list(text)


def test_the_largest_list_is_accepted() -> None:
    assert len(expand_node_list(f"n[1-{MAX_NODES}]")) == MAX_NODES


# One entry as Slurm would fold it: literal parts and brackets in turn, with the names that it stands for.
_LITERAL = st.text("abcdefgh-", min_size=1, max_size=6).map(lambda text: "h" + text)


@st.composite
def _bracket(draw: st.DrawFn) -> tuple[str, list[str]]:
    width = draw(st.integers(1, 4))
    parts, numbers = [], []
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, 10**width - 1))
        last = draw(st.integers(first, min(first + 5, 10**width - 1)))
        parts.append(str(first).zfill(width) if first == last else f"{first:0{width}}-{last:0{width}}")
        numbers += [str(number).zfill(width) for number in range(first, last + 1)]
    return f"[{','.join(parts)}]", numbers


@st.composite
def _entry(draw: st.DrawFn) -> tuple[str, list[str]]:
    text, choices = "", []
    for _ in range(draw(st.integers(1, 2))):
        literal = draw(_LITERAL)
        bracket, numbers = draw(_bracket())
        text += literal + bracket
        choices += [[literal], numbers]
    return text, ["".join(parts) for parts in itertools.product(*choices)]


@given(st.lists(_entry(), min_size=1, max_size=4))
def test_folded_names_come_back_in_order(entries: list[tuple[str, list[str]]]) -> None:
    text = ",".join(folded for folded, _ in entries)
    names = [name for _, expanded in entries for name in expanded]
    assert expand_node_list(text) == tuple(dict.fromkeys(names))


@given(st.text(max_size=60))
def test_no_text_does_anything_but_expand_or_raise_value_error(text: str) -> None:
    try:
        hosts = expand_node_list(text)
    except ValueError:
        return
    assert len(hosts) == len(set(hosts))


def test_lsf_and_pbs_name_each_host_once() -> None:
    assert hosts_of_lsf("a a b b") == ("a", "b")
    assert hosts_of_lsf("ignored", "batch1 1 c01 42 c02 42") == ("batch1", "c01", "c02")
    assert hosts_of_lsf(None, None) == ()
    assert hosts_of_node_file("n1\nn1\n\nn2.cluster np=2\n") == ("n1", "n2.cluster")


@pytest.mark.parametrize("text", ["a", "a b c d", "a 1 b"])
def test_lsf_counts_must_be_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="slot count"):
        hosts_of_lsf(None, text)


def test_hosts_compare_by_short_name() -> None:
    assert same_host("GPU-1.cluster.local", "gpu-1")
    assert not same_host("gpu-1", "gpu-10")
    assert short_name("10.0.0.12") == "10.0.0.12"
