"""Does every host use the same network, enough NICs of one kind, and a plugin that fits this NCCL?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.analysis.log_hosts import HostsSeen, hosts_of
from distdoctor.nccl_bench.analysis.log_networks import is_socket_network, socket_use
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, Outcome, Passed
from distdoctor.nccl_bench.checks.log_view import least, log_or_reason, override_evidence, unsaid
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import NcclLog
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team

_RDMA_KINDS = ("infiniband", "roce", "efa")

# At most half of the ports that the names count up to: the others may be another network, or left out. Our own choice.
_USED_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _HowBad:
    severity: Severity
    confidence: Confidence
    why: str


def check_nics(facts: BenchFacts) -> Sequence[Outcome]:
    """Networks that differ, few NICs, mixed link layers, an old plugin interface, no NUMA information."""
    log = log_or_reason(facts)
    if not isinstance(log, NcclLog):
        return [log]
    hosts = hosts_of(facts)
    found = [
        outcome
        for outcome in (
            _networks_differ(log),
            _few_nics(facts, log, hosts) if hosts.several is not False else None,
            _mixed_kinds(log, hosts) if hosts.several is not False else None,
            _old_interface(log),
            _no_numa(log),
        )
        if outcome is not None
    ]
    if found:
        return found
    if log.rdma_nics or log.nics_found:
        count = len(log.rdma_nics) or log.nics_found
        return [Passed(detail=f"{count} NICs in use")]
    if socket_use(log) is not None:
        names = ", ".join(nic.name for nic in log.socket_interfaces[:4])
        return [Passed(detail=f"sockets over {names or 'unnamed interfaces'}; no RDMA NIC is used")]
    return [unsaid(facts, "which NICs it uses")]


def _networks_differ(log: NcclLog) -> Found | None:
    """Hosts whose processes use other networks than the rest; sockets beside RDMA are nccl-log-socket's."""
    by_networks: dict[tuple[str, ...], list[str]] = {}
    for host, names in log.host_networks:
        by_networks.setdefault(tuple(sorted(names)), []).append(host)
    if len(by_networks) < 2 or any(is_socket_network(name) for name in log.networks):
        return None
    rarest = min(by_networks.values(), key=len)
    return Found(
        key="differ",
        title=f"Hosts use different networks: {', '.join(log.networks[:3])}"[:80],
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=tuple(
            Evidence(text=f"{', '.join(names)}: {', '.join(hosts[:6])}", source=log.origin)
            for names, hosts in by_networks.items()
        ),
        explanation=(
            "Ranks that use different networks cannot connect, or fall back to the slower one: a plugin or library is "
            "missing or older on some hosts."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Compare image, LD_LIBRARY_PATH and plugin on a host of each kind",
                command="ldconfig -p | grep -E 'nccl-net|libibverbs|libfabric'; env | grep -E 'NCCL|LD_LIBRARY_PATH'",
            ),
        ),
        scope=Scope(hosts=tuple(rarest[:20])),
        cause_class="env:nccl_conflict",
        fault=Fault.SOFTWARE,
    )


def _few_nics(facts: BenchFacts, log: NcclLog, hosts: HostsSeen) -> Found | None:
    used = len(log.rdma_nics) or log.nics_found or 0
    if not used:
        return None
    present = max(
        (sum(nic.kind in _RDMA_KINDS for nic in each.nics or ()) for each in facts.hardware), default=0
    )
    implied = _implied(log)
    gpus = hosts.ranks_per_host or log.devices_per_host or 0
    chosen = log.override_of("NCCL_IB_HCA")
    limited = chosen is not None and not chosen.value.startswith("^")
    if present > used:
        how = _HowBad(
            severity=Severity.WARNING, confidence=Confidence.HIGH, why=f"the host has {present} RDMA ports"
        )
    elif used <= implied * _USED_SHARE:
        how = _HowBad(
            severity=Severity.WARNING,
            confidence=Confidence.LOW,
            why=f"their names count up to {implied - 1}, so {implied} or more may be there",
        )
    elif gpus > used:
        how = _HowBad(
            severity=Severity.WARNING if limited else Severity.INFO,
            confidence=Confidence.MEDIUM if limited else Confidence.LOW,
            why=f"{gpus} GPUs of a host share them",
        )
    else:
        return None
    return _few(log, hosts, used, how)


def _implied(log: NcclLog) -> int:
    """Ports that the names suggest: mlx5_6 and mlx5_7 suggest eight; 0 where names carry no small number."""
    numbers = []
    for nic in log.rdma_nics:
        found = re.search(r"(?:mlx\d_|_bond_|bnxt_re|irdma|erdma_|rdma|hfi\d_)(\d{1,2}):", nic.name)
        if found is None:
            return 0
        numbers.append(int(found[1]))
    return max(numbers, default=-1) + 1


