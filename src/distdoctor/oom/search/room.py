"""The room that a job has on a card: its memory, less what others hold; and what a failure taught about the need."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.facts.estimate import Estimate
from distdoctor.oom.fit import Fit, Fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What an estimate is held against. Bytes."""

    capacity: float
    """Of the card, or what the process may use of it."""
    held_by_others: float = 0.0
    """By processes that are not the job's."""
    factor: float = 1.0
    """What was measured over what was estimated, where a failure showed more; at least 1. Simulations are multiplied by
    it too: what the job has beyond its settings they do not know either."""
    outside: float | None = None
    """What this process held outside torch's allocator when it failed; None: not measured."""

    @property
    def usable(self) -> float:
        """Bytes for the job."""
        return max(0.0, self.capacity - self.held_by_others)

    def outside_of(self, estimate: Estimate) -> tuple[float, float]:
        """(least, most) outside torch's allocator: as measured where that is more."""
        low = sum(each.low_bytes for each in estimate.outside)
        high = sum(each.high_bytes for each in estimate.outside)
        if self.outside is None:
            return low, high
        return max(low, self.outside), max(high, self.outside)

    def need_of_held(self, held_bytes: int, estimate: Estimate) -> tuple[float, float]:
        """(least, most) of the card where torch's allocator holds so much by a simulation; what lies outside is that of
        the estimate."""
        low, high = self.outside_of(estimate)
        return held_bytes * self.factor + low, held_bytes * self.factor + high

    def need(self, estimate: Estimate) -> tuple[float, float]:
        """(least, most) that the worst rank's card must hold, as measured where that is more."""
        peak = estimate.worst.peak.num_bytes * self.factor
        slack = estimate.slack
        low, high = peak, peak
        if slack is not None:
            low, high = low + slack.low_bytes * self.factor, high + slack.high_bytes * self.factor
        outside_low, outside_high = self.outside_of(estimate)
        return low + outside_low, high + outside_high

    def fit(self, estimate: Estimate) -> Fit:
        """Whether the worst rank's need has room. The same rules as `oom.fit.fit_of`."""
        low, high = self.need(estimate)
        if low > self.usable:
            answer = Fits.NO
        elif not estimate.is_whole or estimate.not_covered:
            answer = Fits.UNKNOWN
        else:
            answer = Fits.YES if high <= self.usable else Fits.TIGHT
        return Fit(answer=answer, need_low=low, need_high=high, capacity=self.usable)
