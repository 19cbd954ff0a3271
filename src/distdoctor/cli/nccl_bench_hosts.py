"""What `env` knows of the hosts, handed to the benchmark: their hardware, and what is wrong with their network.

The two rooms do not know one another; the command carries facts from one to the other.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from msgspec.structs import replace

from distdoctor.env.build import Request, env_report
from distdoctor.env.checks.all import ENV_CHECKS
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuFacts
from distdoctor.env.facts.network import NetworkFacts, RdmaPort
from distdoctor.env.members import Member
from distdoctor.nccl_bench.facts.places import HostHardware, Nic
from distdoctor.ranks.places import Place
from distdoctor.report.model import Report

# Checks of `env` that bear on how fast and how reliably ranks talk to one another, by the beginning of their ids.
_NETWORK_CHECKS = (
    "nccl-", "network-", "rdma-", "roce-", "nic-", "gpudirect-", "pcie-", "gpu-nvlink", "gpu-p2p", "gpu-fabric",
    "gpu-imex", "gpu-pcie", "kernel-nic", "kernel-pcie", "kernel-sxid", "shm-", "memlock", "job-network", "job-nccl",
)  # fmt: skip

# Of these, what matters where Gloo runs over the CPUs.
_GLOO_CHECKS = ("network-", "kernel-nic", "kernel-pcie", "job-network")

# Sections of `env`'s facts that a reader of a bandwidth report asks for.
_FACT_GROUPS = ("nccl", "network", "gpus", "variables", "container", "host")


def network_report(
    hosts: Mapping[str, EnvFacts], places: Sequence[Place], *, backend: str | None
) -> Report | None:
    """What `env` finds wrong with the network of these hosts; None when no host told anything."""
    if not hosts:
        return None
    first_rank: dict[str, int] = {}
    for place in places:
        first_rank.setdefault(place.host, place.rank)
    wanted = _GLOO_CHECKS if backend == "gloo" else _NETWORK_CHECKS
    request = Request(
        command="env",
        argv=tuple(sys.argv[1:]),
        checks=tuple(check for check in ENV_CHECKS if check.id.startswith(wanted)),
        started=datetime.now(timezone.utc),
    )
    members = [
        Member(rank=first_rank.get(host), host=host, facts=facts) for host, facts in sorted(hosts.items())
    ]
    report = env_report(request, members)
    return replace(
        report,
        facts=tuple(fact for fact in report.facts if fact.key.partition(".")[0] in _FACT_GROUPS),
        tables=(),
    )


def hardware_of(hosts: Mapping[str, EnvFacts]) -> tuple[HostHardware, ...]:
    """What decides how fast each host can be."""
    return tuple(_hardware(host, facts) for host, facts in hosts.items())


def _hardware(host: str, facts: EnvFacts) -> HostHardware:
    gpus, network = facts.gpus, facts.network
    devices = gpus.devices if gpus is not None else None
    active = [
        sum(bool(link.active) for link in device.nvlinks)
        for device in devices or ()
        if device.nvlinks is not None
    ]
    speeds = [
        link.speed_gbps
        for device in devices or ()
        for link in device.nvlinks or ()
        if link.active and link.speed_gbps
    ]
    return HostHardware(
        host=host,
        gpu_models=None if devices is None else tuple(device.name or "unknown" for device in devices),
        nvlinks_per_gpu=min(active, default=None),
        nvlink_gbps=min(speeds, default=None),
        has_nvswitch=_has_nvswitch(gpus),
        pcie_gen=min((device.pcie_gen_max for device in devices or () if device.pcie_gen_max), default=None),
        pcie_width=min((device.pcie_width for device in devices or () if device.pcie_width), default=None),
        nics=_nics(network),
        gpudirect_rdma=_gpudirect(network),
        num_cpus=facts.process.num_cpus
        if facts.process is not None and hasattr(facts.process, "num_cpus")
        else None,
    )


def _has_nvswitch(gpus: GpuFacts | None) -> bool | None:
    if gpus is None:
        return None
    if gpus.num_nvswitches:
        return True
    kinds = [pair.kind for pair in gpus.pair_links if pair.a.startswith("GPU") and pair.b.startswith("GPU")]
    if len(gpus.devices or ()) > 2 and kinds:
        return all(kind.startswith("NV") for kind in kinds)
    return None


def _nics(network: NetworkFacts | None) -> tuple[Nic, ...] | None:
    """RDMA ports that are up, or else Ethernet interfaces that are; None when neither was read."""
    if network is None or (network.rdma_ports is None and network.interfaces is None):
        return None
    ports = [port for port in network.rdma_ports or () if port.state == "ACTIVE"]
    if ports:
        return tuple(
            Nic(name=f"{port.device}/{port.port}", kind=_kind(port), rate_gbit=port.rate_gbit)
            for port in ports
        )
    return tuple(
        Nic(
            name=each.name,
            kind="ethernet",
            rate_gbit=each.speed_mbps / 1000 if each.speed_mbps and each.speed_mbps > 0 else None,
        )
        for each in network.interfaces or ()
        if each.is_up and not each.is_virtual
    )


def _kind(port: RdmaPort) -> str:
    if port.is_efa:
        return "efa"
    return "infiniband" if port.link_layer == "InfiniBand" else "roce"


def _gpudirect(network: NetworkFacts | None) -> bool | None:
    if network is None:
        return None
    if network.peermem_registered or network.dmabuf_possible:
        return True
    return False if network.peermem_registered is False and network.dmabuf_possible is False else None
