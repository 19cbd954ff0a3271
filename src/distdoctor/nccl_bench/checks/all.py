"""Every check of a benchmark, in the order of reports: data first, then who is gone, then speed."""

from __future__ import annotations

from distdoctor.nccl_bench.checks import (
    below_expected,
    bimodal,
    cliff,
    cut_table,
    latency_floor,
    nccl_log_interfaces,
    nccl_log_nics,
    nccl_log_no_gdr,
    nccl_log_nvls,
    nccl_log_overrides,
    nccl_log_shm,
    nccl_log_socket,
    nccl_log_warn,
    noisy,
    outlier,
    ranks_alone,
    regression,
    wrong_data,
)
from distdoctor.nccl_bench.checks.base import BenchCheck

BENCH_CHECKS: tuple[BenchCheck, ...] = (
    wrong_data.CHECK,
    cut_table.CHECK,
    ranks_alone.CHECK,
    nccl_log_socket.CHECK,
    nccl_log_no_gdr.CHECK,
    nccl_log_shm.CHECK,
    nccl_log_nvls.CHECK,
    nccl_log_nics.CHECK,
    nccl_log_interfaces.CHECK,
    nccl_log_overrides.CHECK,
    nccl_log_warn.CHECK,
    noisy.CHECK,
    below_expected.CHECK,
    latency_floor.CHECK,
    cliff.CHECK,
    bimodal.CHECK,
    regression.CHECK,
    outlier.CHECK,
)
