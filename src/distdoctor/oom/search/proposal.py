"""What the search hands on: proposals, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.fit import Fits
from distdoctor.oom.search.change import Effort
from distdoctor.oom.search.confirm import Confirmation, Confirmed
from distdoctor.oom.search.costs import Costs
from distdoctor.oom.search.floor import Floor
from distdoctor.oom.search.room import Room
from distdoctor.oom.search.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Changes that make the job fit together, and none of which can be left out."""

    trial: Trial
    costs: Costs
    least_layers: tuple[int, int] | None = None
    """(layers of a rank that it is enough to checkpoint, all of them)."""
    simulated: Confirmed | None = None
    simulated_need: tuple[float, float] | None = None
    """(least, most) bytes of the card by that simulation, with what lies outside torch's allocator."""
    confirmation: Confirmation = Confirmation.NOT_ASKED
    confirmation_words: str = ""

    @property
    def is_refuted(self) -> bool:
        """A simulation says that it does not fit."""
        return self.confirmation is Confirmation.TOO_LARGE

    @property
    def headroom_share(self) -> float:
        """Share of the card that is left when it needs most."""
        return self.trial.fit.headroom_low / self.trial.fit.capacity if self.trial.fit.capacity else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer of a search."""

    start: Trial
    room: Room
    proposals: tuple[Proposal, ...] = ()
    """Best first; refuted ones last."""
    today: Proposal | None = None
    """The job as it is, simulated, where formulas are too near to the limit to be trusted alone."""
    is_only_perhaps: bool = False
    """Nothing fits at the most that it may need; these fit at the least."""
    floor: Floor | None = None
    """Where nothing on the same GPUs fits."""
    num_estimates: int = 0

    @property
    def fits_already(self) -> bool:
        """Nothing needs to be changed."""
        return self.start.fit.answer in (Fits.YES, Fits.UNKNOWN)

    @property
    def holding(self) -> tuple[Proposal, ...]:
        """Proposals that no simulation refuted."""
        return tuple(each for each in self.proposals if not each.is_refuted)

    @property
    def on_same_gpus(self) -> tuple[Proposal, ...]:
        """Those that need no more GPUs."""
        return tuple(each for each in self.holding if each.trial.effort is not Effort.GPUS)
