"""NCCL's list syntax: a table from its source and guide, and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.env.predict.name_filter import parse_name_filter


# Expected by parseStringList and matchIfList of NVIDIA/nccl src/misc/utils.cc.
@pytest.mark.parametrize(
    ("text", "name", "port", "admitted"),
    [
        ("eth", "eth0", None, True),
        ("eth0", "eth0", None, True),
        ("eth1", "eth10", None, True),
        ("=eth1", "eth10", None, False),
        ("=eth1", "eth1", None, True),
        ("=eth", "eth0", None, False),
        ("^docker", "docker0", None, False),
        ("^docker", "eth0", None, True),
        ("^docker,lo", "lo", None, False),
        ("^=eth1", "eth10", None, True),
        ("^=eth1", "eth1", None, False),
        ("eth0,eth1", "eth1", None, True),
        ("eth0, eth1", "eth1", None, False),
        ("=eth0,=eth1", "eth1", None, False),
        ("=^eth0", "eth1", None, False),
        ("^docker,^lo", "lo", None, True),
        ("eth0,,eth1", "eth1", None, True),
        ("mlx5_1", "mlx5_1", 2, True),
        ("mlx5_1", "mlx5_10", 1, True),
        ("=mlx5_1", "mlx5_10", 1, False),
        ("mlx5_0:1,mlx5_1:1", "mlx5_0", 1, True),
        ("mlx5_0:1,mlx5_1:1", "mlx5_0", 2, False),
        ("=mlx5_0:2", "mlx5_0", 2, True),
        ("^mlx5_3:1", "mlx5_3", 1, False),
        ("^mlx5_3:1", "mlx5_3", 2, True),
        ("mlx5_0:x", "mlx5_0", 1, False),
        ("=mlx5_0:1:0:2", "mlx5_0", 1, True),
        (":1", "mlx5_0", 1, True),
        ("", "anything", None, True),
        ("^", "anything", None, False),
        ("MLX5_0", "mlx5_0", 1, False),
    ],
)
def test_admission_follows_nccl(text: str, name: str, port: int | None, admitted: bool) -> None:
    assert parse_name_filter(text, max_entries=32).admits(name, port) is admitted


NAMES = st.text(alphabet="abcdefgmlx_0123456789", min_size=1, max_size=8)
PORTS = st.none() | st.integers(min_value=1, max_value=2)


@given(st.lists(NAMES, min_size=1, max_size=5), NAMES, PORTS)
def test_a_caret_admits_exactly_what_the_list_without_it_does_not(
    names: list[str], name: str, port: int | None
) -> None:
    text = ",".join(names)
    plain = parse_name_filter(text, max_entries=32)
    inverted = parse_name_filter("^" + text, max_entries=32)
    assert plain.admits(name, port) is not inverted.admits(name, port)


@given(st.lists(NAMES, min_size=1, max_size=5), NAMES)
def test_an_exact_list_admits_its_names_and_no_others(names: list[str], name: str) -> None:
    exact = parse_name_filter("=" + ",".join(names), max_entries=32)
    assert exact.admits(name) is (name in names)


@given(st.lists(NAMES, min_size=1, max_size=5), NAMES)
def test_whatever_an_exact_list_admits_the_prefix_list_admits_too(names: list[str], name: str) -> None:
    text = ",".join(names)
    if parse_name_filter("=" + text, max_entries=32).admits(name):
        assert parse_name_filter(text, max_entries=32).admits(name)


@given(st.lists(NAMES, min_size=1, max_size=5), NAMES, st.integers(1, 2))
def test_the_order_of_a_list_does_not_matter(names: list[str], name: str, port: int) -> None:
    forward = parse_name_filter(",".join(names), max_entries=32)
    backward = parse_name_filter(",".join(reversed(names)), max_entries=32)
    assert forward.admits(name, port) is backward.admits(name, port)


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_parses(text: str, name: str) -> None:
    assert parse_name_filter(text, max_entries=32).admits(name) in (True, False)


def test_names_beyond_the_limit_are_dropped() -> None:
    text = ",".join(f"mlx5_{number}" for number in range(40))
    assert len(parse_name_filter(text, max_entries=32).entries) == 32
