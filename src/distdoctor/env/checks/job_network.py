"""Do the hosts of a job fit together on the network: subnets, addresses, RDMA ports, GIDs, MTU? Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import TypeVar

from distdoctor.env.checks.base import Found, NotSeen
from distdoctor.env.checks.network_view import hca_choice, interface_choice, join_names, nccl_version
from distdoctor.env.checks.roce import active_mtu
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import RdmaPort
from distdoctor.env.predict.gid import GidChoice, gid_ipv4, predict_gid, roce_version
from distdoctor.env.predict.nccl import ChosenInterface, port_name, values_in_force
from distdoctor.env.predict.subnets import common_subnets, leads_to, reachable_networks, subnet_of
from distdoctor.env.versions import at_least
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team

Hosts = Mapping[str, EnvFacts]

_T = TypeVar("_T", str, int)

# More hosts than this are counted rather than listed.
MAX_SHOWN = 8

# NCCL_IGNORE_NET_MISMATCH=1 is the default from here on (NVIDIA/nccl issue 2428).
IGNORES_MISMATCH_SINCE = "2.30"


def run_job_network(hosts: Hosts) -> Sequence[Found]:
    """Faults that show only when hosts are compared, each with the odd hosts in its scope.

    hosts: host name → facts of one process there. A host whose network was not seen takes no part in a
    comparison; nothing is concluded from its absence.
    """
    if len(hosts) < 2:
        return []
    found = check_common_subnet(hosts)
    for check in (_rdma_ports_differ, _gids_differ, _mtus_differ):
        found += check(hosts)
    return found


def check_common_subnet(hosts: Hosts) -> list[Found]:
    """Addresses that NCCL would tell the others: the same on two hosts, or without a way between them."""
    chosen = _chosen_interfaces(hosts)
    if len(chosen) < 2:
        return []
    first = {host: taken[0] for host, taken in chosen.items()}
    same = _same_address(first)
    if same:
        return same
    if common_subnets({host: [taken.address] for host, taken in first.items()}).common:
        return []
    everything = {
        host: [address for each in facts.network.interfaces or () if each.is_up for address in each.addresses]
        for host, facts in hosts.items()
        if host in first and facts.network is not None
    }
    elsewhere = common_subnets(everything).common
    unreachable = _without_route(hosts, first)
    if not elsewhere and not unreachable:
        return []  # a routed network: every rack or host has a subnet of its own
    return [_no_common(first, elsewhere, unreachable)]


def _chosen_interfaces(hosts: Hosts) -> dict[str, tuple[ChosenInterface, ...]]:
    chosen = {}
    for host, facts in hosts.items():
        choice = interface_choice(facts)
        if not isinstance(choice, NotSeen) and choice.chosen:
            chosen[host] = choice.chosen
    return chosen


def _same_address(first: Mapping[str, ChosenInterface]) -> list[Found]:
    holders: dict[str, list[str]] = {}
    for host, taken in first.items():
        holders.setdefault(taken.address.address, []).append(host)
    found = []
    for address, names in holders.items():
        # Loopback is each host's own finding (network-interface-choice); an IPv6 link-local address differs.
        if len(names) < 2 or ipaddress.ip_address(address).is_loopback:
            continue
        interface = first[names[0]].name
        found.append(
            Found(
                key=f"same-address:{interface}",
                title=f"{len(names)} hosts would all use the same address {address} ({interface})"[:80],
                severity=Severity.CRITICAL,
                confidence=Confidence.HIGH,
                evidence=(
                    Evidence(
                        text=f"{join_names(names, MAX_SHOWN)}: NCCL would use {first[names[0]]}",
                        value=address,
                        expected="an address of its own for every host",
                        expected_source="NCCL user guide, NCCL_SOCKET_IFNAME",
                        source="getifaddrs() on each host",
                    ),
                ),
                explanation=(
                    "Docker and libvirt give their bridge the same address on every host. A rank that is told this "
                    "address connects to its own host, and the job never starts."
                ),
                actions=(_name_the_interface(()),),
                scope=Scope(hosts=tuple(names)),
                cause_class="config:socket_ifname",
                fault=Fault.CONFIG,
            )
        )
    return found


def _without_route(hosts: Hosts, first: Mapping[str, ChosenInterface]) -> dict[str, str]:
    """Host → an address of another host that none of its subnets and routes leads to."""
    found = {}
    for host in first:
        network = hosts[host].network
        ways = reachable_networks(network) if network is not None else None
        if ways is None:
            continue
        for other, taken in first.items():
            if other != host and not leads_to(ways, taken.address.address):
                found[host] = taken.address.address
                break
    return found


def _no_common(
    first: Mapping[str, ChosenInterface], elsewhere: Sequence[str], unreachable: Mapping[str, str]
) -> Found:
    subnets = {host: str(subnet_of(taken.address)) for host, taken in first.items()}
    odd = tuple(unreachable) or _odd(subnets)
    evidence = [
        Evidence(text=f"{join_names(names, MAX_SHOWN)}: {first[names[0]].name} in {subnet}", value=subnet)
        for subnet, names in _groups(subnets)[:MAX_SHOWN]
    ]
    evidence += [
        Evidence(text=f"{host} has no route to {address}", value=address, source="routing table")
        for host, address in list(unreachable.items())[:MAX_SHOWN]
    ]
    if elsewhere:
        evidence.append(
            Evidence(text=f"a subnet that all hosts are in: {join_names(elsewhere)}", value=elsewhere[0])
        )
    return Found(
        key="no-common-subnet",
        title=f"NCCL would use interfaces without a common subnet on {len(first)} hosts"[:80],
        severity=Severity.CRITICAL if unreachable else Severity.WARNING,
        confidence=Confidence.HIGH if unreachable else Confidence.MEDIUM,
        evidence=tuple(evidence),
        explanation=(
            "The ranks tell one another addresses of these interfaces. Where no route leads from one to the "
            "other, start-up waits until its timeout."
        ),
        actions=(_name_the_interface(elsewhere),),
        scope=Scope(hosts=odd),
        cause_class="network:unreachable_peer",
        fault=Fault.CONFIG,
    )


def _name_the_interface(elsewhere: Sequence[str]) -> Action:
    where = f" (in {elsewhere[0]})" if elsewhere else ""
    return Action(
        team=Team.JOB_OWNER,
        text=f"Name the interface that joins the hosts{where} in NCCL_SOCKET_IFNAME on every host",
        command="ip -brief address",
    )


def _chosen_ports(hosts: Hosts) -> dict[str, tuple[RdmaPort, ...]]:
    chosen = {}
    for host, facts in hosts.items():
        choice = hca_choice(facts)
        if not isinstance(choice, NotSeen):
            chosen[host] = choice.chosen
    return chosen


def _rdma_ports_differ(hosts: Hosts) -> list[Found]:
    ports = _chosen_ports(hosts)
    if len(ports) < 2:
        return []
    layers = {
        host: tuple(sorted({port.link_layer or "?" for port in each})) for host, each in ports.items() if each
    }
    counts = {host: len(each) for host, each in ports.items()}
    names = {host: tuple(port_name(port) for port in each) for host, each in ports.items()}
    if len(set(counts.values())) > 1:
        return [_counts_differ(hosts, counts, ports)]
    if len(set(layers.values())) > 1:
        return [
            _differs(
                key="link-layers",
                title="hosts would use different kinds of RDMA network",
                groups=_groups({host: "+".join(each) for host, each in layers.items()}),
                severity=Severity.CRITICAL,
                explanation="InfiniBand and Ethernet ports cannot talk to one another.",
                action="Make NCCL_IB_HCA name ports of the same network on every host",
                cause_class="network:unreachable_peer",
            )
        ]
    if len(set(names.values())) > 1:
        return [
            _differs(
                key="names",
                title="hosts would use RDMA ports of different names",
                groups=_groups({host: join_names(each) for host, each in names.items()}),
                severity=Severity.INFO,
                explanation="Harmless by itself; with rails, equal names usually mean equal rails.",
                action="See that the ports belong to the same rails",
                cause_class=None,
            )
        ]
    return []


def _counts_differ(hosts: Hosts, counts: Mapping[str, int], ports: Mapping[str, Sequence[RdmaPort]]) -> Found:
    versions = {nccl_version(facts) for facts in hosts.values()}
    waits = all(at_least(version, IGNORES_MISMATCH_SINCE) is not False for version in versions)
    odd = _odd(counts)
    title = f"{join_names(odd, 2)}: {join_names(sorted({str(counts[host]) for host in odd}))} RDMA ports, others more or less"
    usual = _groups(counts)[0][0]
    if len(odd) == 1:
        title = f"{odd[0]} would use {counts[odd[0]]} RDMA ports, the other hosts {usual}"
    none = [host for host, number in counts.items() if number == 0]
    evidence = [
        Evidence(
            text=f"{join_names(names, MAX_SHOWN)}: {number} ports ({_ports_text(ports[names[0]])})",
            value=number,
            unit="ports",
            source="/sys/class/infiniband and NCCL_IB_HCA on each host",
        )
        for number, names in _groups(counts)[:MAX_SHOWN]
    ]
    return Found(
        key="rdma-counts",
        title=title[:80],
        severity=Severity.CRITICAL if none or waits else Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=tuple(evidence),
        explanation=(
            "A host without a port talks TCP while the others wait on RDMA; unequal numbers slow every ring. "
            "NCCL 2.30 and later ignore the difference by default and may then wait for ever (NVIDIA/nccl issue "
            "2428)."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See rdma-port-state and rdma-device-access of the odd hosts; give containers all cards",
            ),
            Action(
                team=Team.JOB_OWNER,
                text="Fail at once instead of waiting",
                command="export NCCL_IGNORE_NET_MISMATCH=0",
            ),
        ),
        scope=Scope(hosts=odd),
        cause_class="network:link_down",
        fault=Fault.NETWORK,
    )


def _ports_text(ports: Sequence[RdmaPort]) -> str:
    return join_names([port_name(port) for port in ports]) or "none"


def _gids_differ(hosts: Hosts) -> list[Found]:
    """Kinds of address that RoCE ports would use; the row's number alone may differ since NCCL 2.21."""
    kinds: dict[str, str] = {}
    for host, ports in _chosen_ports(hosts).items():
        facts = hosts[host]
        values = values_in_force(facts.variables) if facts.variables is not None else {}
        roce = [port for port in ports if port.link_layer == "Ethernet"]
        choices = [predict_gid(port, values, nccl_version=nccl_version(facts)) for port in roce]
        shown = sorted({_kind(choice) for choice in choices if choice is not None})
        if shown:
            kinds[host] = ", ".join(shown)
    if len(set(kinds.values())) < 2:
        return []
    return [
        _differs(
            key="gid-kinds",
            title="hosts would use different kinds of RoCE address",
            groups=_groups(kinds),
            severity=Severity.CRITICAL,
            explanation="RoCE v1 and v2, and IPv4 and IPv6 addresses, do not connect (completion error 12).",
            action="Unset NCCL_IB_GID_INDEX (NCCL 2.21 and later), or give every port an IPv4 address",
            cause_class="network:roce_gid",
        )
    ]


