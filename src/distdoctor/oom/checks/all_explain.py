"""Every check of `oom explain`: whose it is comes first, then what of the job's own memory."""

from __future__ import annotations

from distdoctor.oom.checks import (
    explain_capacity,
    explain_corrupt_size,
    explain_driver_limit,
    explain_fragmentation,
    explain_host_memory,
    explain_host_pinned,
    explain_host_shm,
    explain_nccl_buffers,
    explain_optimizer_step,
    explain_other_process,
    explain_outside_pool,
    explain_process_cap,
    explain_ranks,
    explain_request_too_large,
    explain_sharding,
    explain_workspace,
    explain_wrong_capacity,
)
from distdoctor.oom.checks.explain_base import ExplainCheck

EXPLAIN_CHECKS: tuple[ExplainCheck, ...] = (
    explain_corrupt_size.CHECK,
    explain_host_memory.CHECK,
    explain_host_pinned.CHECK,
    explain_host_shm.CHECK,
    explain_process_cap.CHECK,
    explain_wrong_capacity.CHECK,
    explain_driver_limit.CHECK,
    explain_other_process.CHECK,
    explain_outside_pool.CHECK,
    explain_request_too_large.CHECK,
    explain_fragmentation.CHECK,
    explain_nccl_buffers.CHECK,
    explain_workspace.CHECK,
    explain_optimizer_step.CHECK,
    explain_sharding.CHECK,
    explain_capacity.CHECK,
    explain_ranks.CHECK,
)
