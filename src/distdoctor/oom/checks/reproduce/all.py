"""Every check of a reproduction, in the order in which they explain one another."""

from __future__ import annotations

from distdoctor.oom.checks.reproduce import failed, out_of_memory, prediction, rank_lost
from distdoctor.oom.checks.reproduce.base import ReproduceCheck

REPRODUCE_CHECKS: tuple[ReproduceCheck, ...] = (
    out_of_memory.CHECK,
    rank_lost.CHECK,
    failed.CHECK,
    prediction.CHECK,
)