def _kind(choice: GidChoice) -> str:
    if choice.entry is None:
        return "empty row"
    version = roce_version(choice.entry)
    family = "IPv4" if gid_ipv4(choice.entry) is not None else "IPv6"
    return f"RoCE v{version}, {family}" if version else family


def _mtus_differ(hosts: Hosts) -> list[Found]:
    roce: dict[str, int] = {}
    for host, ports in _chosen_ports(hosts).items():
        sizes = [active_mtu(hosts[host], port) for port in ports if port.link_layer == "Ethernet"]
        known = [size for size in sizes if size is not None]
        if known:
            roce[host] = min(known)
    plain = {
        host: taken[0].interface.mtu
        for host, taken in _chosen_interfaces(hosts).items()
        if taken[0].interface.mtu is not None
    }
    found = []
    if len(set(roce.values())) > 1:
        found.append(
            _differs(
                key="roce-mtu",
                title="active MTU of the RoCE ports differs between hosts",
                groups=_groups(roce),
                severity=Severity.WARNING,
                explanation="Both ends of a connection must agree, and switches drop what is too large for them.",
                action="Give the RoCE interfaces of all hosts and the switch ports the same MTU",
                cause_class="network:mtu_mismatch",
            )
        )
    if len(set(plain.values())) > 1:
        found.append(
            _differs(
                key="mtu",
                title="MTU of the interfaces that NCCL would use differs between hosts",
                groups=_groups(plain),
                severity=Severity.WARNING,
                confidence=Confidence.MEDIUM,
                explanation="Large packets get lost where path MTU discovery is blocked: small messages pass, big ones hang.",
                action="Give the interfaces of all hosts the same MTU",
                cause_class="network:mtu_mismatch",
            )
        )
    return found


