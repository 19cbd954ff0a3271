"""Which single steps took far longer than those around them?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distdoctor.straggler.analysis.series.running import Values

# A stall is at least so much longer than its surroundings, and more where values are few. Our own thresholds.
MIN_STALL = math.log(1.05)
MIN_STALL_FEW = math.log(1.10)
FEW = 50

# ... and stands out by so many sigma. Noise of training steps has heavy tails; Student's t with 3 degrees of freedom
# exceeds this in fewer than one value of a thousand. Our own threshold.
STALL_SIGMAS = 10.0

# ... and by so many steps of rounding.
STALL_ROUNDINGS = 2.0

# A line that is written late makes one step long and the next ones short: no time was lost. What steps this close give
# back, by being shorter than usual by so many sigma, is taken off. Our own choices.
GIVEN_BACK_BEFORE = 2
GIVEN_BACK_AFTER = 4
GIVEN_BACK_SIGMAS = 2.0


# All stalls lie behind some step: by chance, less often than this.
BY_CHANCE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Neighbouring values that took far longer than usual."""

    index: int
    """The longest of them."""
    num_values: int
    usual: float
    """What a step around takes, in the unit of the series."""
    longest: float
    lost: float
    """Time beyond the usual, of all its values together and less what those around saved; of one step a value."""

    @property
    def factor(self) -> float:
        """Longest over usual."""
        return self.longest / self.usual


def since(stalls: Sequence[Stall], first: int, end: int) -> int | None:
    """The first stall, when all lie so late among values `first` to `end` that chance does not put them there."""
    if not stalls or end <= first:
        return None
    share = (end - stalls[0].index) / (end - first)
    return stalls[0].index if share ** len(stalls) < BY_CHANCE else None


def stalls_of(
    times: Values, usual: Values, upper: Values, *, sigma: float, rounding: float, offset: int
) -> tuple[Stall, ...]:
    """Stalls in order.

    times: shape (values,). usual, upper: logarithms of what a step around usually takes, and of what one in five
    exceeds. sigma: scatter of logarithms. rounding: relative. offset: added to every index.
    """
    least = MIN_STALL if len(times) >= FEW else MIN_STALL_FEW
    limit = max(least, STALL_SIGMAS * sigma, STALL_ROUNDINGS * rounding)
    away = np.log(times) > np.maximum(usual, upper) + limit
    edges = np.flatnonzero(np.diff(np.concatenate([[False], away, [False]]).astype(np.int8)))
    lost = times - np.exp(usual)
    saved = np.where(np.log(times) < usual - GIVEN_BACK_SIGMAS * sigma, -lost, 0.0)
    found = []
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        whole = float(lost[start:end].sum())
        back = float(saved[max(0, start - GIVEN_BACK_BEFORE) : end + GIVEN_BACK_AFTER].sum())
        longest = start + int(np.argmax(times[start:end]))
        if np.log1p((whole - back) / np.exp(usual[longest])) > limit:
            found.append(
                Stall(
                    index=longest + offset,
                    num_values=end - start,
                    usual=float(np.exp(usual[longest])),
                    longest=float(times[longest]),
                    lost=whole - back,
                )
            )
    return tuple(found)
