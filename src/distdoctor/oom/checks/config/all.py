"""Every check of launch configurations: first what stops a job, then what costs, then what to know."""

from __future__ import annotations

from distdoctor.oom.checks.config import (
    address,
    batch,
    conflict,
    host_memory,
    ineffective,
    names,
    precision,
    slow,
    states,
    unset,
    world,
)
from distdoctor.oom.checks.config.base import ConfigCheck

CONFIG_CHECKS: tuple[ConfigCheck, ...] = (
    world.CHECK,
    batch.CHECK,
    address.CHECK,
    conflict.CHECK,
    unset.CHECK,
    names.CHECK,
    precision.CHECK,
    host_memory.CHECK,
    ineffective.CHECK,
    slow.CHECK,
    states.CHECK,
)