def _few(log: NcclLog, hosts: HostsSeen, used: int, how: _HowBad) -> Found:
    names = ", ".join(nic.name for nic in log.rdma_nics[:8])
    return Found(
        key="few",
        title=f"Only {used} RDMA NIC{'s' if used > 1 else ''} in use on a host",
        severity=how.severity,
        confidence=how.confidence if hosts.several else least(how.confidence, Confidence.LOW),
        evidence=(
            Evidence(
                text=f"{used} in use{f': {names}' if names else ''}; {how.why}",
                value=used,
                unit="NICs",
                expected="every NIC of the fabric",
                expected_source="NCCL user guide, NCCL_IB_HCA",
                source=log.place_of("nics" if log.rdma_nics else "nics found"),
            ),
            Evidence(text=hosts.why, source=hosts.place or log.origin),
            *override_evidence(log, "NCCL_IB_HCA"),
        ),
        explanation=(
            "Bandwidth between hosts grows with the NICs that are used. Many machines have fewer NICs than GPUs by "
            "design; otherwise NCCL_IB_HCA, a missing device in the container, or a port that is down leaves some out."
        ),
        actions=(
            Action(
                team=Team.NETWORK,
                text="See which ports the host has and whether they are up",
                command="ibstatus; ls /sys/class/infiniband; nvidia-smi topo -m",
            ),
        ),
        cause_class="config:hca_choice",
        fault=Fault.CONFIG,
    )


def _mixed_kinds(log: NcclLog, hosts: HostsSeen) -> Found | None:
    kinds = {nic.kind for nic in log.rdma_nics}
    if len(kinds) < 2:
        return None
    ib = [nic.name for nic in log.rdma_nics if nic.kind == "ib"]
    ethernet = [nic.name for nic in log.rdma_nics if nic.kind != "ib"]
    return Found(
        key="mixed",
        title="InfiniBand and Ethernet ports are used together",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM if hosts.several else Confidence.LOW,
        evidence=(
            Evidence(text=f"InfiniBand: {', '.join(ib[:8])}", source=log.place_of("nics")),
            Evidence(text=f"Ethernet: {', '.join(ethernet[:8])}", source=log.place_of("nics")),
            *override_evidence(log, "NCCL_IB_HCA"),
        ),
        explanation=(
            "An Ethernet port in the list is often the host's management or storage card. Channels over it are slower, "
            "and a rank that has an InfiniBand port cannot connect to one that has Ethernet."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Name the ports of the fabric only",
                command=f"export NCCL_IB_HCA='={','.join(name.split('/')[0] for name in ib[:16])}'",
            ),
        ),
        cause_class="config:hca_choice",
        fault=Fault.CONFIG,
    )


def _old_interface(log: NcclLog) -> Found | None:
    if log.plugin_api is None or log.wanted_plugin_api is None or log.plugin_api >= log.wanted_plugin_api:
        return None
    return Found(
        key="plugin",
        title=f"The network plugin is older than NCCL: interface v{log.plugin_api}"[:80],
        severity=Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"{log.plugin} offers v{log.plugin_api}, NCCL asked for v{log.wanted_plugin_api} first",
                value=log.plugin_api,
                expected=f"v{log.wanted_plugin_api}",
                expected_source=f"NCCL {log.version or ''} asks for it first".replace("  ", " "),
                source=log.place_of("plugin"),
            ),
        ),
        explanation="NCCL works with it; features of newer interfaces (buffer registration, device offload) are missing.",
        actions=(Action(team=Team.PLATFORM, text="Take the plugin's release that was made for this NCCL"),),
        cause_class="network:plugin_old",
        fault=Fault.SOFTWARE,
    )


def _no_numa(log: NcclLog) -> Found | None:
    if not log.unplaced_gpus:
        return None
    return Found(
        key="numa",
        title="GPUs may run on all CPUs: no NUMA information, as in many VMs",
        severity=Severity.INFO,
        confidence=Confidence.LOW,
        evidence=(
            Evidence(
                text=f"the CPU affinity of {log.unplaced_gpus} GPU{'s' if log.unplaced_gpus > 1 else ''} is every CPU",
                value=log.unplaced_gpus,
                unit="GPUs",
                source=log.place_of("affinity"),
            ),
        ),
        explanation=(
            "NCCL binds its threads to the CPUs near each GPU. Where all CPUs count as near, the machine has one NUMA "
            "node, or a VM hides which GPU, NIC and CPU belong together: paths are then chosen blindly."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="In a VM, give NCCL the topology of the machine type (NCCL_TOPO_FILE) or pass NUMA through",
                command="nvidia-smi topo -m; lscpu | grep -i numa",
            ),
        ),
        cause_class="host:numa",
        fault=Fault.HOST,
    )


CHECK = BenchCheck(id="nccl-log-nics", title="NICs, plugin and placement", run=check_nics)
