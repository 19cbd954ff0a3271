"""Facts about one process: limits, cgroup, CPU affinity, shared memory as it sees them."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.env.facts.base import Section

UNLIMITED = -1
"""In a limit: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts(Section):
    """The job's process, or our own, which stands for it. Limits are soft limits; -1 is unlimited."""

    pid: int | None = None
    command: str | None = None
    is_root: bool | None = None
    memlock_bytes: int | None = None
    memlock_hard_bytes: int | None = None
    nofile: int | None = None
    nofile_hard: int | None = None
    stack_bytes: int | None = None
    """Soft limit of the stack."""
    nproc: int | None = None
    affinity_cpus: tuple[int, ...] | None = None
    parent_affinity_cpus: tuple[int, ...] | None = None
    """Of the parent process: equal to ours when nobody bound this process by itself."""
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    cgroup_version: int | None = None
    cgroup_path: str | None = None
    cgroup_sees_root: bool | None = None
    """True when all ancestors up to the machine's root are visible; False inside most containers."""
    cgroup_memory_max_bytes: int | None = None
    """The tightest limit of the cgroup and its visible ancestors (its source says whose); -1: no limit."""
    cgroup_memory_current_bytes: int | None = None
    """Of the cgroup whose limit counts, as are the two below."""
    cgroup_memory_file_bytes: int | None = None
    """Page cache inside `current`, which the kernel can give back (not /dev/shm, which it cannot)."""
    cgroup_memory_slab_reclaimable_bytes: int | None = None
    """Directory entries and inodes inside `current`, which the kernel can give back (version 2 only)."""
    cgroup_oom_kills: int | None = None
    """Processes of the own cgroup that the OOM killer ended since the cgroup was made."""
    cgroup_limit_oom_kills: int | None = None
    """The same for the ancestor whose limit counts; its other children are counted too (version 2)."""
    cgroup_cpu_quota_cpus: float | None = None
    """CPUs by quota / period; -1: no limit."""
    cgroup_cpu_periods: int | None = None
    cgroup_cpu_throttled_periods: int | None = None
    effective_capabilities: int | None = None
    """CapEff bit mask."""
    mapped_libraries: tuple[str, ...] = ()
    """With --pid: libnccl, libcuda, … of the live process."""
