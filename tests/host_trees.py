"""Trees of /proc and /sys as real machines show them, written for the tests of host, process and container facts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fake_world import FakeWorld

FIRST_NAMESPACES = {
    "/proc/self/ns/pid": "-> pid:[4026531836]",
    "/proc/self/ns/user": "-> user:[4026531837]",
}

OWN_PID_NAMESPACE = {
    "/proc/self/ns/pid": "-> pid:[4026532768]",
    "/proc/self/ns/user": "-> user:[4026531837]",
}


@dataclass(frozen=True, kw_only=True)
class HalfReadableWorld(FakeWorld):
    """A tree in which reading some files fails: path → errno."""

    broken: Mapping[str, int] = field(default_factory=dict)

    def read_bytes(self, path: str) -> bytes:
        if path in self.broken:
            raise OSError(self.broken[path], os.strerror(self.broken[path]), path)
        return super().read_bytes(path)


def limits(memlock: str = "unlimited", nofile: str = "1048576", stack: str = "8388608") -> str:
    """Text of /proc/PID/limits with its fixed columns."""
    rows = (
        ("Max cpu time", "unlimited", "unlimited", "seconds"),
        ("Max stack size", stack, "unlimited", "bytes"),
        ("Max processes", "8254873", "8254873", "processes"),
        ("Max open files", nofile, "1048576", "files"),
        ("Max locked memory", memlock, memlock, "bytes"),
        ("Max realtime timeout", "unlimited", "unlimited", "us"),
    )
    head = f"{'Limit':<26}{'Soft Limit':<21}{'Hard Limit':<21}Units\n"
    return head + "".join(f"{name:<26}{soft:<21}{hard:<21}{unit}\n" for name, soft, hard, unit in rows)


def status(cpus: str = "0-3", uid: int = 0, capabilities: str = "000001ffffffffff", parent: int = 1) -> str:
    """Text of /proc/PID/status, as far as it is read."""
    return (
        f"Name:\tpython3\nUmask:\t0022\nPid:\t4242\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        f"CapEff:\t{capabilities}\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n"
    )


def x86_cpuinfo(num_cpus: int, per_socket: int, *, hypervisor: bool = False) -> str:
    """Blocks of /proc/cpuinfo on x86."""
    flags = "fpu vme tsc msr apic sse sse2 avx2" + (" hypervisor" if hypervisor else "")
    return "\n".join(
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\n"
        f"physical id\t: {cpu // per_socket}\ncpu cores\t: {per_socket}\nflags\t\t: {flags}\n"
        for cpu in range(num_cpus)
    )


ARM_CPUINFO = "\n".join(
    f"processor\t: {cpu}\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve sve2\nCPU implementer\t: 0x41\n"
    "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n"
    for cpu in range(4)
)


def meminfo(total_kb: int, available_kb: int, swap_kb: int = 0, swap_free_kb: int = 0) -> str:
    """Text of /proc/meminfo, as far as it is read."""
    return (
        f"MemTotal:       {total_kb} kB\nMemFree:        {available_kb // 2} kB\n"
        f"MemAvailable:   {available_kb} kB\nSwapTotal:      {swap_kb} kB\nSwapFree:       {swap_free_kb} kB\n"
        "HugePages_Total:       0\n"
    )


def bare_metal() -> dict[str, str]:
    """An Ubuntu server with two sockets of two CPUs and two GPUs, each below its own PCIe switch."""
    files = {
        **FIRST_NAMESPACES,
        "/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\nID=ubuntu\n',
        "/proc/sys/kernel/osrelease": "5.15.0-105-generic\n",
        "/proc/sys/kernel/arch": "x86_64\n",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 ro intel_iommu=on\n",
        "/proc/version": "Linux version 5.15.0-105-generic (buildd@lcy02) (gcc 11.4.0) #115-Ubuntu SMP\n",
        "/proc/stat": "cpu  1 2 3\nbtime 1760000000\nprocesses 5\n",
        "/proc/uptime": "86400.50 300000.10\n",
        "/proc/loadavg": "3.25 2.10 1.05 4/2000 77\n",
        "/proc/cpuinfo": x86_cpuinfo(4, 2),
        "/proc/meminfo": meminfo(2_113_000_000, 2_000_000_000),
        "/proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 9 nvidia_uvm, Live 0x0\nmlx5_core 1 0 - Live 0x0\nxfs 1 0 - Live 0x0\n",
        "/proc/sys/kernel/numa_balancing": "1\n",
        "/proc/sys/fs/file-max": "9223372036854775807\n",
        "/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "/sys/class/dmi/id/sys_vendor": "Supermicro\n",
        "/sys/class/dmi/id/product_name": "SYS-821GE-TNHR\n",
        "/sys/devices/system/cpu/online": "0-3\n",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
        "/etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=no\n#RemoveIPC=yes\n",
        "/proc/self/limits": limits(),
        "/proc/self/status": status(),
        "/proc/self/cmdline": "python3\0train.py\0--lr\x001e-4\0",
        "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
        "/proc/self/mountinfo": "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
        "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids\n",
        "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/memory.current": "1000000\n",
    }
    for level in ("user.slice", "user.slice/user-1000.slice", "user.slice/user-1000.slice/session-3.scope"):
        folder = f"/sys/fs/cgroup/{level}"
        files[f"{folder}/cgroup.events"] = "populated 1\nfrozen 0\n"
        files[f"{folder}/memory.max"] = "max\n"
        files[f"{folder}/memory.events"] = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n"
    for cpu in range(4):
        files[f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = f"{cpu // 2}\n"
        files[f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"] = "powersave\n"
    for node in range(2):
        folder = f"/sys/devices/system/node/node{node}"
        files[f"{folder}/cpulist"] = f"{2 * node}-{2 * node + 1}\n"
        files[f"{folder}/meminfo"] = (
            f"Node {node} MemTotal:       1056500000 kB\nNode {node} MemFree:        1000 kB\n"
        )
    files |= pci_device("0000:01:00.0", "pci0000:00/0000:00:01.0", vendor="0x10de", kind="0x030200", node=0)
    files |= pci_device("0000:81:00.0", "pci0000:80/0000:80:01.0", vendor="0x10de", kind="0x030200", node=1)
    files |= pci_device("0000:00:01.0", "pci0000:00", vendor="0x8086", kind="0x060400", node=0)
    files |= pci_device("0000:80:01.0", "pci0000:80", vendor="0x8086", kind="0x060400", node=1)
    files |= pci_device("0000:00:1f.0", "pci0000:00", vendor="0x8086", kind="0x060100", node=0)
    for group, kind in (("7", "DMA"), ("8", "DMA"), ("9", "identity")):
        files[f"/sys/kernel/iommu_groups/{group}/type"] = f"{kind}\n"
    return files


def pci_device(address: str, parent: str, *, vendor: str, kind: str, node: int = -1) -> dict[str, str]:
    """A device below /sys/devices and the link to it below /sys/bus/pci/devices."""
    folder = f"/sys/devices/{parent}/{address}"
    return {
        f"{folder}/vendor": f"{vendor}\n",
        f"{folder}/class": f"{kind}\n",
        f"{folder}/numa_node": f"{node}\n",
        f"/sys/bus/pci/devices/{address}": f"-> ../../../devices/{parent}/{address}",
    }


def docker_v2(memory_max: str = "68719476736", cpu_max: str = "800000 100000") -> dict[str, str]:
    """A Docker container with a cgroup namespace of its own on cgroup version 2."""
    return {
        **OWN_PID_NAMESPACE,
        "/.dockerenv": "",
        "/proc/self/limits": limits(memlock="65536", nofile="1024"),
        "/proc/self/status": status(capabilities="00000000a80425fb"),
        "/proc/self/cmdline": "bash\0",
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": (
            "700 600 0:80 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/AB\n"
            "701 700 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec - cgroup2 cgroup rw,nsdelegate\n"
        ),
        "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
        "/sys/fs/cgroup/cgroup.events": "populated 1\nfrozen 0\n",
        "/sys/fs/cgroup/memory.max": f"{memory_max}\n",
        "/sys/fs/cgroup/memory.current": "60000000000\n",
        "/sys/fs/cgroup/memory.stat": "anon 40000000000\nfile 19000000000\nshmem 5000000000\ninactive_file 9000000000\nactive_file 5000000000\nslab_reclaimable 500000000\n",
        "/sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n",
        "/sys/fs/cgroup/cpu.max": f"{cpu_max}\n",
        "/sys/fs/cgroup/cpu.stat": "usage_usec 5\nuser_usec 4\nsystem_usec 1\nnr_periods 20000\nnr_throttled 5000\nthrottled_usec 77\n",
    }


def kubernetes_v1(limit: str = "34359738368") -> dict[str, str]:
    """A pod with limits on cgroup version 1: the mounts show the container's own cgroup as their top."""
    pod = "/kubepods/burstable/pod1f2e/0123456789ab"
    return {
        **OWN_PID_NAMESPACE,
        "/var/run/secrets/kubernetes.io/serviceaccount/namespace": "training\n",
        "/proc/self/limits": limits(),
        "/proc/self/status": status(),
        "/proc/self/cmdline": "python\0train.py\0",
        "/proc/self/cgroup": f"11:memory:{pod}\n5:cpu,cpuacct:{pod}\n1:name=systemd:{pod}\n",
        "/proc/self/mountinfo": (
            f"900 890 0:30 {pod} /sys/fs/cgroup/cpu,cpuacct ro,relatime - cgroup cgroup rw,cpu,cpuacct\n"
            f"901 890 0:31 {pod} /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n"
        ),
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{limit}\n",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": "10000000000\n",
        "/sys/fs/cgroup/memory/memory.stat": (
            "cache 5\ninactive_file 1\nactive_file 1\nhierarchical_memory_limit 34359738368\n"
            "total_cache 9000000\ntotal_inactive_file 3000000\ntotal_active_file 2000000\n"
        ),
        "/sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 10\nnr_throttled 9\nthrottled_time 88\n",
    }


