"""Why is it slow? Known causes, each with what speaks for it, what against it, and the command that decides.

The share of the expected bandwidth that is left is a lead: a cause that halves, a cause that leaves one port of
eight. NCCL's log, the settings of the run and the other collectives then strengthen or exclude it. A hypothesis
is never a verdict; the finding stays what was measured.
"""

from __future__ import annotations

from collections.abc import Callable

from distdoctor.nccl_bench.analysis.hypotheses_host import (
    forced,
    host_memory,
    links_lost,
    nvls_lost,
    old_software,
)
from distdoctor.nccl_bench.analysis.hypotheses_network import few_ports, half, lossy, no_gpudirect, sockets
from distdoctor.nccl_bench.analysis.hypothesis import Hypothesis
from distdoctor.nccl_bench.analysis.shortfall import Shortfall

__all__ = ["Hypothesis", "hypotheses_of"]

MAX_HYPOTHESES = 4

ALL: tuple[Callable[[Shortfall], Hypothesis | None], ...] = (
    sockets,
    no_gpudirect,
    few_ports,
    half,
    lossy,
    nvls_lost,
    host_memory,
    links_lost,
    old_software,
    forced,
)


def hypotheses_of(shortfall: Shortfall) -> tuple[Hypothesis, ...]:
    """At most four causes, the best supported first; empty when nothing fits."""
    found = [each for make in ALL if (each := make(shortfall)) is not None and each.points > 0]
    return tuple(sorted(found, key=lambda each: -each.points)[:MAX_HYPOTHESES])
