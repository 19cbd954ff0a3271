"""IP addresses of interfaces: our own by getifaddrs(), another network namespace's from /proc/<pid>/net."""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdoctor.env.facts.network import Address, Route

_TRIE_ADDRESS = re.compile(r"\|--\s+(\d+\.\d+\.\d+\.\d+)\s*$")


def own_addresses() -> Mapping[str, Sequence[Address]]:
    """Addresses by interface name in our network namespace. Raises OSError."""
    import psutil

    found: dict[str, list[Address]] = {}
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                found.setdefault(name, []).append(_address(entry.address, entry.netmask))
    return found


def _address(text: str, netmask: str | None) -> Address:
    bare = text.partition("%")[0]
    return Address(address=bare, prefix_length=_prefix_length(netmask))


def _prefix_length(netmask: str | None) -> int | None:
    if not netmask:
        return None
    try:
        return bin(int(ipaddress.ip_address(netmask))).count("1")
    except ValueError:
        return None


def addresses_from_proc(*, fib_trie: str, route: str, if_inet6: str) -> Mapping[str, Sequence[Address]]:
    """Addresses by interface name from the text of three files below /proc/<pid>/net.

    fib_trie names local IPv4 addresses without their interface, so the on-link route that holds the address
    gives it. An address that no route holds (a pod's /32) belongs to the one interface with routes, if there
    is only one; otherwise it is left out.
    """
    found: dict[str, list[Address]] = {}
    on_link = [each for each in parse_routes(route) if each.network != "0.0.0.0/0"]
    only = {each.interface for each in parse_routes(route)}
    for address in _local_ipv4(fib_trie):
        interface, prefix = _interface_of(address, on_link)
        if interface is None and len(only) == 1:
            interface, prefix = next(iter(only)), 32
        if interface is not None:
            found.setdefault(interface, []).append(Address(address=address, prefix_length=prefix))
    for line in if_inet6.splitlines():
        fields = line.split()
        if len(fields) >= 6:
            address = str(ipaddress.IPv6Address(int(fields[0], 16)))
            found.setdefault(fields[5], []).append(Address(address=address, prefix_length=int(fields[2], 16)))
    return found


def _local_ipv4(fib_trie: str) -> list[str]:
    """Addresses marked `host LOCAL`, each once, in the file's order."""
    seen: dict[str, None] = {}
    last: str | None = None
    for line in fib_trie.splitlines():
        match = _TRIE_ADDRESS.search(line)
        if match:
            last = match.group(1)
        elif "host LOCAL" in line and last is not None:
            seen[last] = None
    return list(seen)


def _interface_of(address: str, routes: Sequence[Route]) -> tuple[str | None, int | None]:
    parsed = ipaddress.ip_address(address)
    if parsed.is_loopback:
        return "lo", 8
    best: tuple[str | None, int | None] = (None, None)
    for route in routes:
        network = ipaddress.ip_network(route.network)
        if parsed in network and network.prefixlen > (best[1] or 0):
            best = route.interface, network.prefixlen
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ipv4Line:
    interface: str
    destination: int
    mask: int
    flags: int


# RTF_UP and RTF_REJECT of <linux/route.h>.
_UP, _REJECT = 0x1, 0x200


def parse_routes(route: str) -> tuple[Route, ...]:
    """IPv4 routes of the text of /proc/net/route; "0.0.0.0/0" is the default route."""
    found = []
    for line in route.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8:
            continue
        entry = _Ipv4Line(
            interface=fields[0],
            destination=int(fields[1], 16),
            flags=int(fields[3], 16),
            mask=int(fields[7], 16),
        )
        if entry.flags & _UP and not entry.flags & _REJECT:
            # The kernel prints the address as it lies in memory: network byte order read as a native integer.
            packed = struct.pack("=I", entry.destination)
            prefix = bin(entry.mask).count("1")
            network = ipaddress.ip_network((packed, prefix), strict=False)
            found.append(Route(network=str(network), interface=entry.interface))
    return tuple(found)


def parse_ipv6_routes(text: str) -> tuple[Route, ...]:
    """IPv6 routes of the text of /proc/net/ipv6_route; "::/0" is the default route."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 10 or fields[9] == "lo":
            continue
        flags = int(fields[8], 16)
        if flags & _UP and not flags & _REJECT:
            network = ipaddress.ip_network(
                (int(fields[0], 16).to_bytes(16, "big"), int(fields[1], 16)), strict=False
            )
            found.append(Route(network=str(network), interface=fields[9]))
    return tuple(found)
