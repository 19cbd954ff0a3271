"""Every check of an estimate."""

from __future__ import annotations

from distdoctor.oom.checks.estimate import fit, host, init, logits, measured
from distdoctor.oom.checks.estimate.base import EstimateCheck

ESTIMATE_CHECKS: tuple[EstimateCheck, ...] = (
    fit.CHECK,
    measured.CHECK,
    init.CHECK,
    logits.CHECK,
    host.CHECK,
)
