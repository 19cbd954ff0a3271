"""Which checks does this container make blind, and what would let them see?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import NvmlState
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindSpot:
    """Something that a container hides, and how each runtime would show it."""

    what: str
    hidden: Callable[[EnvFacts], bool]
    docker: str
    kubernetes: str


def _no_nvml(facts: EnvFacts) -> bool:
    """The NVIDIA runtime was told to leave NVML out, and the driver is there."""
    gpus, capabilities = facts.gpus, _capabilities(facts)
    if gpus is None or gpus.nvml_state is not NvmlState.NO_LIBRARY or not _driver_here(facts):
        return False
    return capabilities is None or not {"all", "utility"} & set(capabilities.split(","))


def _capabilities(facts: EnvFacts) -> str | None:
    return facts.container.runtime_capabilities if facts.container is not None else None


def _driver_here(facts: EnvFacts) -> bool:
    gpus = facts.gpus
    return gpus is not None and bool(gpus.kernel_module_version or gpus.num_device_nodes)


def _has_gpus(facts: EnvFacts) -> bool:
    gpus = facts.gpus
    return gpus is not None and bool(gpus.devices or gpus.num_pci_gpus)


def _no_kernel_log(facts: EnvFacts) -> bool:
    return _has_gpus(facts) and facts.kernel_log is not None and facts.kernel_log.events is None


def _no_config_space(facts: EnvFacts) -> bool:
    host = facts.host
    bare_metal = host is not None and host.virtualisation == "none"
    return bare_metal and host is not None and host.acs_bridges is None and bool(host.acs_relevant_bridges)


def _rdma_without_nodes(facts: EnvFacts) -> bool:
    ports = facts.network.rdma_ports if facts.network is not None else None
    return bool(ports) and all(port.openable is False for port in ports or ())


def _other_pids(facts: EnvFacts) -> bool:
    """NVML tells pids of the host; without its namespace they cannot be named."""
    container = facts.container
    devices = facts.gpus.devices if facts.gpus is not None else None
    busy = any(device.processes for device in devices or ())
    return container is not None and container.same_pid_namespace_as_init is False and busy


BLIND_SPOTS = (
    BlindSpot(
        what="GPU health (NVML is not in the container)",
        hidden=_no_nvml,
        docker="-e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        kubernetes="env NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    BlindSpot(
        what="the kernel log with GPU errors (Xid)",
        hidden=_no_kernel_log,
        docker="--cap-add SYSLOG --device /dev/kmsg",
        kubernetes="capability SYSLOG and a hostPath mount of /dev/kmsg, or look on the node",
    ),
    BlindSpot(
        what="PCIe access control (ACS)",
        hidden=_no_config_space,
        docker="--cap-add SYS_ADMIN as root, or run on the host",
        kubernetes="securityContext.privileged, or look on the node",
    ),
    BlindSpot(
        what="the RDMA devices (they are in /sys, their device files cannot be opened)",
        hidden=_rdma_without_nodes,
        docker="--device /dev/infiniband --ulimit memlock=-1",
        kubernetes="a resource of the RDMA device plugin, such as rdma/hca: 1",
    ),
    BlindSpot(
        what="whose processes hold the GPUs (their pids are the host's)",
        hidden=_other_pids,
        docker="--pid=host",
        kubernetes="hostPID: true",
    ),
)


def check_container(facts: EnvFacts) -> Sequence[Outcome]:
    """Info: what other checks could not see because of the container, and the flags that would show it."""
    container = facts.container
    if container is None or container.kind is None:
        return [missing(facts, "container.kind")]
    if container.kind == "none":
        return [NotApplicable(detail="not in a container")]
    hidden = [spot for spot in BLIND_SPOTS if spot.hidden(facts)]
    if not hidden:
        return [Passed(detail=f"in a container ({container.kind}); it hides nothing that was looked for")]
    pods = container.kind == "kubernetes"
    count = len(hidden)
    return [
        Found(
            title=f"the container hides {count} thing{'s' if count > 1 else ''} from these checks",
            severity=Severity.INFO,
            confidence=Confidence.HIGH,
            evidence=tuple(
                Evidence(text=f"hidden: {spot.what}", source=container.sources.get("kind")) for spot in hidden
            ),
            explanation="What is hidden was not judged; it may be in order or not.",
            actions=tuple(
                Action(
                    team=Team.PLATFORM,
                    text=f"To see {spot.what}: {spot.kubernetes if pods else spot.docker}",
                )
                for spot in hidden
            ),
            fault=Fault.CONFIG,
        )
    ]


CHECK = Check(
    id="container-blind-spots", title="what the container hides", run=check_container, preflight=True
)
