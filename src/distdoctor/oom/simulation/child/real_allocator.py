"""What torch's own CPU allocator counted while a program ran, without any tracker: the judge of simulations."""

from __future__ import annotations

from collections.abc import Callable

from distdoctor.torch_private import cpu_allocations


def allocator_peak(run: Callable[[], None]) -> int | None:
    """The most bytes that were allocated at once while `run` ran, beyond what was there before; None where this torch's
    profiler does not tell."""
    found = cpu_allocations(run)
    if not found:
        return None
    first_total, first_size = found[0]
    before = first_total - first_size
    return max(total for total, _ in found) - before
