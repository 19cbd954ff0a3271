"""Who is missing, and what is known of each?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.messages import Announcement
from distdoctor.ranks.processes import Life, ProcessStat, find_ranks, life_of
from distdoctor.ranks.rollcall import RollCall

# A process that reads a disk is in state D for a moment; two looks this far apart must both see it.
# Our own threshold.
_STILL_BLOCKED_S = 0.2


class Absence(str, Enum):
    """Why a rank's result is not there."""

    NEVER_SEEN = "never announced itself"
    SILENT = "announced itself, then sent nothing"
    STOPPED = "is stopped"
    BLOCKED = "is blocked in the kernel"
    EXITED = "ended without a result"
    UNREADABLE = "sent something unreadable"
    EARLIER_LAUNCH = "left only what an earlier launch wrote"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRank:
    """One rank without a result, with the words that a report can print."""

    rank: int
    absence: Absence
    detail: str
    host: str | None = None
    pod: str | None = None
    local_rank: int | None = None
    pid: int | None = None


def describe_life(pid: int, life: Life | None) -> str:
    """What a rank's process is doing, in one clause; `life` is None when it cannot be looked at from here."""
    match life:
        case None:
            return f"pid {pid}, on another host or in another container"
        case Life.RUNNING:
            return f"pid {pid} is running"
        case Life.STOPPED:
            return f"pid {pid} is stopped (state T): it got SIGSTOP or SIGTSTP"
        case Life.TRACED:
            return f"pid {pid} is held by a debugger (state t)"
        case Life.BLOCKED:
            return f"pid {pid} waits in the kernel (state D): disk, network file system or driver"
        case Life.EXITED:
            return f"pid {pid} is gone"


def absence_of(life: Life) -> Absence:
    """What the state of its process makes of a rank that has sent nothing."""
    return _ABSENCE_OF_LIFE[life]


def describe_missing(
    identity: RankIdentity,
    roll: RollCall,
    *,
    ranks: Sequence[int],
    unreadable: Mapping[int, str],
) -> tuple[MissingRank, ...]:
    """One MissingRank for each of `ranks`, in their order. Looks at the processes of this host."""
    if not ranks:
        return ()
    unannounced = [rank for rank in ranks if rank not in roll.ranks]
    launched = _launched_here(identity) if unannounced else {}
    blocked_before = [
        peer for rank in ranks if (peer := roll.ranks.get(rank)) and roll.life(peer) is Life.BLOCKED
    ]
    if blocked_before:
        time.sleep(_STILL_BLOCKED_S)
    missing = []
    for rank in ranks:
        peer = roll.ranks.get(rank)
        if peer is not None:
            missing.append(_announced(peer, roll.life(peer), unreadable.get(rank)))
        else:
            missing.append(_unannounced(rank, identity, launched.get(rank), roll.earlier.get(rank)))
    return _with_absent_host(identity, roll, missing)


def _launched_here(identity: RankIdentity) -> dict[int, ProcessStat]:
    if identity.rank_variable is None or not identity.job_variables:
        return {}
    return find_ranks(identity.rank_variable, dict(identity.job_variables))


def _announced(peer: Announcement, life: Life | None, unreadable: str | None) -> MissingRank:
    absence = Absence.SILENT if life is None else _ABSENCE_OF_LIFE[life]
    detail = describe_life(peer.pid, life)
    if unreadable is not None:
        absence, detail = Absence.UNREADABLE, unreadable
    return MissingRank(
        rank=peer.rank,
        absence=absence,
        detail=detail,
        host=peer.host,
        pod=peer.pod,
        local_rank=peer.local_rank,
        pid=peer.pid,
    )


_ABSENCE_OF_LIFE = {
    Life.RUNNING: Absence.SILENT,
    Life.STOPPED: Absence.STOPPED,
    Life.TRACED: Absence.STOPPED,
    Life.BLOCKED: Absence.BLOCKED,
    Life.EXITED: Absence.EXITED,
}


def _unannounced(
    rank: int, identity: RankIdentity, process: ProcessStat | None, earlier: Announcement | None
) -> MissingRank:
    if process is not None:
        life = life_of(process.pid, process.start_ticks)
        stopped = life in (Life.STOPPED, Life.TRACED, Life.BLOCKED)
        return MissingRank(
            rank=rank,
            absence=_ABSENCE_OF_LIFE[life] if stopped else Absence.NEVER_SEEN,
            detail=f"launched but never announced itself; {describe_life(process.pid, life)}",
            host=identity.host,
            pid=process.pid,
        )
    if earlier is not None:
        return MissingRank(
            rank=rank,
            absence=Absence.EARLIER_LAUNCH,
            detail="its announcement is an earlier launch's, or its host's clock is wrong",
            host=earlier.host,
        )
    return MissingRank(rank=rank, absence=Absence.NEVER_SEEN, detail="no sign of its process")


def _with_absent_host(
    identity: RankIdentity, roll: RollCall, missing: list[MissingRank]
) -> tuple[MissingRank, ...]:
    """If one host is absent, and exactly as many ranks are unseen as a host runs, they are that host's."""
    seen = frozenset(peer.host for peer in roll.ranks.values()) | {identity.host}
    absent = identity.missing_hosts(seen)
    unseen = [each for each in missing if each.absence is Absence.NEVER_SEEN and each.host is None]
    if len(absent) != 1 or not roll.folder.shared or len(unseen) != identity.local_world_size:
        return tuple(missing)
    return tuple(
        replace(each, host=absent[0], detail="nothing came from its host, by the scheduler's node list")
        if each in unseen
        else each
        for each in missing
    )
