"""Which address would Gloo use? As torch's ProcessGroupGloo and gloo/transport/tcp/device.cc choose it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdoctor.env.facts.network import Interface


@dataclass(frozen=True, slots=True, kw_only=True)
class GlooChoice:
    """Addresses that Gloo would bind to. `missing`: names of GLOO_SOCKET_IFNAME without a usable address."""

    addresses: tuple[str, ...]
    why: str
    missing: tuple[str, ...] = ()
    is_fallback: bool = False
    """The host name has no local address, so torch takes 127.0.0.1."""


def predict_gloo(
    interfaces: Sequence[Interface], variables: Mapping[str, str], resolved: Sequence[str] | None
) -> GlooChoice | None:
    """Interface names are whole names, comma separated; without them the own host name is resolved.

    The first resolved address that can be bound wins, that is one of this host. None when the host name
    was not resolved (not measured).
    """
    wanted = variables.get("GLOO_SOCKET_IFNAME", "")
    if len(wanted) > 1:
        by_name = {interface.name: interface for interface in interfaces}
        names = wanted.split(",")
        missing = tuple(name for name in names if name not in by_name or not _usable(by_name[name]))
        addresses = tuple(_usable(by_name[name])[0] for name in names if name not in missing)
        return GlooChoice(addresses=addresses, why=f"GLOO_SOCKET_IFNAME={wanted}", missing=missing)
    if resolved is None:
        return None
    local = {address.address for interface in interfaces for address in interface.addresses}
    for address in resolved:
        if address in local or is_loopback(address):
            return GlooChoice(addresses=(address,), why="the address of the own host name")
    return GlooChoice(
        addresses=("127.0.0.1",), why="the own host name has no local address", is_fallback=True
    )


def _usable(interface: Interface) -> list[str]:
    return [address.address for address in interface.addresses]


def is_loopback(address: str) -> bool:
    """True for 127.0.0.0/8 and ::1; False also for text that is no address."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
