"""Does an estimate fit a GPU? Yes, no, or only with care: the range decides, not its middle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from distdoctor.oom.catalog.gpus import GpuType
from distdoctor.oom.facts.estimate import Estimate
from distdoctor.units import GIB


class Fits(str, Enum):
    """The answer."""

    YES = "fits"
    TIGHT = "tight"
    """The least that it needs fits, the most does not."""
    NO = "too large"
    UNKNOWN = "cannot tell"
    """What is counted fits, but not everything is: nothing is known of activations, or a part is not covered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How an estimate stands to a GPU."""

    answer: Fits
    need_low: float
    need_high: float
    capacity: float

    @property
    def headroom_low(self) -> float:
        """Bytes left over when it needs most; negative: short by."""
        return self.capacity - self.need_high

    @property
    def headroom_high(self) -> float:
        """Bytes left over when it needs least."""
        return self.capacity - self.need_low


def fit_of(estimate: Estimate, gpu: GpuType) -> Fit:
    """Whether the worst rank's need fits on `gpu`."""
    low, high = estimate.need_bytes
    capacity = float(gpu.total_bytes)
    if low > capacity:
        answer = Fits.NO
    elif not estimate.is_whole or estimate.not_covered:
        answer = Fits.UNKNOWN
    else:
        answer = Fits.YES if high <= capacity else Fits.TIGHT
    return Fit(answer=answer, need_low=low, need_high=high, capacity=capacity)


def left_words(fit: Fit) -> str:
    """`28 or more`: whole GiB that are left at least, rounded down, for it is a promise."""
    return f"{math.floor(fit.headroom_low / GIB)} or more"


def gpu_words(gpu: GpuType) -> str:
    """`h100-80gb`; of a plain size `a GPU of 24.0 GiB`."""
    return f"a GPU of {gpu.total_bytes / GIB:.1f} GiB" if gpu.architecture is None else gpu.name


def need_words(low: float, high: float) -> str:
    """`52 to 66`, in GiB."""
    first, second = _gib(low), _gib(high)
    return first if first == second else f"{first} to {second}"


def _gib(num_bytes: float) -> str:
    value = num_bytes / GIB
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
