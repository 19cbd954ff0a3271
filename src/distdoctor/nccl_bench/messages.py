"""What a rank tells at its end, through the store."""

from __future__ import annotations

import msgspec


class Farewell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How undisturbed a rank measured; differences over its run."""

    rank: int
    seconds: float
    involuntary_switches: int
    communicators_s: float = 0.0
    first_collective_s: float = 0.0
    load_1min: float | None = None
    num_cpus: int | None = None
    cpu_pressure_pct: float | None = None
    """Share of the run in which some task of the host waited for a CPU (PSI)."""
