"""Which GPUs, links and cloud a log or a run is about, as far as they tell. None: not known."""

from __future__ import annotations

import re

from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import NcclLog

_DATACENTRE = re.compile(
    r"\b(?:[ABHLPTV]\d{1,3}[A-Z]{0,2}|GB?[BH]?[23]00|GH200|B[123]00|MI\d{2,3}[A-Z]?)\b", re.IGNORECASE
)
_WORKSTATION = re.compile(r"GeForce|RTX|TITAN|Quadro|GTX|Radeon|\bRX \d|GB10\b", re.IGNORECASE)
# H100, H200, H800, H20, GH200, B100, B200, B300, GB200, GB300 on SXM or HGX boards: NVSwitches with multicast.
_MULTICAST = re.compile(r"\b(?:H100|H200|H800|H20|B100|B200|B300|GB200|GB300)\b", re.IGNORECASE)
_NO_SWITCH = re.compile(r"PCIe|\bNVL\b|\bNVL2?\b", re.IGNORECASE)
_NVLINK_BOARD = re.compile(
    r"SXM|HGX|\b(?:B100|B200|B300|GB200|GB300|H100 80GB HBM3|H200|H800|H20|MI\d{3}[A-Z]?)\b", re.IGNORECASE
)
_SHARED_MEMORY_GPU = re.compile(r"\bGB10\b|Thor|Orin", re.IGNORECASE)

_FABRIC_INTERFACE = re.compile(r"^(?:ib\d|ib[ps]\d|hsn\d|opa\d|hfi\d)")

# Machine types of EC2, as aws-ofi-nccl names them ("Running on p5.48xlarge platform").
_EC2 = (
    (re.compile(r"^p4d", re.IGNORECASE), "A100-SXM4-40GB"),
    (re.compile(r"^p5\.|^p5$", re.IGNORECASE), "H100 80GB HBM3"),
    (re.compile(r"^p5e", re.IGNORECASE), "H200"),
    (re.compile(r"^p6e", re.IGNORECASE), "GB200"),
    (re.compile(r"^p6", re.IGNORECASE), "B200"),
    (re.compile(r"^p3", re.IGNORECASE), "V100-SXM2"),
    (re.compile(r"^g4", re.IGNORECASE), "T4"),
    (re.compile(r"^g5", re.IGNORECASE), "A10G"),
    (re.compile(r"^g6", re.IGNORECASE), "L4"),
)

# GPUs of EC2 machines (g4dn, g5, g6, p3dn) whose EFA does not reach GPU memory.
_EFA_WITHOUT_GPUDIRECT = re.compile(r"\b(?:T4|A10G?|L4|V100)\b", re.IGNORECASE)

# From a GPU to its NVSwitches, GB/s as NCCL models it: 18 links of 20 or 20.6 (H100), 8 of 20.6 (H800), 18 of 40.1
# (B200). A100 has 12 of 20, V100 6 of 20 (NVIDIA/nccl src/graph/topo.h).
_HOPPER_SWITCH_GBPS = 300.0
_H800_SWITCH_GBPS = 164.8

# What NCCL's topology gives PCIe 3, 4, 5 and 6 with 8 or 16 lanes, GB/s.
_PCIE_ONLY_GBPS = frozenset({3.0, 6.0, 12.0, 24.0, 48.0, 96.0})


def gpu_models(facts: BenchFacts) -> tuple[str, ...]:
    """Distinct GPU models: of the run, of the log's tables, of the cloud's machine type."""
    models: dict[str, None] = {}
    for hardware in facts.hardware:
        models.update(dict.fromkeys(hardware.gpu_models or ()))
    models.update({place.gpu_model: None for place in facts.places if place.gpu_model})
    log = facts.nccl_log
    if log is not None:
        models.update(dict.fromkeys(log.gpu_models))
        if not models and log.platform:
            models.update({model: None for pattern, model in _EC2 if pattern.search(log.platform)})
    return tuple(models)


def is_datacentre(facts: BenchFacts) -> bool | None:
    """Any GPU that is sold for servers; False when all are for desks; None when no model is known."""
    models = gpu_models(facts)
    if any(_DATACENTRE.search(model) and not _WORKSTATION.search(model) for model in models):
        return True
    if models and all(_WORKSTATION.search(model) for model in models):
        return False
    log = facts.nccl_log
    return True if log is not None and log.nvlink_to_switch_gbps else None


