"""Every check of launch configurations: first what stops a job, then what costs, then what to know."""

from __future__ import annotations

from distdoctor.oom.checks import (
    config_address,
    config_batch,
    config_conflict,
    config_host_memory,
    config_ineffective,
    config_names,
    config_precision,
    config_slow,
    config_states,
    config_unset,
    config_world,
)
from distdoctor.oom.checks.config_base import ConfigCheck

CONFIG_CHECKS: tuple[ConfigCheck, ...] = (
    config_world.CHECK,
    config_batch.CHECK,
    config_address.CHECK,
    config_conflict.CHECK,
    config_unset.CHECK,
    config_names.CHECK,
    config_precision.CHECK,
    config_host_memory.CHECK,
    config_ineffective.CHECK,
    config_slow.CHECK,
    config_states.CHECK,
)
