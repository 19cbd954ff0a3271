"""Which facts matter when they differ between the hosts or ranks of one job, and what the job then does.

Patterns are tried in order; the first that matches decides. Facts that no pattern names do not count:
temperatures, free memory, addresses and identities differ by nature.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from distdoctor.report.differences import Relevance
from distdoctor.report.model import Scalar, Severity

_RULES: tuple[tuple[str, int, Severity, str, str], ...] = (
    # Not differences of the set-up: identities, what the scheduler hands out, what changes by the minute.
    (r"scheduler\.(world_size|num_nodes|master_addr|master_port|job_id|launcher|restart_count)$", 95,
     Severity.CRITICAL, "ranks", "ranks that disagree about the job wait for each other for ever"),
    (r"scheduler\.", 0, Severity.INFO, "ranks", ""),
    # Versions
    (r"torch(_probe)?\.(version|torch_version)$", 100, Severity.CRITICAL, "versions",
     "ranks with different PyTorch versions can disagree about collectives: hangs, wrong sizes or a crash"),
    (r"torch\.found$", 100, Severity.CRITICAL, "versions", "a rank without PyTorch cannot join the job"),
    (r"torch_probe\.state$", 98, Severity.CRITICAL, "versions",
     "a rank that cannot import PyTorch never joins, and the others wait for it"),
    (r"nccl\.(loaded|predicted)_version$", 97, Severity.CRITICAL, "versions",
     "NCCL versions must be equal on all ranks: initialisation fails or hangs"),
    (r"torch\.(cuda_build|hip_build|is_cpu_build)$", 92, Severity.CRITICAL, "versions",
     "ranks built for different CUDA versions carry different NCCL builds"),
    (r"torch\.git_version$", 70, Severity.WARNING, "versions", "the same version number, but another build"),
    (r"python\.version$", 60, Severity.WARNING, "versions",
     "another Python means another environment; libraries will differ as well"),
    (r"python\.distributions\.nvidia-nccl-cu\d+$", 93, Severity.CRITICAL, "versions",
     "torch loads the NCCL of this package, and NCCL versions must be equal on all ranks: initialisation fails or hangs"),
    # torch.version tells it.
    (r"python\.distributions\.torch$", 0, Severity.INFO, "versions", ""),
    (r"python\.distributions\.(numpy|nvidia-ml-py|psutil|mypy.*|optree|onnx.*|flake8.*)$", 20, Severity.INFO, "versions",
     "seldom matters by itself"),
    (r"python\.distributions\.", 40, Severity.WARNING, "versions", "library versions differ"),
    (r"gpus\.(driver_version|kernel_module_version)$", 65, Severity.WARNING, "versions",
     "works in most cases; features and bugs differ by driver, and CUDA support may"),
    (r"gpus\.(cuda_driver_version|kernel_module_open)$", 50, Severity.WARNING, "versions",
     "the newest CUDA that the driver can run differs"),
    (r"gpus\.(fabric_manager(_version)?|libcuda_version)$", 55, Severity.WARNING, "versions",
     "fabric manager and driver must be of one version"),
    (r"network\.rdma_ports\.[^.]+\.firmware$", 30, Severity.INFO, "versions", "NIC firmware differs"),
    (r"host\.(kernel|os_name)$", 20, Severity.INFO, "versions", "seldom matters by itself"),
    # Variables
    (r"variables\.environment\.(NCCL_ALGO|NCCL_PROTO)$", 94, Severity.CRITICAL, "variables",
     "ranks must agree on algorithm and protocol: initialisation fails or a collective hangs"),
    (r"variables\.environment\.NCCL_(DEBUG|DEBUG_FILE|DEBUG_SUBSYS|VERSION|TOPO_DUMP_FILE|GRAPH_DUMP_FILE)$", 15,
     Severity.INFO, "variables", "affects what is logged only"),
    (r"variables\.environment\.NCCL_(SOCKET_IFNAME|IB_HCA|IB_GID_INDEX|IB_DISABLE|NET|NET_PLUGIN|CROSS_NIC|"
     r"IB_TC|IB_SL|IB_PKEY|IB_ADDR_FAMILY|SOCKET_FAMILY)$", 88, Severity.WARNING, "variables",
     "ranks may choose networks that cannot reach each other, or run at different speeds"),
    (r"variables\.environment\.NCCL_", 85, Severity.WARNING, "variables",
     "NCCL expects equal settings on all ranks; a difference can hang or slow the job"),
    (r"variables\.environment\.TORCH_(NCCL|FR|DISTRIBUTED)_", 55, Severity.WARNING, "variables",
     "error handling and timeouts differ between ranks"),
    (r"variables\.environment\.(PYTORCH_.*ALLOC_CONF)$", 45, Severity.WARNING, "variables",
     "memory use differs between ranks"),
    (r"variables\.environment\.(GLOO_SOCKET_IFNAME)$", 60, Severity.WARNING, "variables",
     "Gloo may choose addresses that the others cannot reach"),
    (r"variables\.environment\.(OMP_NUM_THREADS|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|CUDA_MODULE_LOADING)$",
     40, Severity.WARNING, "variables", "speed differs between ranks"),
    (r"variables\.environment\.(LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|CONDA_PREFIX|VIRTUAL_ENV)$", 50,
     Severity.WARNING, "variables", "ranks may load different libraries"),
    (r"variables\.", 0, Severity.INFO, "variables", ""),
    # Hardware
    (r"gpus\.(num_pci_gpus|num_device_nodes|num_devices)$", 82, Severity.CRITICAL, "hardware",
     "a host with fewer GPUs cannot hold its share of the ranks"),
    (r"gpus\.devices\.\d+\.name$", 75, Severity.WARNING, "hardware",
     "the slowest model sets the pace of all, and the smallest memory the limit"),
    (r"gpus\.devices\.\d+\.memory_total_bytes$", 60, Severity.WARNING, "hardware",
     "the smallest memory sets the limit for all"),
    (r"gpus\.devices\.\d+\.(power_limit_w|application_clock_mhz|sm_clock_max_mhz)$", 62, Severity.WARNING,
     "hardware", "the slowest GPU sets the pace of all"),
    (r"gpus\.devices\.\d+\.(mig_mode|ecc_mode|compute_mode|persistence_mode|pcie_width|pcie_gen_max)$", 58,
     Severity.WARNING, "hardware", "GPUs are set up differently"),
    (r"gpus\.devices\.\d+\.(vbios)$", 18, Severity.INFO, "hardware", "GPU firmware differs"),
    (r"network\.rdma_ports\.[^.]+\.(state|rate_gbit|link_layer|openable)$", 78, Severity.WARNING, "hardware",
     "a host with fewer or slower ports slows the job or cannot be reached"),
    (r"network\.num_active_rdma_ports$", 80, Severity.WARNING, "hardware",
     "a host with fewer ports slows the job or cannot be reached"),
    # What containers and bridges add differs by nature.
    (r"network\.interfaces\.(lo|docker|veth|cali|cni|br-|virbr|vnet|tap|flannel|cilium|lxc|tunl|ifb|dummy|vxlan)", 0,
     Severity.INFO, "hardware", ""),
    (r"network\.interfaces\.[^.]+\.mtu$", 35, Severity.WARNING, "hardware",
     "unequal MTU stalls large transfers on some networks"),
    (r"network\.(peermem_module|peermem_registered|dmabuf_possible)$", 56, Severity.WARNING, "hardware",
     "a host without GPUDirect RDMA moves data through host memory"),
    (r"host\.(cpu_model|architecture|num_cpus|num_sockets)$", 38, Severity.WARNING, "hardware",
     "hosts are of different kinds; NCCL before 2.22.3 could hang on different CPU types"),
    (r"host\.memory_total_bytes$", 10, Severity.INFO, "hardware", "a few MiB are normal between equal hosts"),
    # Settings
    (r"process\.(memlock_bytes|nofile|stack_bytes|shm_total_bytes)$", 48, Severity.WARNING, "settings",
     "limits differ: what works on one host fails on the other"),
    (r"process\.(cgroup_memory_max_bytes|cgroup_cpu_quota_cpus)$", 46, Severity.WARNING, "settings",
     "containers have different limits"),
    (r"host\.(iommu_groups|transparent_hugepage|numa_balancing|clock_source|virtualisation)", 25,
     Severity.INFO, "settings", "hosts are set up differently"),
    (r"host\.kernel_modules$", 22, Severity.INFO, "settings", "hosts are set up differently"),
    (r"container\.(kind|image)$", 44, Severity.WARNING, "settings", "ranks run in different images"),
)  # fmt: skip

# Two ranks without torch are two broken ranks, also when they are the half of the job.
_RIGHT: dict[str, Scalar] = {r"torch\.found$": True, r"torch_probe\.state$": "ok"}

_COMPILED = tuple(
    (
        re.compile(pattern),
        Relevance(
            weight=weight,
            severity=severity,
            topic=topic,
            consequence=consequence,
            absence_counts=pattern.startswith(("variables", "python")),
            right=_RIGHT.get(pattern),
        ),
    )
    for pattern, weight, severity, topic, consequence in _RULES
)


# What people say instead of a key. A variable is called by its own name, everything else by its key.
_LABELS = {
    "torch.found": "PyTorch installed",
    "torch.version": "PyTorch version",
    "torch.cuda_build": "CUDA that PyTorch was built for",
    "torch_probe.torch_version": "imported PyTorch version",
    "torch_probe.state": "import of PyTorch",
    "nccl.loaded_version": "loaded NCCL version",
    "nccl.predicted_version": "NCCL version",
    "python.version": "Python version",
    "gpus.driver_version": "NVIDIA driver",
    "gpus.kernel_module_version": "NVIDIA kernel module",
    "gpus.num_devices": "number of GPUs",
    "gpus.num_pci_gpus": "number of GPUs on the PCI bus",
    "network.num_active_rdma_ports": "number of active RDMA ports",
    "host.cpu_model": "CPU model",
    "process.shm_total_bytes": "size of /dev/shm",
    "process.memlock_bytes": "limit of locked memory",
    "process.nofile": "limit of open files",
    "scheduler.world_size": "WORLD_SIZE",
    "scheduler.master_addr": "MASTER_ADDR",
    "scheduler.master_port": "MASTER_PORT",
}

# The same for keys with a name in them, which stands where `{}` is.
_NAMED_LABELS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), label)
    for pattern, label in (
        (r"python\.distributions\.(.+)$", "version of {}"),
        (r"network\.interfaces\.([^.]+)\.mtu$", "MTU of {}"),
        (r"network\.rdma_ports\.([^.]+)\.state$", "state of RDMA port {}"),
        (r"network\.rdma_ports\.([^.]+)\.rate_gbit$", "rate of RDMA port {}"),
        (r"gpus\.devices\.(\d+)\.name$", "model of GPU {}"),
        (r"gpus\.devices\.(\d+)\.power_limit_w$", "power limit of GPU {}"),
        (r"gpus\.devices\.(\d+)\.memory_total_bytes$", "memory of GPU {}"),
        (r"variables\.environment\.(.+)$", "{}"),
    )
)


def _label(key: str) -> str | None:
    if key in _LABELS:
        return _LABELS[key]
    named = ((pattern.match(key), label) for pattern, label in _NAMED_LABELS)
    return next((label.format(match[1]) for match, label in named if match is not None), None)


@lru_cache(maxsize=65536)
def env_relevance(key: str) -> Relevance | None:
    """How much a difference in fact `key` matters; None for facts that differ by nature."""
    found = next((relevance for pattern, relevance in _COMPILED if pattern.match(key)), None)
    if found is None:
        return None
    return replace(found, label=_label(key))
