"""Every check of `oom explain`: whose it is comes first, then what of the job's own memory."""

from __future__ import annotations

from distdoctor.oom.checks.explain import (
    capacity,
    corrupt_size,
    driver_limit,
    fragmentation,
    growth,
    host_memory,
    host_pinned,
    host_shm,
    nccl_buffers,
    optimizer_step,
    other_process,
    outside_pool,
    process_cap,
    ranks,
    request_too_large,
    sharding,
    workspace,
    wrong_capacity,
)
from distdoctor.oom.checks.explain.base import ExplainCheck

EXPLAIN_CHECKS: tuple[ExplainCheck, ...] = (
    corrupt_size.CHECK,
    host_memory.CHECK,
    host_pinned.CHECK,
    host_shm.CHECK,
    process_cap.CHECK,
    wrong_capacity.CHECK,
    driver_limit.CHECK,
    other_process.CHECK,
    outside_pool.CHECK,
    request_too_large.CHECK,
    growth.CHECK,
    fragmentation.CHECK,
    nccl_buffers.CHECK,
    workspace.CHECK,
    optimizer_step.CHECK,
    sharding.CHECK,
    capacity.CHECK,
    ranks.CHECK,
)
