"""Checks of a reproduction: outcomes over `ReproduceFacts`, and words that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdoctor.oom.facts.reproduced import ReproduceFacts
from distdoctor.report import checking
from distdoctor.report.model import GpuRef, Scope
from distdoctor.report.names import short_host
from distdoctor.units import fold_ints, format_bytes

ReproduceCheck = checking.Check[ReproduceFacts]

TRACKER = "distdoctor's count of live tensors in that rank"

_MAX_CATEGORIES = 4


def who(facts: ReproduceFacts, ranks: Sequence[int]) -> str:
    """`rank 1 (host-b)`, `ranks 0-3`."""
    hosts = hosts_of(facts, ranks)
    where = f" ({short_host(hosts[0])})" if len(hosts) == 1 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {fold_ints(tuple(ranks))}{where}"


def hosts_of(facts: ReproduceFacts, ranks: Sequence[int]) -> tuple[str, ...]:
    """Hosts of some ranks, as far as known."""
    return tuple(dict.fromkeys(place.host for rank in ranks if (place := facts.place_of(rank)) is not None))


def scope_of(facts: ReproduceFacts, ranks: Sequence[int]) -> Scope:
    """Some ranks with their hosts and GPUs."""
    places = [place for rank in ranks if (place := facts.place_of(rank)) is not None]
    gpus: tuple[GpuRef, ...] = tuple(gpu for place in places if (gpu := place.gpu) is not None)
    return Scope(ranks=tuple(ranks), hosts=hosts_of(facts, ranks), gpus=gpus)


def categories_words(by_category: Mapping[str, int]) -> str:
    """`activations 120 MiB, parameters 16 MiB`: the largest first."""
    largest = sorted(by_category.items(), key=lambda each: -each[1])
    shown = [
        f"{name} {format_bytes(num_bytes)}" for name, num_bytes in largest[:_MAX_CATEGORIES] if num_bytes
    ]
    rest = sum(num_bytes for _, num_bytes in largest[_MAX_CATEGORIES:])
    return ", ".join([*shown, *([f"others {format_bytes(rest)}"] if rest else [])])
