"""May this process open the RDMA devices, and does it see them at all?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.network_view import join_names, links, spans_hosts
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import RdmaPort
from distdoctor.env.predict.nccl import rdma_disabled_by, values_in_force
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

_ACTIONS = (
    Action(
        team=Team.PLATFORM,
        text="Docker: pass all device nodes, and let memory be locked",
        command="docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1 …",
    ),
    Action(
        team=Team.PLATFORM,
        text="Kubernetes: request the RDMA resource of the device plugin in the pod, as many as there are cards",
        command="kubectl describe node NODE | grep -iE 'rdma|infiniband|efa'",
    ),
)


def check_rdma_device_access(facts: EnvFacts) -> Sequence[Outcome]:
    """A device in /sys that cannot be opened is critical for a job over several hosts."""
    network = facts.network
    ports = network.rdma_ports if network else None
    if network is None or ports is None:
        return [missing(facts, "network.rdma_ports")]
    if not ports:
        return [NotApplicable(detail="no RDMA device here")]
    if network.rdma_device_nodes == ():
        return [NotApplicable(detail="no device node at all: see rdma-sysfs-hidden")]
    devices = {port.device: port for port in ports}
    closed = [port for port in devices.values() if port.openable is False]
    unknown = [port for port in devices.values() if port.openable is None]
    outcomes: list[Outcome] = []
    if closed:
        outcomes.append(_closed(facts, closed, len(devices)))
    if unknown:
        reason = unknown[0].unread.get("openable")
        outcomes.append(NotSeen(unread=reason) if reason else missing(facts, "network.openable"))
    if network.libibverbs_path == "":
        outcomes.append(_no_library(facts))
    opened = len(devices) - len(closed) - len(unknown)
    if opened and not any(isinstance(each, Found) for each in outcomes):
        outcomes.append(Passed(detail=f"{opened} of {len(devices)} RDMA devices can be opened"))
    return outcomes


def _severity(facts: EnvFacts) -> Severity:
    """RDMA is for several hosts; on a single one it costs nothing, and unknown is in between."""
    if facts.variables is not None and rdma_disabled_by(values_in_force(facts.variables)):
        return Severity.INFO
    return {True: Severity.CRITICAL, None: Severity.WARNING, False: Severity.INFO}[spans_hosts(facts)]


def _closed(facts: EnvFacts, closed: Sequence[RdmaPort], num_devices: int) -> Found:
    names = [port.device for port in closed]
    return Found(
        key="closed:" + ",".join(names),
        title=f"{join_names(names, 3)} cannot be opened here ({len(closed)} of {num_devices})"[:80],
        severity=_severity(facts),
        confidence=Confidence.HIGH,
        evidence=tuple(
            Evidence(
                text=f"/dev/infiniband/{port.uverbs} of {port.device}: {port.open_error or 'refused'}",
                value=port.open_error,
                expected="can be opened for reading and writing",
                expected_source="libibverbs, ibv_open_device(3)",
                source=port.sources.get("openable"),
            )
            for port in closed[:16]
        ),
        explanation=(
            "NCCL says `Unable to open device` and goes on with the rest. With none it falls back to TCP; with "
            "fewer than on the other hosts, NCCL 2.30 and later may initialise and then wait for ever "
            "(NVIDIA/nccl issue 2428; NCCL_IGNORE_NET_MISMATCH=0 makes it fail at once)."
        ),
        actions=_ACTIONS,
        scope=links(facts, names),
        fault=Fault.CONFIG,
    )


def _no_library(facts: EnvFacts) -> Found:
    return Found(
        key="no-libibverbs",
        title="libibverbs.so.1 was not found: NCCL cannot use the RDMA devices",
        severity=min(_severity(facts), Severity.WARNING, key=_ORDER.index),
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text="not in LD_LIBRARY_PATH, the loader's cache or the usual folders",
                expected="libibverbs.so.1",
                expected_source="NVIDIA/nccl src/misc/ibvsymbols.cc",
                source="/etc/ld.so.cache",
            ),
        ),
        explanation="NCCL loads it at run time; without it, it goes on over TCP sockets without an error.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Install rdma-core in the image",
                command="apt-get install -y libibverbs1 ibverbs-providers   # or: dnf install rdma-core",
            ),
        ),
        scope=links(facts, ()),
        fault=Fault.SOFTWARE,
    )


_ORDER = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)


def check_rdma_sysfs_hidden(facts: EnvFacts) -> Sequence[Outcome]:
    """Device nodes without /sys/class/infiniband, or the other way round: NCCL needs both."""
    network = facts.network
    if network is None or network.rdma_device_nodes is None:
        return [missing(facts, "network.rdma_device_nodes")]
    if network.rdma_class_visible is None:
        return [missing(facts, "network.rdma_class_visible")]
    nodes = [name for name in network.rdma_device_nodes if name.startswith("uverbs")]
    if bool(nodes) == network.rdma_class_visible:
        if nodes:
            return [Passed(detail=f"{len(nodes)} device nodes and /sys/class/infiniband are there")]
        return [NotApplicable(detail="no RDMA device here")]
    if nodes:
        return [_sysfs_missing(facts, nodes)]
    return [_nodes_missing(facts)]


def _sysfs_missing(facts: EnvFacts, nodes: Sequence[str]) -> Found:
    return Found(
        key="sysfs",
        title="RDMA device nodes are here, but /sys/class/infiniband is hidden",
        severity=_severity(facts),
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"/dev/infiniband holds {join_names(nodes)}", value=len(nodes), source="/dev/infiniband"
            ),
            Evidence(
                text="/sys/class/infiniband shows no device",
                expected="one folder per device",
                expected_source="libibverbs finds devices there",
                source="/sys/class/infiniband",
            ),
        ),
        explanation="libibverbs finds devices by /sys, so NCCL sees none and goes on over TCP sockets.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Let the container see the host's /sys (read-only), and its RDMA namespace",
                command="docker run -v /sys:/sys:ro …   # RDMA namespaces: rdma system show netns",
            ),
        ),
        scope=links(facts, ()),
        fault=Fault.CONFIG,
    )


def _nodes_missing(facts: EnvFacts) -> Found:
    inside = facts.container is not None and facts.container.kind not in (None, "none")
    host_action = Action(
        team=Team.PLATFORM,
        text="On the host: load the verbs module",
        command="modprobe ib_uverbs && ls /dev/infiniband",
    )
    devices = sorted({port.device for port in (facts.network.rdma_ports or ())} if facts.network else ())
    return Found(
        key="nodes",
        title="RDMA devices are in /sys, but there is no /dev/infiniband here",
        severity=_severity(facts),
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"/sys/class/infiniband shows {join_names(devices) if devices else 'devices'}",
                source="/sys/class/infiniband",
            ),
            Evidence(
                text="/dev/infiniband holds no uverbs node",
                expected="one uverbs node per device",
                expected_source="libibverbs",
                source="/dev/infiniband",
            ),
        ),
        explanation="Nothing can open these devices from here, so NCCL goes on over TCP sockets.",
        actions=_ACTIONS if inside else (host_action, *_ACTIONS),
        scope=links(facts, devices),
        fault=Fault.CONFIG,
    )


DEVICE_ACCESS = Check(
    id="rdma-device-access",
    title="access to RDMA devices",
    run=check_rdma_device_access,
    preflight=True,
)
SYSFS_HIDDEN = Check(
    id="rdma-sysfs-hidden",
    title="RDMA devices in /dev and /sys",
    run=check_rdma_sysfs_hidden,
    preflight=True,
)
