"""Can the network cards read and write GPU memory directly (GPUDirect RDMA)?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.network_view import is_active, nccl_version, spans_hosts, uses_nccl
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import NetworkFacts
from distdoctor.env.predict.nccl import rdma_disabled_by, values_in_force
from distdoctor.env.versions import at_least
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

NCCL_GUIDE = "NCCL user guide, troubleshooting: GPU Direct RDMA"

# Until 2.22.3 NCCL looked for the module only below memory_peers (NVIDIA/nccl issue 1676).
SEES_MODULE_SINCE = "2.23"

_LOAD = Action(
    team=Team.PLATFORM, text="Load the module that comes with the driver", command="modprobe nvidia-peermem"
)


def check_gpudirect_rdma(facts: EnvFacts) -> Sequence[Outcome]:
    """Critical without any path for a job over several hosts; a module that is not registered is a warning."""
    absent = _not_applicable(facts)
    if absent is not None:
        return [absent]
    network = facts.network
    assert network is not None  # noqa: S101 - _not_applicable saw it
    if network.peermem_registered:
        return [Passed(detail=f"{network.peermem_module or 'peer memory'} is registered with the RDMA core")]
    if _dmabuf(facts, network):
        return [Passed(detail="dma-buf: open kernel module on a kernel of 5.12 or later")]
    if network.peermem_module:
        if network.peermem_registered is None:
            return [missing(facts, "network.peermem_registered")]
        return [_not_registered(facts, network)]
    if network.peermem_module is None:
        return [missing(facts, "network.peermem_module")]
    if network.dmabuf_possible is None and not _dmabuf_off(facts):
        return [missing(facts, "network.dmabuf_possible")]
    return [_no_path(facts, network)]


def _not_applicable(facts: EnvFacts) -> NotApplicable | NotSeen | None:
    network = facts.network
    if network is None or network.rdma_ports is None:
        return missing(facts, "network.rdma_ports")
    ports = [port for port in network.rdma_ports if not port.is_efa]
    if not ports:
        return NotApplicable(detail="no RDMA device that NCCL uses by itself")
    if not any(is_active(port) for port in ports):
        return NotApplicable(detail="no RDMA port is ACTIVE")
    has_gpus = uses_nccl(facts)
    if has_gpus is None:
        return missing(facts, "gpus.devices")
    if not has_gpus:
        return NotApplicable(detail="no NVIDIA GPU here")
    if facts.variables is not None and rdma_disabled_by(values_in_force(facts.variables)):
        return NotApplicable(detail="RDMA is turned off by a variable")
    return None


def _dmabuf_off(facts: EnvFacts) -> bool:
    return facts.variables is not None and facts.variables.value("NCCL_DMABUF_ENABLE") == "0"


def _dmabuf(facts: EnvFacts, network: NetworkFacts) -> bool:
    return bool(network.dmabuf_possible) and not _dmabuf_off(facts)


def _dmabuf_evidence(facts: EnvFacts, network: NetworkFacts) -> Evidence:
    if _dmabuf_off(facts):
        text = "dma-buf is turned off by NCCL_DMABUF_ENABLE=0"
    elif network.dmabuf_possible is None:
        reason = network.unread.get("dmabuf_possible")
        text = f"whether dma-buf is possible is not known: {reason.reason if reason else 'not read'}"
    else:
        text = "dma-buf is not possible: it needs kernel 5.12 or later and the open NVIDIA kernel module"
    return Evidence(text=text, expected_source=NCCL_GUIDE, source=network.sources.get("dmabuf_possible"))


def _severity(facts: EnvFacts) -> Severity:
    return Severity.CRITICAL if spans_hosts(facts) else Severity.WARNING


def _no_path(facts: EnvFacts, network: NetworkFacts) -> Found:
    return Found(
        key="none",
        title="GPU memory goes through the CPU: neither peermem nor dma-buf is there",
        severity=_severity(facts),
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text="neither nvidia_peermem nor nv_peer_mem is loaded",
                expected="nvidia_peermem, or dma-buf",
                expected_source=NCCL_GUIDE,
                source=network.sources.get("peermem_module"),
            ),
            _dmabuf_evidence(facts, network),
        ),
        explanation=(
            "NCCL says `GPU Direct RDMA Disabled` and copies every message through host memory, at a fraction "
            "of the network's bandwidth."
        ),
        actions=(_LOAD,),
        fault=Fault.HOST,
    )


def _not_registered(facts: EnvFacts, network: NetworkFacts) -> Found:
    version = nccl_version(facts)
    blind = at_least(version, SEES_MODULE_SINCE) is False
    known = network.dmabuf_possible is not None or _dmabuf_off(facts)
    actions = [
        Action(
            team=Team.PLATFORM,
            text="Install the driver's peermem after the RDMA stack (DOCA-OFED), which it builds against; reload it",
            command="modprobe -r nvidia-peermem; modprobe nvidia-peermem; ls /sys/kernel/mm/memory_peers",
        )
    ]
    if blind:
        actions.insert(
            0, Action(team=Team.JOB_OWNER, text="Use NCCL 2.23.4 or later, which sees this module")
        )
    return Found(
        key="not-registered",
        title=f"{network.peermem_module} is loaded but not registered with the RDMA core"[:80],
        severity=_severity(facts) if blind and known else Severity.WARNING,
        confidence=Confidence.HIGH if blind else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"/proc/modules lists {network.peermem_module}; /sys/kernel/mm/memory_peers has no nv_mem*",
                expected="/sys/kernel/mm/memory_peers/nv_mem/version",
                expected_source="NVIDIA/nccl src/transport/net_ib/gdr.cc",
                source=network.sources.get("memory_peers"),
            ),
            _dmabuf_evidence(facts, network),
            *(
                (Evidence(text=f"NCCL {version} looks only there (NVIDIA/nccl issue 1676)", value=version),)
                if blind
                else ()
            ),
        ),
        explanation=(
            "A module that was built without the RDMA stack's headers loads and does nothing; memory "
            "registration then fails or goes through the CPU (NVIDIA/nccl issue 1939)."
        ),
        actions=tuple(actions),
        cause_class="env:nccl_bug" if blind else None,
        fault=Fault.SOFTWARE if blind else Fault.HOST,
    )


CHECK = Check(id="gpudirect-rdma", title="GPUDirect RDMA", run=check_gpudirect_rdma, preflight=True)