def has_nvlink(facts: BenchFacts) -> bool | None:
    """The GPUs of a host are joined by NVLink (or AMD's Infinity Fabric): measured, in the topology, or by model."""
    counted = [each.nvlinks_per_gpu for each in facts.hardware if each.nvlinks_per_gpu is not None]
    if counted:
        return max(counted) > 0
    if any(each.has_nvswitch for each in facts.hardware):
        return True
    log = facts.nccl_log
    if log is not None:
        if log.nvlink_gbps:
            return True
        if log.nvls_set_up or (log.nvls_channels or 0) > 0:
            return True
        if log.system_gbps in _PCIE_ONLY_GBPS:
            return False
    models = gpu_models(facts)
    if any(_NVLINK_BOARD.search(model) and not re.search("PCIe", model, re.IGNORECASE) for model in models):
        return True
    no_bridge = re.compile(r"\b(?:L4|L40S?|T4|A10G?|A2|A16)\b|GeForce RTX [45]0", re.IGNORECASE)
    return False if models and all(no_bridge.search(model) for model in models) else None


def expects_nvls(facts: BenchFacts) -> bool | None:
    """GPUs and switches that reduce in the NVSwitch (Hopper and newer); None when that is not known."""
    known = [each.nvls_supported for each in facts.hardware if each.nvls_supported is not None]
    if known:
        return any(known)
    log = facts.nccl_log
    if log is not None:
        to_switch = log.nvlink_to_switch_gbps
        if to_switch is not None:
            is_h800 = abs(to_switch - _H800_SWITCH_GBPS) < 0.1
            return to_switch >= _HOPPER_SWITCH_GBPS or is_h800
        if log.system_gbps in _PCIE_ONLY_GBPS and not log.nvlink_gbps:
            return False
    models = gpu_models(facts)
    if not models:
        return None
    able = [bool(_MULTICAST.search(model)) and not _NO_SWITCH.search(model) for model in models]
    if any(each.has_nvswitch is False for each in facts.hardware):
        return False
    return any(able)


def lacks_gpudirect_by_design(facts: BenchFacts) -> str | None:
    """Why these GPUs never have GPUDirect RDMA, or None."""
    models = gpu_models(facts)
    if models and all(_SHARED_MEMORY_GPU.search(model) for model in models):
        return f"{models[0]} has no memory of its own: GPU and NIC use the host's"
    if models and all(re.search(r"GeForce|TITAN", model, re.IGNORECASE) for model in models):
        return f"NVIDIA does not support GPUDirect RDMA on {models[0]}"
    log = facts.nccl_log
    if log is not None and log.platform and re.match(r"g\d|p3", log.platform, re.IGNORECASE):
        return f"EC2 {log.platform} has EFA without GPUDirect RDMA"
    is_efa = log is not None and (log.provider == "efa" or any("Libfabric" in each for each in log.networks))
    if is_efa and models and all(_EFA_WITHOUT_GPUDIRECT.search(model) for model in models):
        return f"EC2 machines with {models[0]} have EFA without GPUDirect RDMA"
    return None


def cloud_of(log: NcclLog) -> str | None:
    """ "aws", "gcp", "azure" or "slingshot", when names in the log speak for it."""
    names = " ".join(override.name for override in log.overrides)
    values = " ".join(override.value for override in log.overrides)
    networks = " ".join((*log.networks, log.plugin or ""))
    if re.search(r"FasTrak|GPUDirectTCPX|\bgIB\b|FastSocket", networks) or re.search(
        r"NCCL_(?:FASTRAK|GPUDIRECTTCPX)_|/usr/local/gib|nvidia/lib64.*tcpx", f"{names} {values}"
    ):
        return "gcp"
    if any(re.match(r"gke-|a3-|a4-", host) for host in log.hosts):
        return "gcp"
    if log.provider == "efa" or log.platform or "Libfabric" in networks or "aws-ofi" in values:
        return "aws"
    if any(re.fullmatch(r"ip-\d+-\d+-\d+-\d+", host) for host in log.hosts):
        return "aws"
    if re.search(r"/opt/microsoft/|ndv[2456]", values):
        return "azure"
    return "slingshot" if any(nic.name.startswith("hsn") for nic in log.socket_interfaces) else None


def fabric_interfaces(log: NcclLog) -> tuple[str, ...]:
    """Interfaces in NCCL's list for sockets that belong to an RDMA fabric: IPoIB, Slingshot, Omni-Path."""
    return tuple(nic.name for nic in log.socket_interfaces if _FABRIC_INTERFACE.search(nic.name))
