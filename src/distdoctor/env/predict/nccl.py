"""Which interfaces and RDMA ports would NCCL take? Its rules, followed without NCCL.

From NVIDIA/nccl: src/misc/socket.cc (ncclFindInterfaces), src/os/linux.cc (ncclOsFindInterfaces),
src/transport/net_ib/init.cc (ncclIbInitDevices), read at 2.27.3 and at sources of 2026. Network plugins
(EFA, vendor RDMA) choose for themselves and are not followed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from distdoctor.env.facts.network import Address, Interface, RdmaPort
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.env.predict.name_filter import NameFilter, parse_name_filter
from distdoctor.env.predict.subnets import subnet_of
from distdoctor.env.versions import at_least

T = TypeVar("T")

# MAX_IFS of net_socket.cc and MAX_IB_DEVS of net_ib.
MAX_INTERFACES = 16
MAX_HCAS = 32

# 2.27.3 takes interfaces without link and libvirt's virbr*; the sources after it do not. NVIDIA/nccl issue
# 1798 (closed 2025-08-28, "in the upcoming release", which was 2.28.3) asks for the first.
RUNNING_ONLY_SINCE = "2.28"

_DEFAULT_RULES = (
    ("ib", "names that begin with `ib`"),
    ("COMM_ID", "the subnet of NCCL_COMM_ID"),
    ("^docker,lo,virbr", "everything but docker*, lo and virbr*"),
    ("docker", "docker*, for want of anything else"),
    ("lo", "lo, for want of anything else"),
    ("virbr", "virbr*, for want of anything else"),
)
_OLD_DEFAULT_RULES = (
    ("ib", "names that begin with `ib`"),
    ("COMM_ID", "the subnet of NCCL_COMM_ID"),
    ("^docker,lo", "everything but docker* and lo"),
    ("docker", "docker*, for want of anything else"),
    ("lo", "lo, for want of anything else"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Generic[T]):
    """What would be taken, by which rule, and why the others would not."""

    chosen: tuple[T, ...]
    """In NCCL's order: the first interface is the one for the bootstrap."""
    why: str
    rejected: Mapping[str, str]
    """Name → reason."""
    variable: str | None = None
    """The variable that decided ("NCCL_SOCKET_IFNAME"), or None for a default."""
    filter: NameFilter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenInterface:
    """An interface and the one address of it that NCCL uses."""

    name: str
    address: Address
    interface: Interface

    def __str__(self) -> str:
        """As NCCL logs it: "eth0:10.0.0.1"."""
        return f"{self.name}:{self.address.address}"


def values_in_force(variables: VariableFacts) -> dict[str, str]:
    """Name → value, configuration files included."""
    return {**variables.environment, **{setting.name: setting.value for setting in variables.settings}}


def predict_interfaces(
    interfaces: Sequence[Interface], variables: Mapping[str, str], *, nccl_version: str | None = None
) -> Prediction[ChosenInterface]:
    """The interfaces for the bootstrap (the first) and for the socket transport (all), in NCCL's order.

    NCCL_SOCKET_IFNAME (two letters or more) is "find or fail"; otherwise the first default rule that finds
    an interface wins. Without a version the rules of current NCCL hold.
    """
    running_only = at_least(nccl_version, RUNNING_ONLY_SINCE) is not False
    usable, rejected = _usable(interfaces, variables.get("NCCL_SOCKET_FAMILY"), running_only)
    wanted = variables.get("NCCL_SOCKET_IFNAME", "")
    if len(wanted) > 1:
        names = parse_name_filter(wanted, max_entries=MAX_INTERFACES)
        chosen = _first_addresses(usable, names)
        reason = f"not admitted by NCCL_SOCKET_IFNAME={wanted}"
        return Prediction(
            chosen=chosen,
            why=f"NCCL_SOCKET_IFNAME={wanted}",
            rejected={**_others(usable, chosen, reason), **rejected},
            variable="NCCL_SOCKET_IFNAME",
            filter=names,
        )
    for rule, why in _DEFAULT_RULES if running_only else _OLD_DEFAULT_RULES:
        if rule == "COMM_ID":
            chosen = _in_comm_id_subnet(usable, variables.get("NCCL_COMM_ID", ""))
        else:
            chosen = _first_addresses(usable, parse_name_filter(rule, max_entries=MAX_INTERFACES))
        if chosen:
            return Prediction(
                chosen=chosen,
                why=why,
                rejected={**_others(usable, chosen, f"the rule is: {why}"), **rejected},
            )
    return Prediction(chosen=(), why="no interface has a usable address", rejected=rejected)


_Usable = tuple[Interface, Address]


def _usable(
    interfaces: Sequence[Interface], family: str | None, running_only: bool
) -> tuple[list[_Usable], dict[str, str]]:
    """Candidates in getifaddrs()' order (IPv4 of all interfaces by index, then IPv6), and why others fall out."""
    rejected: dict[str, str] = {}
    ordered = sorted(interfaces, key=lambda each: each.index or 0)
    usable: list[_Usable] = []
    for version in (4, 6):
        if family == {4: "AF_INET6", 6: "AF_INET"}[version]:
            continue
        for interface in ordered:
            if running_only and interface.is_up is False:
                continue
            usable += [(interface, address) for address in _addresses(interface, version)]
    names = {interface.name for interface, _ in usable}
    for interface in interfaces:
        if interface.name not in names:
            rejected[interface.name] = _why_unusable(interface, family, running_only)
    return usable, rejected


