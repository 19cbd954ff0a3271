"""What ranks tell under one name, each once: kept in the store, with a note beside it of who has told."""

from __future__ import annotations

from typing import Protocol

from distdoctor.ranks.store import Store, StoreLostError, TimedStore

# Of one rank under one name; what one host tells about itself takes some 100 KB with 8 GPUs. Our own bound.
MAX_TOLD_BYTES = 4 << 20


class Teller(Protocol):
    """What is used of `ranks.group.control.Control`."""

    def put(self, key: str, value: bytes) -> None:
        """Tell something under a key."""

    def note_rank(self, key: str) -> None:
        """Add this rank to the set of ranks under a key."""


def tell(teller: Teller, name: str, rank: int, value: bytes) -> None:
    """Tell the value as this rank's under `name`."""
    teller.put(f"{name}/{rank}", value)
    teller.note_rank(f"{name}/done")


def read_told(store: TimedStore, name: str, world_size: int) -> dict[int, bytes]:
    """What ranks have told under `name` so far, by rank; nothing where the store is lost."""
    try:
        ranks = sorted(store.ranks_in(f"{name}/done", world_size))
        values = [store.get_many([f"{name}/{rank}"])[0] for rank in ranks]
    except StoreLostError:
        return {}
    return {rank: value for rank, value in zip(ranks, values, strict=True) if len(value) <= MAX_TOLD_BYTES}


def told_by_rank(store: Store, prefix: str, name: str, world_size: int) -> dict[int, bytes]:
    """The same through a client that nobody else uses at the moment."""
    timed = TimedStore(store, prefix=prefix)
    try:
        return read_told(timed, name, world_size)
    finally:
        timed.close()
