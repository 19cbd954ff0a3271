"""One suspicion about the network or a host, as the matrix raises it; nothing is named before it is confirmed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from distdoctor.nccl_bench.analysis.pairing import Pair
from distdoctor.nccl_bench.analysis.slow_ends import Direction


class Kind(str, Enum):
    """What is suspected."""

    HOST = "host"
    """All pairs of a host with others."""
    RANK = "rank"
    """Some ranks of a host, its others are fine: their NICs or GPUs."""
    RAIL = "rail"
    """The same local rank on most hosts: a switch, or how the rail is wired."""
    GROUP = "group"
    """A third of the hosts or more: what they share."""
    ISLANDS = "islands"
    """Groups of hosts, fast inside and slow between: the uplinks between them."""
    LINK = "link"
    """Both directions between two ends that are fine with others."""
    DIRECTION = "direction"
    """One direction between two ends that are fine otherwise; with two hosts, either end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One suspicion, with the pairs that show it and those to compare with."""

    kind: Kind
    hosts: tuple[str, ...]
    """For a direction: source, target."""
    ranks: tuple[int, ...]
    """The ranks at fault; all of a host. For a direction between ranks: source, target."""
    direction: Direction | None
    ratio: float
    """What its pairs reach over what comparable others reach."""
    gbps: float
    others_gbps: float
    pairs: tuple[Pair, ...]
    """Slow pairs of ranks that were measured."""
    controls: tuple[Pair, ...]
    """Comparable pairs that touch no suspect."""
    is_inside: bool = False
    """Inside one host: not the network."""
    only_two_hosts: bool = False
    """No third host tells which end it is."""
    islands: tuple[tuple[str, ...], ...] = ()
