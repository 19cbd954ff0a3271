"""Gathering every rank's result through the TCPStore, for commands that have one anyway.

Each host sends one compressed bundle (`neighbours`). Rank 0 reads bundles until every rank is accounted for or
the deadline has passed, and names who did not come. Never a collective, for the report must survive a broken
fabric; never pickle, for a peer is not trusted.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from distdoctor.ranks.bundle import MAX_BUNDLE_BYTES, AbsentRank, Bundle, pack_bundle, unpack_bundle
from distdoctor.ranks.deadline import Deadline
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.messages import MAX_TOTAL_BYTES
from distdoctor.ranks.missing import Absence, MissingRank, absence_of, describe_life
from distdoctor.ranks.neighbours import bundle_of_host
from distdoctor.ranks.processes import Life
from distdoctor.ranks.store import MAX_VALUE_BYTES, Store, StoreLostError, TimedStore

# Parts that are asked for in one call, 64 MiB at most, so that it ends within the store's time limit on a
# slow network, too. Our own choice.
_PARTS_PER_CALL = 16
_MAX_PARTS = MAX_BUNDLE_BYTES // MAX_VALUE_BYTES + 1

_POLL_S = 0.1

# Share of the deadline for the step within a host; the rest is for the way to rank 0. Our own choice.
_SHARE_WITHIN_HOST = 0.6

_ARRIVAL = re.compile(r"(\d{1,7}):(\d{1,4}),")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGathered:
    """Everything that came through the store by the deadline, and who did not come."""

    payloads: Mapping[int, bytes]
    """JSON text by rank; valid JSON, but of unknown shape: decode it into a type."""
    hosts: Mapping[int, str]
    """Host by rank, for the ranks in `payloads`."""
    missing: tuple[MissingRank, ...]
    hosts_absent: tuple[str, ...]
    """Hosts from which nothing came, where the scheduler's node list is as long as the launch is wide."""
    store_lost: str | None
    """Why the store was given up, if it was; `payloads` holds what had come before."""
    waited_s: float

    @property
    def complete(self) -> bool:
        """Whether every rank of the launch is here."""
        return not self.missing


def gather_through_store(
    store: Store, identity: RankIdentity, payload: bytes, *, prefix: str, deadline_s: float
) -> StoreGathered | None:
    """Send this rank's result (JSON text); on rank 0 also wait for everybody's. None on the other ranks.

    The other ranks return as soon as theirs is on its way, the last after some 0.6 `deadline_s`. `store` is a
    client of its own, `prefix` the launch's (`launch_prefix`). Raises ValueError when `payload` is larger than
    32 MiB. A lost store raises nothing: the result says so.
    """
    began = time.monotonic()
    deadline = Deadline.after(deadline_s)
    bundle = bundle_of_host(identity, payload, Deadline.after(deadline_s * _SHARE_WITHIN_HOST))
    timed = TimedStore(store, prefix=f"{prefix}gather/")
    try:
        if identity.is_reporter:
            inbox = _Inbox(identity, timed)
            inbox.keep_own(payload)
            if bundle is not None:
                inbox.file(bundle)
            return inbox.collect(deadline, began)
        if bundle is not None:
            with contextlib.suppress(StoreLostError):
                _send(timed, bundle)
        return None
    finally:
        timed.close()


def _send(store: TimedStore, bundle: Bundle) -> None:
    packed = pack_bundle(bundle)
    parts = [packed[start : start + MAX_VALUE_BYTES] for start in range(0, len(packed), MAX_VALUE_BYTES)]
    for index, part in enumerate(parts):
        store.set(_key(bundle.leader, index), part)
    store.append("arrived", f"{bundle.leader}:{len(parts)},")


def _key(leader: int, index: int) -> str:
    return f"bundle/{leader}/{index}"


