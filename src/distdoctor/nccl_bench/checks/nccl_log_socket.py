"""Does data between hosts go over TCP sockets, though the hardware has something faster?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.log_hosts import HostsSeen, hosts_of
from distdoctor.nccl_bench.analysis.log_networks import SocketUse, rdma_network, socket_use
from distdoctor.nccl_bench.analysis.log_platform import cloud_of, fabric_interfaces, gpu_models, is_datacentre
from distdoctor.nccl_bench.analysis.nccl_warnings import classify
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, Outcome, Passed
from distdoctor.nccl_bench.checks.log_view import least, log_or_reason, override_evidence, unsaid
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import NcclLog
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team

_RDMA_KINDS = ("infiniband", "roce", "efa")
_FORCED = ("NCCL_NET", "NCCL_IB_DISABLE", "NCCL_NET_PLUGIN")

_CLOUD_ADVICE = {
    "gcp": "Google Cloud: use the image or plugin of the machine type (A3 High: GPUDirect-TCPX, A3 Mega: TCPXO, "
    "A3 Ultra and A4: gIB) and source its environment script",
    "aws": "EC2: put aws-ofi-nccl and libfabric into the image, attach EFA interfaces, and allow all traffic within "
    "the security group",
    "slingshot": "HPE Slingshot (hsn interfaces): put aws-ofi-nccl, or aws-ofi-rccl on AMD, with libfabric's cxi provider "
    "into the job",
    "azure": "Azure: use a machine type with InfiniBand, its HPC image, and rdma-core in the container",
}


def check_sockets(facts: BenchFacts) -> Sequence[Outcome]:
    """Critical between hosts, harmless inside one; a lead where the log does not tell how many there are."""
    log = log_or_reason(facts)
    if not isinstance(log, NcclLog):
        return [log]
    use = socket_use(log)
    if use is None:
        network = rdma_network(log)
        if network is None:
            return [unsaid(facts, "which network it uses")]
        return [Passed(detail=f"data between hosts goes over {network}")]
    hosts = hosts_of(facts)
    if hosts.several is False:
        missing = " (libibverbs is missing too)" if log.ibverbs_missing else ""
        return [Passed(detail=f"sockets are the network, but {hosts.why}: no data goes over them{missing}")]
    return [_found(facts, log, use, hosts)]


def _found(facts: BenchFacts, log: NcclLog, use: SocketUse, hosts: HostsSeen) -> Found:
    severity, confidence = _how_bad(facts, log, use, hosts)
    title = "Data between hosts goes over TCP sockets, not over RDMA"
    if hosts.several is None:
        title = "NCCL uses TCP sockets: very slow if the job spans several hosts"
    elif use.hosts:
        title = "Some hosts send data over TCP sockets, the others over RDMA"
    return Found(
        title=title,
        severity=severity,
        confidence=confidence,
        evidence=_evidence(facts, log, use, hosts),
        explanation=(
            "NCCL goes on without an error when it finds no RDMA device or plugin, and copies everything through host "
            "memory and the kernel's TCP. Others measured all_reduce over 2 hosts of 8 H100 at 28.6 GB/s bus "
            "bandwidth with TCP and at 339 GB/s with GPUDirect-TCPXO. Inside one host sockets carry no data."
        ),
        actions=_actions(log),
        scope=Scope(hosts=use.hosts),
        cause_class="network:socket_fallback",
        fault=_fault(log),
    )


def _how_bad(
    facts: BenchFacts, log: NcclLog, use: SocketUse, hosts: HostsSeen
) -> tuple[Severity, Confidence]:
    if hosts.several is None:
        return Severity.WARNING, Confidence.LOW
    confidence = hosts.confidence if use.sure else Confidence.MEDIUM
    rdma = _rdma_devices(facts, log)
    known = is_datacentre(facts)
    if known is False and not rdma:
        return Severity.WARNING, confidence
    if known is None and not rdma:
        confidence = least(confidence, Confidence.MEDIUM)
    return Severity.CRITICAL, confidence


def _rdma_devices(facts: BenchFacts, log: NcclLog) -> tuple[str, ...]:
    measured = [nic.name for each in facts.hardware for nic in each.nics or () if nic.kind in _RDMA_KINDS]
    return tuple(dict.fromkeys([*measured, *(nic.name for nic in log.rdma_nics), *fabric_interfaces(log)]))


def _evidence(facts: BenchFacts, log: NcclLog, use: SocketUse, hosts: HostsSeen) -> tuple[Evidence, ...]:
    lines = [
        Evidence(
            text=use.text,
            expected="an RDMA network between hosts",
            expected_source="NCCL user guide, troubleshooting: networking issues",
            source=use.place,
        ),
        Evidence(text=hosts.why, source=hosts.place or log.origin),
    ]
    models, devices = gpu_models(facts), _rdma_devices(facts, log)
    if models:
        lines.append(Evidence(text=f"GPUs: {', '.join(models[:3])}", source=log.place_of("gpu model")))
    if devices:
        lines.append(
            Evidence(
                text=f"an RDMA fabric is there: {', '.join(devices[:8])}",
                source=log.place_of("nics" if log.rdma_nics else "interfaces"),
            )
        )
    if log.ibverbs_missing:
        text = "libibverbs could not be opened, so no RDMA device can be seen"
        lines.append(Evidence(text=text, source=log.place_of("ibverbs missing")))
    if log.no_ib_device:
        lines.append(Evidence(text="NET/IB found no device", source=log.place_of("no ib device")))
    if log.plugins_missing:
        text = f"network plugin not found: {', '.join(log.plugins_missing[:3])}"
        lines.append(Evidence(text=text, source=log.place_of("plugin missing")))
    failed = next((each.lines[0] for each in classify(log.warned)[0] if each.rule.key == "plugin"), None)
    if failed is not None:
        lines.append(Evidence(text=failed.text[:200], source=failed.where or log.origin))
    return (*lines, *override_evidence(log, *_FORCED))


def _actions(log: NcclLog) -> tuple[Action, ...]:
    actions: list[Action] = []
    forced = [each for each in log.overrides if _forces_sockets(each.name, each.value)]
    if forced:
        names = " ".join(dict.fromkeys(each.name for each in forced))
        actions.append(
            Action(
                team=Team.JOB_OWNER,
                text="Remove the setting that asks for sockets",
                command=f"unset {names}",
            )
        )
    if log.ibverbs_missing:
        actions.append(
            Action(
                team=Team.PLATFORM,
                text="Install libibverbs and its drivers in the image",
                command="apt-get install -y libibverbs1 ibverbs-providers rdma-core && ldconfig -p | grep libibverbs",
            )
        )
    if not forced:
        actions.append(
            Action(
                team=Team.PLATFORM,
                text="See whether the job's container has the RDMA devices; hand them in if the host has them",
                command="ls /sys/class/infiniband /dev/infiniband; ibv_devinfo | head -20",
            )
        )
    cloud = cloud_of(log)
    if cloud:
        actions.append(Action(team=Team.PLATFORM, text=_CLOUD_ADVICE[cloud]))
    return tuple(actions)


def _forces_sockets(name: str, value: str) -> bool:
    """Settings that shut RDMA off; NCCL_NET_PLUGIN=none keeps NCCL's own RDMA, so it does not count."""
    return (name, value.strip().lower()) in (("NCCL_NET", "socket"), ("NCCL_IB_DISABLE", "1"))


def _fault(log: NcclLog) -> Fault:
    if any(_forces_sockets(each.name, each.value) for each in log.overrides):
        return Fault.CONFIG
    return Fault.SOFTWARE if log.ibverbs_missing else Fault.NETWORK


CHECK = BenchCheck(id="nccl-log-socket", title="network that carries data between hosts", run=check_sockets)
