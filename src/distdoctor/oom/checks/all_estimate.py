"""Every check of an estimate."""

from __future__ import annotations

from distdoctor.oom.checks import (
    estimate_fit,
    estimate_host,
    estimate_init,
    estimate_logits,
    estimate_measured,
)
from distdoctor.oom.checks.estimate_base import EstimateCheck

ESTIMATE_CHECKS: tuple[EstimateCheck, ...] = (
    estimate_fit.CHECK,
    estimate_measured.CHECK,
    estimate_init.CHECK,
    estimate_logits.CHECK,
    estimate_host.CHECK,
)
