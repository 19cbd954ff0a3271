"""A key-value store that may die or freeze under us: torch's TCPStore behind a time limit.

A TCPStore client serialises its calls and waits without limit for a server that is stopped, so that every call
goes through one thread of our own; whoever asks waits for the answer `limit_s` seconds and no longer.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

# Each call takes well under a millisecond when the server lives. Our own threshold.
STORE_LIMIT_S = 5.0

# TCPStore's server closes the connection on values above 8 MiB (seen with torch 2.13: 7 MiB pass, 9 do not).
MAX_VALUE_BYTES = 4 << 20


class Store(Protocol):
    """What is used of `torch.distributed.TCPStore`. A client of its own, not the process group's."""

    def set(self, key: str, value: str, /) -> None:
        """Store a value; torch takes bytes as well as text."""

    def get(self, key: str, /) -> bytes:
        """A value; waits when there is none, so that `check` comes first."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter and give its value."""

    def append(self, key: str, value: str, /) -> None:
        """Append to a value."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are there."""

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        """Several values; waits for those that are not there."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set a value if it is the expected one (or unset and expected empty); gives the value that holds."""


class StoreLostError(Exception):
    """The store does not answer, or answered with an error."""


class TimedStore:
    """The calls that ranks need, each ending within `limit_s` seconds or raising StoreLostError.

    Keys get a prefix. After the first loss every call fails at once. May be used from several threads.
    """

    def __init__(self, store: Store, *, prefix: str, limit_s: float = STORE_LIMIT_S) -> None:
        self._store = store
        self._prefix = prefix
        self._limit_s = limit_s
        self._lost: str | None = None
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="distdoctor-store", daemon=True).start()

    @property
    def lost(self) -> str | None:
        """Why the store is given up, or None."""
        return self._lost

    def set(self, key: str, value: str | bytes) -> None:
        """Store a value."""
        # torch's binding takes bytes where its annotation says text.
        self._ask(lambda: self._store.set(self._prefix + key, value))  # type: ignore[arg-type]

    def get(self, key: str) -> bytes | None:
        """A value, or None when there is none."""
        name = self._prefix + key
        return self._ask(lambda: self._store.get(name) if self._store.check([name]) else None)

    def get_many(self, keys: list[str]) -> list[bytes]:
        """Values of keys that are known to be there."""
        names = [self._prefix + key for key in keys]
        return self._ask(lambda: self._store.multi_get(names)) if names else []

    def has(self, *keys: str) -> bool:
        """Whether all keys are there."""
        names = [self._prefix + key for key in keys]
        return self._ask(lambda: self._store.check(names))

    def append(self, key: str, text: str) -> None:
        """Append to a value."""
        self._ask(lambda: self._store.append(self._prefix + key, text))

    def add(self, key: str, amount: int) -> int:
        """Add to a counter; its new value."""
        return self._ask(lambda: self._store.add(self._prefix + key, amount))

    def counters(self, keys: list[str]) -> list[int]:
        """Counters as they stand, 0 for those that nobody has added to; one trip through our thread."""
        names = [self._prefix + key for key in keys]
        return self._ask(lambda: [self._store.add(name, 0) for name in names])

    def note_rank(self, key: str, rank: int) -> None:
        """Add a rank to a set of ranks."""
        self.append(key, f"{rank},")

    def ranks_in(self, key: str, world_size: int) -> frozenset[int]:
        """The set of ranks under a key; words that are no rank are ignored."""
        text = (self.get(key) or b"").decode("ascii", "replace")
        words = (word for word in text.split(",") if word.isdecimal() and len(word) < 10)
        return frozenset(rank for rank in map(int, words) if rank < world_size)

    def agree_on(self, key: str, proposal: str) -> str:
        """The proposal of whoever came first, the same for all."""
        held = self._ask(lambda: self._store.compare_set(self._prefix + key, "", proposal))
        return held.decode("utf-8", "replace")

    def _ask(self, call: Callable[[], T]) -> T:
        if self._lost is not None:
            raise StoreLostError(self._lost)
        answers: list[T] = []
        failures: list[Exception] = []
        answered = threading.Event()

        def work() -> None:
            try:
                answers.append(call())
            except Exception as error:  # whatever torch raises, its text is all we need
                failures.append(error)
            answered.set()

        self._calls.put(work)
        if not answered.wait(self._limit_s):
            self._lost = f"no answer within {self._limit_s:g} s"
        elif failures:
            lines = str(failures[0]).splitlines() or [""]
            self._lost = f"{type(failures[0]).__name__}: {lines[0][:200]}"
        if self._lost is not None:
            raise StoreLostError(self._lost)
        return answers[0]

    def close(self) -> None:
        """Let the thread end."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def launch_prefix(store: Store, attempt: str, *, limit_s: float = STORE_LIMIT_S) -> str:
    """Key prefix of this launch, agreed by all ranks: what an earlier attempt left in the store is not read.

    `attempt` is the launcher's restart count. Raises StoreLostError.
    """
    timed = TimedStore(store, prefix="distdoctor/", limit_s=limit_s)
    try:
        nonce = timed.agree_on(f"launch/{attempt}", secrets.token_hex(8))
    finally:
        timed.close()
    return f"distdoctor/{nonce}/"
