"""Sizes, sweeps, meshes and collectives as people write them; slips are told in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.errors import UsageError
from distdoctor.nccl_bench.mesh import check_mesh, mesh_groups, parse_mesh
from distdoctor.nccl_bench.options import BenchOptions, Placement, parse_collectives
from distdoctor.nccl_bench.sizes import MAX_SIZES, parse_sizes, size_sweep
from distdoctor.units import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("1024", 1024),
        ("64K", 65536),
        ("64k", 65536),
        ("64KiB", 65536),
        ("64 KB", 65536),
        ("1.5M", 1_572_864),
        ("2G", 1 << 31),
        ("8B", 8),
    ],
)
def test_sizes_are_in_powers_of_1024_as_in_nccl_tests(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1Q", "1.5", "1e9", "nan", "9" * 40, "2048T", "1 2"])
def test_what_is_no_size_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(text)


def test_a_list_of_sizes_is_sorted_and_each_is_there_once() -> None:
    assert parse_sizes("1M, 1K,1024") == (1024, 1 << 20)


def test_a_sweep_by_factor_ends_at_or_below_the_largest() -> None:
    assert size_sweep(1024, 70_000) == (1024, 4096, 16384, 65536)
    assert size_sweep(8, 64, factor=2) == (8, 16, 32, 64)


def test_a_sweep_by_step_adds_bytes() -> None:
    assert size_sweep(1024, 4096, step=1024) == (1024, 2048, 3072, 4096)


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 30), st.floats(1.01, 16, allow_nan=False))
def test_every_sweep_ascends_and_stays_in_its_bounds(smallest: int, largest: int, factor: float) -> None:
    try:
        sizes = size_sweep(smallest, largest, factor=factor)
    except UsageError:
        return
    assert sizes[0] == smallest
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] <= largest and len(sizes) <= MAX_SIZES


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"smallest": 10, "largest": 1}, "larger than the largest"),
        ({"smallest": 1, "largest": 10, "factor": 1.0}, "does not grow"),
        ({"smallest": 1, "largest": 10, "factor": float("nan")}, "does not grow"),
        ({"smallest": 1, "largest": 10, "factor": float("inf")}, "does not grow"),
        ({"smallest": 1, "largest": 10, "factor": 1.5}, "does not advance"),
        ({"smallest": 1, "largest": 1 << 40, "step": 1}, "more than"),
        ({"smallest": 1, "largest": 10, "factor": 2.0, "step": 1}, "exclude"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused(arguments: dict[str, float], word: str) -> None:
    smallest, largest = int(arguments.pop("smallest")), int(arguments.pop("largest"))
    with pytest.raises(UsageError, match=word):
        size_sweep(smallest, largest, **arguments)  # type: ignore[arg-type]


def test_mesh_groups_are_row_major_as_in_torch() -> None:
    mesh = parse_mesh("dp=2,tp=3")
    assert [group.ranks for group in mesh_groups(mesh, 0)] == [(0, 3), (1, 4), (2, 5)]
    assert [group.ranks for group in mesh_groups(mesh, 1)] == [(0, 1, 2), (3, 4, 5)]
    assert mesh_groups(mesh, 1)[1].label == "mesh tp #1"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_along_every_dimension_each_rank_is_in_one_group(sizes: list[int]) -> None:
    mesh = parse_mesh(",".join(f"d{index}={size}" for index, size in enumerate(sizes)))
    for dimension, size in enumerate(sizes):
        groups = mesh_groups(mesh, dimension)
        assert sorted(rank for group in groups for rank in group.ranks) == list(range(mesh.num_ranks))
        assert {len(group.ranks) for group in groups} == {size}


@pytest.mark.parametrize("text", ["", "dp", "dp=0", "dp=2,dp=2", "dp=x", "2=2", "dp=2,,tp=2", "dp=-1"])
def test_what_is_no_mesh_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_mesh(text)


def test_a_mesh_that_does_not_multiply_to_the_world_size_says_both_numbers() -> None:
    with pytest.raises(UsageError, match=r"2 x 2 = 4 ranks, but the job has 8"):
        check_mesh(parse_mesh("dp=2,tp=2"), 8)


def test_collectives_are_known_by_all_their_names() -> None:
    assert parse_collectives("alltoall, AllReduce,all_reduce_perf,bcast") == (
        "all_to_all",
        "all_reduce",
        "broadcast",
    )
    assert len(parse_collectives("all")) == 11


def test_a_misspelt_collective_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError) as caught:
        parse_collectives("all_redcue")
    assert caught.value.hint == "did you mean all_reduce?"


@pytest.mark.parametrize(
    ("placement", "places"),
    [
        (Placement.AUTO, (False,)),
        (Placement.OUT, (False,)),
        (Placement.IN, (True,)),
        (Placement.BOTH, (False, True)),
    ],
)
def test_a_placement_holds_where_torch_has_it(placement: Placement, places: tuple[bool, ...]) -> None:
    options = BenchOptions(placement=placement)
    assert options.places_of("all_gather") == places
    assert options.places_of("all_reduce") == (True,), "torch reduces in place only"
    assert options.places_of("all_to_all") == (False,)
