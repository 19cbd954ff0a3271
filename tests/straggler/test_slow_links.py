"""A slow path between ranks, told apart from a rank that comes late."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from distdoctor.straggler.analysis.collectives.links import Links, slow_links
from distdoctor.straggler.analysis.collectives.match import match
from distdoctor.straggler.facts.collectives import CollectiveTimings
from straggler.simulated_mesh import Mesh, Recorded


def links_of(timings: CollectiveTimings) -> Links:
    matched = match(timings)
    assert matched is not None
    return slow_links(matched)


def test_a_group_with_slow_transfers_is_named_with_its_hosts_and_no_rank() -> None:
    (suspect,) = links_of(Mesh(slow_tp_links={2: 2.0}, gpus_per_host=4).run()).suspects

    assert (suspect.groups, suspect.ranks, suspect.hosts) == (("tp2",), (8, 9, 10, 11), ("node-2",))
    assert 1.9 < suspect.ratio < 2.1
    assert (suspect.op, suspect.num_bytes, suspect.n, suspect.num_peers) == ("all_reduce", 1 << 20, 400, 8)


def test_a_slow_outer_group_is_named_while_its_inner_groups_wait() -> None:
    (suspect,) = links_of(Mesh(slow_dp_links={1: 1.5}).run()).suspects

    assert suspect.groups == ("dp1",)
    assert suspect.ranks == (1, 5, 9, 13, 17, 21, 25, 29)


def test_even_transfers_are_silent() -> None:
    links = links_of(Mesh().run())

    assert (links.suspects, links.compared, links.cannot_tell) == ((), 12, None)


def test_a_late_rank_makes_no_slow_link() -> None:
    assert links_of(Mesh(slow={5: 1.5}).run()).suspects == ()


def test_fifteen_per_cent_are_too_little() -> None:
    assert links_of(Mesh(slow_dp_links={1: 1.15}).run()).suspects == ()


def test_a_few_microseconds_are_too_little() -> None:
    assert links_of(Mesh(tp_transfer_us=20, slow_tp_links={1: 1.6}).run()).suspects == ()


def test_three_groups_cannot_tell() -> None:
    links = links_of(Mesh(dp=3, tp=3, slow_tp_links={1: 3.0}).run())

    assert (links.suspects, links.compared) == ((), 0)
    assert links.cannot_tell is not None
    assert "at most 3 groups" in links.cannot_tell


def test_nineteen_collectives_cannot_tell() -> None:
    links = links_of(Mesh(steps=19, layers=1, slow_tp_links={1: 3.0}).run())

    assert links.suspects == ()
    assert links.cannot_tell == "no group has 20 collectives of one operation and size"


def test_unknown_sizes_cannot_tell() -> None:
    timings = Mesh(slow_tp_links={1: 3.0}).run()
    links = links_of(replace(timings, num_bytes=np.full_like(timings.num_bytes, -1)))

    assert links.suspects == ()
    assert links.cannot_tell == "the evidence does not tell the size of messages"


def test_larger_messages_are_no_slow_link() -> None:
    """Stages of a pipeline have gradients of different size; per byte they are equal."""
    timings = Mesh(slow_dp_links={1: 1.8}).run()
    larger = (timings.group == 9) & (timings.num_bytes == 1 << 28)
    num_bytes = np.where(larger, int(1.8 * (1 << 28)), timings.num_bytes)

    assert links_of(replace(timings, num_bytes=num_bytes)).suspects == ()


def test_slow_transfers_with_a_late_rank_inside_are_not_blamed_on_the_link() -> None:
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    links = links_of(_pairs(pairs, slow={(2, 3)}, late_us={2: 5000.0}))

    assert links.suspects == ()
    assert links.cannot_tell is not None
    assert "come late" in links.cannot_tell


def test_slow_pairs_that_share_a_host_are_narrowed_to_it() -> None:
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (2, 4), (1, 4), (3, 4)]
    (suspect,) = links_of(_pairs(pairs, slow={(0, 1), (0, 2), (0, 3)})).suspects

    assert suspect.hosts == ("node-0",)
    assert suspect.ranks == (0,)
    assert suspect.groups == ("0-1", "0-2", "0-3")


def test_one_slow_pair_keeps_both_of_its_hosts() -> None:
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    (suspect,) = links_of(_pairs(pairs, slow={(0, 2)})).suspects

    assert suspect.hosts == ("node-0", "node-2")


def test_a_host_that_is_fast_elsewhere_is_not_singled_out() -> None:
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 4)]
    suspects = links_of(_pairs(pairs, slow={(0, 1), (0, 2)})).suspects

    assert sorted(suspect.hosts for suspect in suspects) == [("node-0", "node-1"), ("node-0", "node-2")]


def _pairs(
    pairs: list[tuple[int, int]],
    *,
    slow: Iterable[tuple[int, int]] = (),
    late_us: dict[int, float] | None = None,
) -> CollectiveTimings:
    """One rank a host; all-reduces between pairs of hosts, one pair after the other."""
    recorded = Recorded(num_ranks=10, gpus_per_host=1)
    rng = np.random.default_rng(2)
    late_us = late_us or {}
    for a, b in pairs:
        group = recorded.group(f"{a}-{b}", np.asarray([a, b]), what="pair")
        for seq in range(30):
            arrive = np.asarray([late_us.get(a, 0.0), late_us.get(b, 0.0)]) + rng.uniform(0, 20, 2)
            transfer = 1000 * (1.6 if (a, b) in set(slow) else 1.0) * rng.uniform(1, 1.03)
            recorded.add(
                [group], np.asarray([[a, b]]), seq, arrive[None], np.asarray([arrive.max() + transfer])
            )
    return recorded.timings()
