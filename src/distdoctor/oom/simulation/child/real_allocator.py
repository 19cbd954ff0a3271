"""What torch's own CPU allocator counted while a program ran, without any tracker: the judge of simulations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distdoctor.torch_private.memory import cpu_allocations


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorPeaks:
    """The most bytes that were allocated at once, beyond what was there before."""

    num_bytes: int
    outside_kernels_bytes: int
    """Without what single kernels took and gave back before they ended, which nobody outside can see, and which
    kernels of another device may not need."""
    kernels: tuple[str, ...]
    """Ops whose kernels had such bytes at the peak."""


def allocator_peaks(run: Callable[[], None]) -> AllocatorPeaks | None:
    """The peaks while `run` ran; None where this torch's profiler does not tell."""
    found = cpu_allocations(run)
    if not found:
        return None
    before = found[0].total - found[0].size
    peak = outside_peak = outside = before
    inside: dict[str, int] = {}
    kernels: tuple[str, ...] = ()
    for each in found:
        if each.inside:
            inside[each.inside] = inside.get(each.inside, 0) + each.size
        else:
            outside += each.size
        outside_peak = max(outside_peak, outside)
        if each.total > peak:
            peak = each.total
            kernels = tuple(name for name, size in inside.items() if size)
    return AllocatorPeaks(
        num_bytes=peak - before, outside_kernels_bytes=outside_peak - before, kernels=kernels
    )
