"""Every check of timing, in the order of reports: who is slow, then what else slows the job, then the evidence."""

from __future__ import annotations

from distdoctor.straggler.checks import (
    claims,
    data_bound,
    data_imbalance,
    evidence_notes,
    extremes,
    intermittent,
    rank0_work,
    slow_host,
    slow_link,
    slow_rank,
    stage_imbalance,
)
from distdoctor.straggler.checks.base import StragglerCheck
from distdoctor.straggler.checks.series import over_time
from distdoctor.straggler.checks.telemetry import unlike_gpus

STRAGGLER_CHECKS: tuple[StragglerCheck, ...] = (
    slow_rank.CHECK,
    slow_host.CHECK,
    intermittent.CHECK,
    rank0_work.CHECK,
    slow_link.CHECK,
    stage_imbalance.CHECK,
    data_imbalance.CHECK,
    data_bound.CHECK,
    extremes.CHECK,
    over_time.REGIME,
    over_time.STALL,
    over_time.PERIODIC,
    unlike_gpus.CHECK,
    claims.CHECK,
    evidence_notes.CHECK,
)