class _Inbox:
    """Rank 0's side. Reads each host's bundle once."""

    def __init__(self, identity: RankIdentity, store: TimedStore) -> None:
        self._identity = identity
        self._store = store
        self._seen: set[int] = set()
        self._payloads: dict[int, bytes] = {}
        self._hosts: dict[int, str] = {}
        self._absent: dict[int, tuple[str, AbsentRank]] = {}
        self._unreadable: dict[int, str] = {}
        self._total_bytes = 0

    def keep_own(self, payload: bytes) -> None:
        """Rank 0's own result needs no way."""
        self._payloads[self._identity.rank] = payload
        self._hosts[self._identity.rank] = self._identity.host

    def file(self, bundle: Bundle) -> None:
        """Take over what a host sent; a rank that is there already stays as it is."""
        for rank, raw in bundle.results.items():
            if not 0 <= rank < self._identity.world_size or rank in self._payloads:
                continue
            if self._total_bytes > MAX_TOTAL_BYTES:
                self._unreadable[rank] = f"not read: the others take more than {MAX_TOTAL_BYTES >> 30} GiB"
                continue
            self._payloads[rank] = bytes(raw)
            self._hosts[rank] = bundle.host
            self._total_bytes += len(self._payloads[rank])
        for absent in bundle.absent:
            if 0 <= absent.rank < self._identity.world_size:
                self._absent[absent.rank] = (bundle.host, absent)

    def collect(self, deadline: Deadline, began: float) -> StoreGathered:
        """Read bundles until every rank is accounted for or the deadline has passed."""
        with contextlib.suppress(StoreLostError):  # the result says so
            while True:
                self._read_new()
                if deadline.expired or self._all_accounted_for():
                    break
                time.sleep(min(_POLL_S, deadline.remaining_s))
        seen = frozenset(self._hosts.values()) | {host for host, _ in self._absent.values()}
        ranks = range(self._identity.world_size)
        return StoreGathered(
            payloads=dict(sorted(self._payloads.items())),
            hosts=dict(sorted(self._hosts.items())),
            missing=tuple(self._describe(rank) for rank in ranks if rank not in self._payloads),
            hosts_absent=self._identity.missing_hosts(seen),
            store_lost=self._store.lost,
            waited_s=time.monotonic() - began,
        )

    def _all_accounted_for(self) -> bool:
        """Results of ranks that live may still come; of those that have ended they will not."""
        never = {rank for rank, (_, absent) in self._absent.items() if absent.life == Life.EXITED.value}
        never |= self._unreadable.keys()
        return len(self._payloads.keys() | never) >= self._identity.world_size

    def _read_new(self) -> None:
        text = (self._store.get("arrived") or b"").decode("ascii", "replace")
        keys: list[str] = []
        parts: dict[int, int] = {}
        for leader, num_parts in ((int(one), int(two)) for one, two in _ARRIVAL.findall(text)):
            if leader in self._seen or leader >= self._identity.world_size:
                continue
            self._seen.add(leader)
            names = [_key(leader, index) for index in range(num_parts)] if num_parts <= _MAX_PARTS else []
            # Asking for a key that is not there would wait for it.
            if not names or not self._store.has(*names):
                self._unreadable[leader] = "what it sent is too large, or not all there"
                continue
            parts[leader] = num_parts
            keys += names
        values: list[bytes] = []
        for start in range(0, len(keys), _PARTS_PER_CALL):
            values += self._store.get_many(keys[start : start + _PARTS_PER_CALL])
        for leader, num_parts in parts.items():
            packed, values = b"".join(values[:num_parts]), values[num_parts:]
            try:
                self.file(unpack_bundle(packed))
            except ValueError as error:
                self._unreadable[leader] = str(error)[:200]

    def _describe(self, rank: int) -> MissingRank:
        if rank in self._unreadable:
            return MissingRank(rank=rank, absence=Absence.UNREADABLE, detail=self._unreadable[rank])
        if rank not in self._absent:
            return MissingRank(rank=rank, absence=Absence.NEVER_SEEN, detail="sent nothing")
        host, absent = self._absent[rank]
        if absent.unreadable is not None:
            detail = absent.unreadable[:200]
            return MissingRank(
                rank=rank, absence=Absence.UNREADABLE, detail=detail, host=host, pid=absent.pid
            )
        life = Life(absent.life) if absent.life in {each.value for each in Life} else None
        if absent.pid is None or life is None:
            return MissingRank(
                rank=rank, absence=Absence.NEVER_SEEN, detail="no sign of its process", host=host
            )
        return MissingRank(
            rank=rank,
            absence=absence_of(life),
            detail=describe_life(absent.pid, life),
            host=host,
            pid=absent.pid,
        )