def _addresses(interface: Interface, version: int) -> Iterator[Address]:
    for address in interface.addresses:
        try:
            parsed = ipaddress.ip_address(address.address)
        except ValueError:
            continue
        # NCCL skips the IPv6 loopback, but not 127.0.0.1 and not link-local addresses.
        if parsed.version == version and not (version == 6 and parsed.is_loopback):
            yield address


def _why_unusable(interface: Interface, family: str | None, running_only: bool) -> str:
    if running_only and interface.is_up is False:
        return f"no link (state {interface.state})" if interface.state else "not up"
    if "addresses" in interface.unread:
        return "its addresses are not known"
    if family in ("AF_INET", "AF_INET6") and interface.addresses:
        return f"no address of NCCL_SOCKET_FAMILY={family}"
    return "no IP address"


def _first_addresses(usable: Sequence[_Usable], names: NameFilter) -> tuple[ChosenInterface, ...]:
    found: dict[str, ChosenInterface] = {}
    for interface, address in usable:
        if len(found) == MAX_INTERFACES:
            break
        if interface.name not in found and names.admits(interface.name):
            found[interface.name] = ChosenInterface(name=interface.name, address=address, interface=interface)
    return tuple(found.values())


def _in_comm_id_subnet(usable: Sequence[_Usable], comm_id: str) -> tuple[ChosenInterface, ...]:
    host = re.sub(r":\d+$", "", comm_id).strip("[]")
    try:
        target = ipaddress.ip_address(host)
    except ValueError:  # unset, or a name, which we do not resolve here
        return ()
    for interface, address in usable:
        network = subnet_of(address)
        if network is not None and target.version == network.version and target in network:
            return (ChosenInterface(name=interface.name, address=address, interface=interface),)
    return ()


def _others(usable: Sequence[_Usable], chosen: Sequence[ChosenInterface], reason: str) -> dict[str, str]:
    taken = {each.name for each in chosen}
    if len(taken) == MAX_INTERFACES:
        reason = f"{reason}; or beyond NCCL's limit of {MAX_INTERFACES}"
    return {interface.name: reason for interface, _ in usable if interface.name not in taken}


def port_name(port: RdmaPort) -> str:
    """ "mlx5_3/1"."""
    return f"{port.device}/{port.port}"


def rdma_disabled_by(variables: Mapping[str, str]) -> str | None:
    """The setting that turns NCCL's own RDMA transport off, as "NAME=value", or None."""
    disable = variables.get("NCCL_IB_DISABLE", "")
    if _is_nonzero(disable):
        return f"NCCL_IB_DISABLE={disable}"
    network = variables.get("NCCL_NET", "")
    if network.lower() == "socket":
        return f"NCCL_NET={network}"
    return None


def _is_nonzero(text: str) -> bool:
    """As NCCL_PARAM reads it: strtoll with base 0; what is no number falls back to the default, here 0."""
    try:
        return int(text, 0) != 0
    except ValueError:
        return bool(re.fullmatch(r"\s*[+-]?0*[1-9]\d*\s*", text))


def predict_hcas(ports: Sequence[RdmaPort], variables: Mapping[str, str]) -> Prediction[RdmaPort]:
    """The RDMA ports that NCCL's own transport would use: ACTIVE, InfiniBand or Ethernet, openable, admitted."""
    off = rdma_disabled_by(variables)
    if off is not None:
        return Prediction(
            chosen=(),
            why=f"RDMA is turned off by {off}",
            rejected={port_name(port): off for port in ports},
            variable=off.partition("=")[0],
        )
    text = variables.get("NCCL_IB_HCA")
    names = parse_name_filter(text, max_entries=MAX_HCAS) if text is not None else None
    chosen: list[RdmaPort] = []
    rejected: dict[str, str] = {}
    for port in ports:
        reason = _why_not(port, names)
        if reason is None and len(chosen) == MAX_HCAS:
            reason = f"beyond NCCL's limit of {MAX_HCAS}"
        if reason is None:
            chosen.append(port)
        else:
            rejected[port_name(port)] = reason
    return Prediction(
        chosen=tuple(chosen),
        why=f"NCCL_IB_HCA={text}" if text is not None else "all ACTIVE ports",
        rejected=rejected,
        variable="NCCL_IB_HCA" if text is not None else None,
        filter=names,
    )


def _why_not(port: RdmaPort, names: NameFilter | None) -> str | None:
    if port.openable is False:
        return f"the device cannot be opened here ({port.open_error or 'refused'})"
    if port.state is None:
        return "its state is not known"
    if port.state.upper() != "ACTIVE":
        return f"its state is {port.state}"
    if port.is_efa:
        return "EFA is used through a plugin (aws-ofi-nccl), not by NCCL itself"
    if port.link_layer is not None and port.link_layer not in ("InfiniBand", "Ethernet"):
        return f"its link layer is {port.link_layer}"
    if names is not None and not names.admits(port.device, port.port):
        return f"not admitted by NCCL_IB_HCA={names.text}"
    return None