def slurm_step() -> dict[str, str]:
    """A task of srun on a host with cgroup version 2: the job's limit stands two levels above the task."""
    job = "/system.slice/slurmstepd.scope/job_77"
    folders = [f"{job}{below}" for below in ("", "/step_0", "/step_0/user", "/step_0/user/task_1")]
    files = {
        **FIRST_NAMESPACES,
        "/proc/self/limits": limits(memlock="8388608"),
        "/proc/self/status": status(cpus="0-1", uid=1000, capabilities="0000000000000000", parent=900),
        "/proc/900/status": status(cpus="0-3"),
        "/proc/self/cmdline": "python\0train.py\0",
        "/proc/self/cgroup": f"0::{folders[-1]}\n",
        "/proc/self/mountinfo": "25 1 0:22 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
        "/etc/slurm/slurm.conf": "ClusterName=one\n",
    }
    for level, folder in enumerate(folders):
        files[f"/sys/fs/cgroup{folder}/cgroup.events"] = "populated 1\n"
        files[f"/sys/fs/cgroup{folder}/memory.max"] = "100000000000\n" if level == 0 else "max\n"
        files[f"/sys/fs/cgroup{folder}/memory.current"] = f"{(4 - level) * 1000}\n"
        files[f"/sys/fs/cgroup{folder}/memory.stat"] = "active_file 1\ninactive_file 2\nslab_reclaimable 3\n"
        files[f"/sys/fs/cgroup{folder}/memory.events"] = f"oom 0\noom_kill {2 if level == 0 else 0}\n"
    return files


SLURM_ENVIRON = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_NAME": "llama",
    "SLURM_JOB_PARTITION": "h100",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "16",
    "SLURM_NNODES": "2",
    "SLURM_GTIDS": "8,9,10,11,12,13,14,15",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
    "SLURM_JOB_NODELIST": "gpu[01-02]",
    "SLURM_GPUS_ON_NODE": "8",
    "SLURM_CPUS_ON_NODE": "96",
}


def plain_file(root: Path, path: str, data: bytes) -> None:
    """Write a binary file (PCI configuration space) into a tree."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
