"""Ranks in step, and what they tell one another, through a store client of the main thread.

Not a collective: the fabric under test may be broken, the store need not be. Waiting has no limit here; the
watchdog ends a rank that waits in vain.
"""

from __future__ import annotations

from datetime import timedelta

from torch.distributed import Store

_NO_LIMIT = timedelta(days=7)


class Control:
    """One rank's side. All ranks call `in_step` in the same order."""

    def __init__(self, store: Store, *, prefix: str, rank: int, world_size: int) -> None:
        """`store`: a client of its own, for waiting on a shared one would block whoever shares it."""
        self._store = store
        self._prefix = prefix
        self._rank = rank
        self._world_size = world_size
        self._step = 0

    def in_step(self, message: str = "") -> str:
        """Wait until all ranks are here; gives rank 0's message."""
        key = f"{self._prefix}step/{self._step}"
        self._step += 1
        if self._rank == 0:
            self._store.set(f"{key}/message", message or " ")
        if self._store.add(f"{key}/here", 1) == self._world_size:
            self._store.set(f"{key}/go", "1")
        self._store.wait([f"{key}/go", f"{key}/message"], _NO_LIMIT)
        return bytes(self._store.get(f"{key}/message")).decode("utf-8", "replace").strip()

    def put(self, key: str, value: bytes) -> None:
        """Tell something under a key."""
        self._store.set(self._prefix + key, value)

    def append(self, key: str, text: str) -> None:
        """Add to what stands under a key."""
        self._store.append(self._prefix + key, text)

    def note_rank(self, key: str) -> None:
        """Add this rank to the set of ranks under a key."""
        self.append(key, f"{self._rank},")

    def count(self, key: str, amount: int) -> int:
        """Add to a counter; its new value."""
        return int(self._store.add(self._prefix + key, amount))

    def wait_for(self, key: str) -> bytes:
        """What somebody tells under a key, once it is there."""
        name = self._prefix + key
        self._store.wait([name], _NO_LIMIT)
        return bytes(self._store.get(name))
