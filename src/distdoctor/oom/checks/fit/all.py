"""Every check of `oom fit`."""

from __future__ import annotations

from distdoctor.oom.checks.fit import card, floor, limit, measured, proposals, simulated
from distdoctor.oom.checks.fit.base import FitCheck

FIT_CHECKS: tuple[FitCheck, ...] = (
    card.CHECK,
    proposals.CHECK,
    floor.CHECK,
    limit.CHECK,
    measured.CHECK,
    simulated.CHECK,
)
