"""Every check of a simulation."""

from __future__ import annotations

from distdoctor.oom.checks.simulate import estimate, failed, fit, segments, self_check
from distdoctor.oom.checks.simulate.base import SimulationCheck

SIMULATION_CHECKS: tuple[SimulationCheck, ...] = (
    fit.CHECK,
    failed.CHECK,
    self_check.CHECK,
    segments.CHECK,
    estimate.CHECK,
)
