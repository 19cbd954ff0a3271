"""What the network checks share: the predictions for these facts, and how hosts, ports and jobs are named."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import NotSeen, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Section
from distdoctor.env.facts.network import Interface, RdmaPort
from distdoctor.env.predict.nccl import (
    ChosenInterface,
    Prediction,
    port_name,
    predict_hcas,
    predict_interfaces,
    values_in_force,
)
from distdoctor.report.model import Scope


def spans_hosts(facts: EnvFacts) -> bool | None:
    """Does the job run on several hosts? None when neither launcher nor scheduler say."""
    scheduler = facts.scheduler
    if scheduler is None:
        return None
    if scheduler.num_nodes is not None:
        return scheduler.num_nodes > 1
    if scheduler.world_size is not None and scheduler.local_world_size:
        return scheduler.world_size > scheduler.local_world_size
    return None


def uses_nccl(facts: EnvFacts) -> bool | None:
    """False when the host is known to have no NVIDIA GPU; None when GPUs were not seen."""
    if facts.gpus is None or facts.gpus.devices is None:
        return None
    return any(device.vendor == "nvidia" for device in facts.gpus.devices)


def interface_choice(facts: EnvFacts) -> Prediction[ChosenInterface] | NotSeen:
    """What NCCL would take here, or why that cannot be told."""
    network, variables = facts.network, facts.variables
    if network is None or network.interfaces is None:
        return missing(facts, "network.interfaces")
    if variables is None:
        return missing(facts, "variables.environment")
    blind = [each for each in network.interfaces if "addresses" in each.unread]
    if blind and len(blind) == len(network.interfaces):
        return NotSeen(unread=blind[0].unread["addresses"])
    return predict_interfaces(
        network.interfaces, values_in_force(variables), nccl_version=nccl_version(facts)
    )


def hca_choice(facts: EnvFacts) -> Prediction[RdmaPort] | NotSeen:
    """The RDMA ports that NCCL would use here, or why that cannot be told."""
    network, variables = facts.network, facts.variables
    if network is None or network.rdma_ports is None:
        return missing(facts, "network.rdma_ports")
    if variables is None:
        return missing(facts, "variables.environment")
    return predict_hcas(network.rdma_ports, values_in_force(variables))


def rdma_carries_job(facts: EnvFacts) -> bool | None:
    """Would data between hosts go over RDMA (NCCL's own or EFA's plugin)? None when that cannot be told."""
    choice = hca_choice(facts)
    if isinstance(choice, NotSeen):
        return None
    if choice.chosen:
        return True
    ports = facts.network.rdma_ports if facts.network else None
    return any(port.is_efa and port.state == "ACTIVE" for port in ports or ()) and choice.variable is None


def nccl_version(facts: EnvFacts) -> str | None:
    """The best known NCCL version."""
    return facts.nccl.version if facts.nccl is not None else None


def links(facts: EnvFacts, names: Sequence[str]) -> Scope:
    """Scope of ports or interfaces: "host-a mlx5_3/1"."""
    host = facts.host_name
    return Scope(links=tuple(f"{host} {name}" if host else name for name in names))


def port_scope(facts: EnvFacts, ports: Sequence[RdmaPort]) -> Scope:
    """Scope of RDMA ports."""
    return links(facts, [port_name(port) for port in ports])


def is_active(port: RdmaPort) -> bool:
    """State ACTIVE, in whatever spelling the evidence has it."""
    return port.state is not None and port.state.upper() == "ACTIVE"


def source_of(section: Section, field: str) -> str | None:
    """Where a field was read from."""
    return section.sources.get(field)


def join_names(names: Sequence[str], limit: int = 8) -> str:
    """ "a, b, c and 5 more"."""
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def described(interface: Interface) -> str:
    """An interface with its state and addresses: "eth0 (up, 10.0.0.1)"."""
    state = {True: "up", False: "down", None: "state unknown"}[interface.is_up]
    addresses = ", ".join(address.address for address in interface.addresses[:2]) or "no address"
    return f"{interface.name} ({state}, {addresses})"
