"""Which hosts can reach one another on a common subnet? Pure arithmetic over addresses."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdoctor.env.facts.network import Address, NetworkFacts

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSubnets:
    """Subnets that every host is in, and addresses that several hosts claim."""

    common: tuple[str, ...]
    by_host: Mapping[str, tuple[str, ...]]
    """Host → its subnets that count: no loopback, no link-local, none where hosts hold the same address."""
    duplicates: Mapping[str, tuple[str, ...]]
    """Address → hosts that all hold it (docker0's 172.17.0.1 on each): such a subnet joins nobody."""


def subnet_of(address: Address) -> Network | None:
    """The network of an address; None for text that is no address or a missing prefix length."""
    if address.prefix_length is None:
        return None
    try:
        return ipaddress.ip_network(f"{address.address}/{address.prefix_length}", strict=False)
    except ValueError:
        return None


def reachable_networks(network: NetworkFacts) -> list[Network] | None:
    """What the host's routes and own subnets lead to; None when the routes were not read."""
    if network.routes is None:
        return None
    found: list[Network] = []
    for route in network.routes:
        # Facts also come from other ranks: text that is no network leads nowhere.
        with contextlib.suppress(ValueError):
            found.append(ipaddress.ip_network(route.network, strict=False))
    for interface in network.interfaces or ():
        found += [subnet for subnet in map(subnet_of, interface.addresses) if subnet is not None]
    return found


def leads_to(networks: Sequence[Network], address: str) -> bool:
    """Is the address in one of the networks? False for text that is no address."""
    try:
        target = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return any(target in each for each in networks if each.version == target.version)


def common_subnets(hosts: Mapping[str, Sequence[Address]]) -> CommonSubnets:
    """Common subnets of the given addresses, by host.

    A loopback or link-local network is each host's own. A network in which two hosts hold the same address
    (Docker gives its bridge the same one everywhere) is no connection between them either.
    """
    holders: dict[str, list[str]] = {}
    for host, addresses in hosts.items():
        for text in dict.fromkeys(address.address for address in addresses if _counts(address)):
            holders.setdefault(text, []).append(host)
    duplicates = {text: tuple(names) for text, names in holders.items() if len(names) > 1}
    by_host = {
        host: tuple(
            dict.fromkeys(
                str(subnet_of(address))
                for address in addresses
                if _counts(address) and address.address not in duplicates and subnet_of(address) is not None
            )
        )
        for host, addresses in hosts.items()
    }
    everywhere = set.intersection(*(set(names) for names in by_host.values())) if by_host else set()
    return CommonSubnets(common=tuple(sorted(everywhere)), by_host=by_host, duplicates=duplicates)


def _counts(address: Address) -> bool:
    try:
        parsed = ipaddress.ip_address(address.address)
    except ValueError:
        return False
    return not (parsed.is_loopback or parsed.is_link_local)
