"""From what the watchdog found to facts: which ranks are lost, and what is known of each."""

from __future__ import annotations

from distdoctor.ranks.lost import Lost, LostRank, Stopped
from distdoctor.ranks.processes import Life
from distdoctor.ranks.watchdog import Absentee, Stall, Whereabouts
from distdoctor.ranks.whereabouts import apart_from_others, words_of


def stopped_by(stall: Stall) -> Stopped:
    """What the watchdog found, as facts of the run."""
    frozen = {each.rank: each for each in stall.frozen}
    missing = {each.rank: each for each in stall.missing}
    doing = {each.rank: words_of(each) for each in stall.where}
    absent = [
        _lost(rank, each, frozen=rank in frozen, doing=doing.get(rank))
        for rank, each in sorted({**frozen, **missing}.items())
    ]
    if not absent and not stall.errors and not stall.terminated:
        absent = [_elsewhere(each) for each in apart_from_others(stall.where)]
    return Stopped(
        reason=stall.reason,
        phase=stall.phase,
        lost=tuple(absent),
        inside=tuple(rank for rank in stall.inside if rank not in {each.rank for each in absent}),
        by_user=stall.interrupted,
        errors=stall.errors,
        only_this_rank=stall.store_lost is not None,
    )


def _elsewhere(where: Whereabouts) -> LostRank:
    """A rank that entered the step as all others did, and then did something else."""
    return LostRank(rank=where.rank, state=Lost.LATE, doing=words_of(where))


def _lost(rank: int, absentee: Absentee, *, frozen: bool, doing: str | None) -> LostRank:
    state = Lost.UNKNOWN
    if absentee.pid is None:
        # It never told anything: whether it runs at all is not known.
        return LostRank(rank=rank, state=state, doing=doing)
    if absentee.life in (Life.STOPPED, Life.TRACED):
        state = Lost.STOPPED
    elif absentee.life is Life.EXITED:
        state = Lost.GONE
    elif frozen or absentee.beats is False:
        state = Lost.FROZEN
    elif absentee.beats:
        state = Lost.LATE
    return LostRank(
        rank=rank,
        state=state,
        host=absentee.host,
        pid=absentee.pid,
        last_phase=absentee.last_phase,
        doing=doing,
    )
