"""The best proposals, confirmed: whoever can run the job's real code in simulation says what it allocates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from distdoctor.oom.settings import Settings
from distdoctor.units import GIB

if TYPE_CHECKING:
    from distdoctor.oom.search.proposal import Proposal
    from distdoctor.oom.search.room import Room

# So many of the best are confirmed; each takes seconds. Our own choice.
MAX_CONFIRMED = 3
# After so many tries nothing more is tried: the formulas and the simulation then disagree altogether. Our own choice.
MAX_TRIES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What a simulation of one configuration says of its worst rank. Bytes."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int | None = None
    """None: the allocator was not replayed."""
    seconds: float = 0.0
    """How long the simulation took."""
    note: str = ""

    @property
    def held_bytes(self) -> int:
        """What torch's allocator holds."""
        return max(self.peak_allocated_bytes, self.peak_reserved_bytes or 0)


class Confirmation(str, Enum):
    """What became of it."""

    NOT_ASKED = "by formula"
    FITS = "confirmed"
    TOO_LARGE = "refuted"
    NOT_POSSIBLE = "not confirmed"


Confirm = Callable[[Settings], "Confirmed | str"]
"""Simulates the settings; where it cannot, why not in a few words. What it raises is not caught here."""


def confirm_best(
    proposals: Sequence[Proposal], room: Room, confirm: Confirm, *, most: int = MAX_CONFIRMED
) -> tuple[Proposal, ...]:
    """`proposals` with what the simulation says of them, until it has confirmed `most`: those come first, refuted ones
    last, and in between stands what could not be simulated or was not."""
    done: list[Proposal] = []
    for proposal in proposals:
        confirmed = sum(each.confirmation is Confirmation.FITS for each in done)
        is_asked = confirmed < most and len(done) < MAX_TRIES
        done.append(judged(proposal, room, confirm(proposal.trial.job.said)) if is_asked else proposal)
    order = {Confirmation.FITS: 0, Confirmation.TOO_LARGE: 2}
    return tuple(sorted(done, key=lambda each: order.get(each.confirmation, 1)))


def judged(proposal: Proposal, room: Room, found: Confirmed | str) -> Proposal:
    """`proposal` with what a simulation said of it."""
    if isinstance(found, str):
        return replace(
            proposal,
            confirmation=Confirmation.NOT_POSSIBLE,
            confirmation_words=f"not confirmed: {found}",
        )
    held = found.held_bytes
    needs = room.need_of_held(held, proposal.trial.estimate)
    which = "reserved" if found.peak_reserved_bytes is not None else "allocated"
    note = f"; {found.note}" if found.note else ""
    amount = f"{held / GIB:.1f} GiB {which}"
    if needs[1] > room.usable:
        words = f"simulation: {amount}, does not fit{note}"
        return replace(
            proposal,
            simulated=found,
            simulated_need=needs,
            confirmation=Confirmation.TOO_LARGE,
            confirmation_words=words,
        )
    words = f"confirmed by simulation: {amount}{note}"
    return replace(
        proposal,
        simulated=found,
        simulated_need=needs,
        confirmation=Confirmation.FITS,
        confirmation_words=words,
    )