def _differs(
    *,
    key: str,
    title: str,
    groups: Sequence[tuple[_T, tuple[str, ...]]],
    severity: Severity,
    explanation: str,
    action: str,
    cause_class: str | None,
    confidence: Confidence = Confidence.HIGH,
) -> Found:
    odd = _odd({host: value for value, names in groups for host in names})
    who = f"{join_names(odd, 2)}: " if len(odd) <= 2 and len(groups[0][1]) > len(odd) else ""
    return Found(
        key=key,
        title=(who + title)[:80],
        severity=severity,
        confidence=confidence,
        evidence=tuple(
            Evidence(text=f"{join_names(names, MAX_SHOWN)}: {value}", value=str(value))
            for value, names in groups[:MAX_SHOWN]
        ),
        explanation=explanation,
        actions=(Action(team=Team.NETWORK, text=action),),
        scope=Scope(hosts=odd),
        cause_class=cause_class,
        fault=Fault.NETWORK,
    )


def _groups(values: Mapping[str, _T]) -> list[tuple[_T, tuple[str, ...]]]:
    """Value → hosts, the largest group first; equal sizes in the order of the hosts."""
    groups: dict[_T, list[str]] = {}
    for host, value in values.items():
        groups.setdefault(value, []).append(host)
    by_size = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [(value, tuple(names)) for value, names in by_size]


def _odd(values: Mapping[str, _T]) -> tuple[str, ...]:
    """Hosts outside the majority's value; all hosts when no value has a majority."""
    groups = _groups(values)
    if len(groups[0][1]) * 2 <= len(values):
        return tuple(values)
    return tuple(host for _, names in groups[1:] for host in names)
