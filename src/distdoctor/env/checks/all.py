"""Every check of a process on its host, in the order in which reports show them. One line a check."""

from __future__ import annotations

from distdoctor.env.checks import (
    allocation,
    cgroup,
    clock,
    container,
    cpu_placement,
    host_tuning,
    launch,
    limits,
    pcie_isolation,
    remove_ipc,
    shm,
)
from distdoctor.env.checks.base import Check

ENV_CHECKS: tuple[Check, ...] = (
    # Software: torch, CUDA, NCCL
    # Variables and launch
    launch.CHECK,
    allocation.LOGIN_NODE,
    allocation.GPUS_GIVEN,
    # GPUs
    # Network
    # Host and container
    shm.CHECK,
    limits.MEMLOCK,
    limits.NOFILE,
    limits.STACK,
    cgroup.MEMORY,
    cgroup.CPU,
    cpu_placement.AFFINITY,
    cpu_placement.NUMA_KNOWN,
    pcie_isolation.ACS,
    pcie_isolation.IOMMU,
    host_tuning.NUMA_BALANCING,
    host_tuning.GOVERNOR,
    host_tuning.HUGE_PAGES,
    host_tuning.SWAP,
    clock.CHECK,
    remove_ipc.CHECK,
    container.CHECK,
)
