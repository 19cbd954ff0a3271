"""One sender per host: its ranks hand their results to the lowest that lives, through a private folder.

A rank puts its result there, then its announcement. Whoever takes a result first creates a file `taken.…`, so
that none is sent twice; a rank that finds its own taken is done.
"""

from __future__ import annotations

import contextlib
import time

import msgspec

from distdoctor.errors import OutputError
from distdoctor.ranks.bundle import AbsentRank, Bundle
from distdoctor.ranks.deadline import Deadline
from distdoctor.ranks.folder import GatherFolder, private_folder
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.messages import (
    MAX_PACKED_BYTES,
    Announcement,
    announcement_of,
    encode_announcement,
    job_digest,
    pack_payload,
    unpack_payload,
)
from distdoctor.ranks.processes import Life, find_ranks, life_of
from distdoctor.ranks.rollcall import LaunchRule, RollCall, announcement_name, payload_name

_POLL_S = 0.05

# After the deadline a rank gives the leader of its host this long, then sends its result itself. Our own choice.
_LEADER_GRACE_S = 2.0


def bundle_of_host(identity: RankIdentity, payload: bytes, deadline: Deadline) -> Bundle | None:
    """What this rank is to send, or None when another rank of its host sends this rank's result along.

    Waits for the neighbours until the deadline. Where there is no private folder every rank sends its own.
    Raises ValueError when `payload` is larger than 32 MiB.
    """
    packed = pack_payload(payload)
    alone = Bundle(leader=identity.rank, host=identity.host, results={identity.rank: msgspec.Raw(payload)})
    if identity.local_world_size == 1:
        return alone
    me = announcement_of(identity)
    try:
        folder = private_folder(f"{job_digest(identity.job_key)}-store")
        folder.write(payload_name(me), packed)
        folder.write(announcement_name(me), encode_announcement(me))
    except (OutputError, OSError):
        return alone
    return _Neighbourhood(identity, me, folder, deadline).decide(alone)


class _Neighbourhood:
    """The ranks of one host as one of them sees them."""

    def __init__(
        self, identity: RankIdentity, me: Announcement, folder: GatherFolder, deadline: Deadline
    ) -> None:
        self._identity = identity
        self._me = me
        self._folder = folder
        self._deadline = deadline
        rule = LaunchRule(me=me, key_never_reused=identity.key_never_reused)
        self._roll = RollCall(folder, rule, identity.world_size)

    def decide(self, alone: Bundle) -> Bundle | None:
        """Wait until this rank's result is taken, or take all that are there."""
        try:
            while True:
                self._roll.refresh()
                if _taken(self._me) in self._roll.names:
                    return None
                if self._is_my_turn():
                    return self._take(alone)
                time.sleep(_POLL_S)
        except OSError:
            return alone  # somebody removed the folder: better twice than never
        finally:
            self._leave()

    def _is_my_turn(self) -> bool:
        if time.monotonic() > self._deadline.at + _LEADER_GRACE_S:
            return True
        if not self._deadline.expired and not self._all_came():
            return False
        return not any(
            rank < self._me.rank and self._roll.life(peer) in (Life.RUNNING, Life.BLOCKED)
            for rank, peer in self._roll.ranks.items()
        )

    def _all_came(self) -> bool:
        return len(self._roll.ranks) >= (self._identity.local_world_size or self._identity.world_size)

    def _take(self, alone: Bundle) -> Bundle | None:
        if not self._folder.claim(_taken(self._me), b""):
            return None
        results, absent = dict(alone.results), []
        for rank, peer in sorted(self._roll.ranks.items()):
            if rank == self._me.rank or not self._folder.claim(_taken(peer), b""):
                continue
            try:
                results[rank] = msgspec.Raw(
                    unpack_payload(self._folder.read(payload_name(peer), MAX_PACKED_BYTES))
                )
            except (OSError, ValueError) as error:
                absent.append(AbsentRank(rank=rank, pid=peer.pid, unreadable=str(error)[:200]))
        absent += self._not_there()
        return Bundle(leader=self._me.rank, host=self._identity.host, results=results, absent=absent)

    def _not_there(self) -> list[AbsentRank]:
        """Ranks of this host that were launched but handed nothing over, by a look at their processes."""
        expected = self._identity.ranks_here
        if expected is None or self._identity.rank_variable is None or self._all_came():
            return []
        launched = find_ranks(self._identity.rank_variable, dict(self._identity.job_variables))
        absent = []
        for rank in sorted(set(expected) - set(self._roll.ranks)):
            stat = launched.get(rank)
            life = life_of(stat.pid, stat.start_ticks).value if stat is not None else None
            absent.append(AbsentRank(rank=rank, pid=stat.pid if stat is not None else None, life=life))
        return absent

    def _leave(self) -> None:
        """Remove this rank's files; the last one out removes the rest."""
        self._folder.remove([announcement_name(self._me), payload_name(self._me)])
        with contextlib.suppress(OSError):
            self._roll.refresh()
            if not self._roll.somebody_waits(but=self._me):
                self._folder.remove(self._roll.done_with())
        self._folder.remove_itself()


def _taken(peer: Announcement) -> str:
    return f"taken.{peer.rank}.{peer.nonce}"
