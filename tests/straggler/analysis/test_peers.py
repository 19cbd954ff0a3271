"""With whom a rank may be compared."""

from __future__ import annotations

import pytest

from distdoctor.straggler.analysis.peers import MIN_PEERS, peers_of
from distdoctor.straggler.facts.places import Place


def mesh(**sizes: int) -> list[Place]:
    """Dimensions outermost first, as a DeviceMesh is built."""
    places = [Place(rank=0, coords={})]
    for name, size in sizes.items():
        places = [
            Place(rank=0, coords={**place.coords, name: index}) for place in places for index in range(size)
        ]
    return [Place(rank=rank, coords=place.coords) for rank, place in enumerate(places)]


@pytest.mark.parametrize(
    ("sizes", "names", "num_groups"),
    [
        ({"dp": 8}, set(), 1),
        ({"dp_replicate": 2, "dp_shard": 4}, set(), 1),
        ({"pp": 2, "dp": 8}, {"pp"}, 2),
        ({"pp": 2, "dp": 4, "tp": 2}, {"pp", "tp"}, 4),
        ({"dp": 4, "cp": 2}, {"cp"}, 2),
        ({"dp": 4, "ep": 4}, {"ep"}, 4),
    ],
)
def test_ranks_that_do_the_same_work_on_other_data_are_peers(
    sizes: dict[str, int], names: set[str], num_groups: int
) -> None:
    peers = peers_of(mesh(**sizes))
    assert {name for key in peers.keys for name, _ in key} == names
    assert peers.num_groups == num_groups
    assert peers.known


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ({"pp": 2, "dp": 2, "tp": 2}, {"pp"}),
        ({"dp": 2, "tp": 8}, set()),
        ({"pp": 2, "dp": 2, "cp": 2, "tp": 2}, {"pp", "cp"}),
        ({"pp": 2, "dp": 1, "cp": 4, "tp": 2}, {"pp"}),
        ({"dp": 2, "ep": 4}, set()),
    ],
)
def test_groups_that_are_too_small_become_coarser_but_keep_pipeline_stages(
    sizes: dict[str, int], kept: set[str]
) -> None:
    peers = peers_of(mesh(**sizes))
    assert {name for key in peers.keys for name, _ in key} == kept
    assert min(peers.sizes) >= MIN_PEERS


def test_pipeline_stages_of_one_rank_are_never_thrown_together() -> None:
    peers = peers_of(mesh(pp=8))
    assert peers.num_groups == 8
    assert max(peers.sizes) == 1


def test_without_coordinates_of_all_ranks_everybody_is_one_kind_and_that_is_said() -> None:
    places = [*mesh(pp=2, dp=4)[:-1], Place(rank=7)]
    peers = peers_of(places)
    assert (peers.num_groups, peers.known) == (1, False)
    assert "no parallel coordinates" in peers.words()


def test_a_rank_that_lacks_one_coordinate_is_a_kind_of_its_own() -> None:
    places = [*mesh(pp=2, dp=4), Place(rank=8, coords={"dp": 4})]
    assert peers_of(places).num_groups == 3


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"dp": 4}, "all other ranks (data parallel)"),
        ({"pp": 2, "dp": 4}, "ranks of the same pp"),
        ({"pp": 2, "dp": 4, "tp": 2}, "ranks of the same pp and tp"),
    ],
)
def test_peers_are_told_in_words(sizes: dict[str, int], words: str) -> None:
    assert peers_of(mesh(**sizes)).words() == words


def test_nobody_has_no_peers() -> None:
    assert not peers_of([]).known
