"""Of several ranks that are gone, stopped or late: which one is the cause, and who only suffers?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from distdoctor.ranks.lost import Lost, LostRank, Stopped

# What is known of a lost rank, from the surest cause down: a process that is gone explains all that follows; one
# that has not arrived may itself wait for something.
_ORDER = (Lost.GONE, Lost.STOPPED, Lost.FROZEN, Lost.LATE, Lost.UNKNOWN)

# How Gloo, NCCL and torch say that a peer went away: such an error has its cause in another rank.
_OF_A_PEER = re.compile(
    r"closed by peer|reset by peer|broken pipe|peer.{0,20}(?:exited|gone|lost|closed)"
    r"|remote process exited|ncclRemoteError|ncclSystemError|watchdog caught|connection (?:was )?(?:refused|aborted)"
    r"|socket timeout|timed? ?out|recvValue failed|failed to (?:recv|send)|no error[, ]+remote",
    re.IGNORECASE,
)


class Cause(str, Enum):
    """What ended the run."""

    BY_USER = "somebody ended it"
    ENDED = "the launcher ended it"
    DIED = "a rank is gone"
    RAISED = "a rank could not go on"
    NOT_ARRIVED = "a rank did not arrive"
    STUCK = "all ranks are in, none comes out"
    BROKEN = "a connection between ranks that run broke"
    STORE_LOST = "the store that the ranks meet in is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Who ended the run."""

    cause: Cause
    culprits: tuple[LostRank, ...]
    """The earliest cause; several when nothing tells them apart."""
    victims: tuple[LostRank, ...]
    """Lost as well, with weaker evidence."""
    error: tuple[int, str] | None = None
    """The first rank's own words that do not only tell of a peer."""


def blame(stopped: Stopped) -> Blame:
    """The cause: gone before stopped before frozen before late; a rank that raised before those that lost it."""
    if stopped.only_this_rank:
        return Blame(cause=Cause.STORE_LOST, culprits=(), victims=stopped.lost)
    own_errors = [each for each in stopped.errors if not tells_of_a_peer(each[1])]
    if own_errors:
        # Ranks that say the same have met the same: whoever says it first is no more to blame than the others.
        words = _without_numbers(own_errors[0][1])
        raised = sorted({rank for rank, text in own_errors if _without_numbers(text) == words})
        known = {each.rank: each for each in stopped.lost}
        culprits = tuple(known.get(rank) or LostRank(rank=rank, state=Lost.UNKNOWN) for rank in raised)
        victims = tuple(each for each in stopped.lost if each.rank not in raised)
        return Blame(cause=Cause.RAISED, culprits=culprits, victims=victims, error=own_errors[0])
    if not stopped.lost:
        return Blame(
            cause=_nobody_lost(stopped), culprits=(), victims=(), error=next(iter(stopped.errors), None)
        )
    # A rank that could still say that its peer had gone went after that peer.
    spoke = {rank for rank, _ in stopped.errors}
    silent = [each for each in stopped.lost if each.rank not in spoke] or list(stopped.lost)
    worst = min((each.state for each in silent), key=_ORDER.index)
    culprits = tuple(each for each in silent if each.state is worst)
    if stopped.by_user and worst not in (Lost.STOPPED, Lost.FROZEN):
        # Whoever is ended by a signal is soon gone: that is no fault of his.
        return Blame(cause=Cause.BY_USER, culprits=(), victims=stopped.lost)
    return Blame(
        cause=Cause.DIED if worst is Lost.GONE else Cause.NOT_ARRIVED,
        culprits=culprits,
        victims=tuple(each for each in stopped.lost if each not in culprits),
        error=next(iter(stopped.errors), None),
    )


def tells_of_a_peer(error: str) -> bool:
    """Whether an error says that another rank went away: its cause is there."""
    return bool(_OF_A_PEER.search(error))


def _without_numbers(text: str) -> str:
    """Ports, addresses of memory and ranks differ in one and the same error."""
    return re.sub(r"(?:0x)?[0-9a-f]*\d[0-9a-f]*", "#", text)


def _nobody_lost(stopped: Stopped) -> Cause:
    if stopped.by_user:
        return Cause.BY_USER
    if stopped.errors:
        return Cause.BROKEN
    return Cause.ENDED if "SIGTERM" in stopped.reason else Cause.STUCK
