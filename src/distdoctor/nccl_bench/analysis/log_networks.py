"""What carries the data between hosts, by a log: sockets, an RDMA network, or not said."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.nccl_bench.facts.nccl_log import NcclLog, Route

_SOCKET_NAMES = frozenset({"socket", "fastsocket"})
# Providers of libfabric that are TCP or UDP underneath (fi_provider(7)).
_SOCKET_PROVIDER = re.compile(r"^(?:tcp|sockets|udp|net\b)|ofi_rxm.*tcp|tcp.*ofi_rxm", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketUse:
    """Sockets in use: how the log says so, where, and by which hosts (empty: all)."""

    text: str
    place: str
    hosts: tuple[str, ...] = ()
    sure: bool = True


def is_socket_network(name: str) -> bool:
    """Whether a network of NCCL is plain TCP: "Socket", "FastSocket"."""
    return name.lower() in _SOCKET_NAMES


def net_routes(log: NcclLog) -> tuple[Route, ...]:
    """Routes over the network."""
    return tuple(route for route in log.routes if route.transport in ("NET", "COLLNET"))


def socket_use(log: NcclLog) -> SocketUse | None:
    """How sockets carry data, or None when they do not, or when nothing is said."""
    sockets = [name for name in log.networks if is_socket_network(name)]
    if sockets:
        others = [name for name in log.networks if not is_socket_network(name)]
        hosts = tuple(host for host, names in log.host_networks if any(map(is_socket_network, names)))
        text = f"NCCL uses network {sockets[0]}"
        if others:
            text += f"; other processes use {', '.join(others[:3])}"
        return SocketUse(
            text=text, place=log.place_of(f"network {sockets[0]}"), hosts=hosts if others else ()
        )
    if log.provider and _SOCKET_PROVIDER.search(log.provider):
        return SocketUse(
            text=f"libfabric's provider is {log.provider}, which is TCP", place=log.place_of("provider")
        )
    if log.networks:
        return None
    routes = net_routes(log)
    if routes:
        route = next((each for each in routes if is_socket_network(each.detail)), None)
        return (
            None
            if route is None
            else SocketUse(
                text=f"ranks {route.source} and {route.target} are joined by NET/{route.detail}",
                place=route.where or log.origin,
            )
        )
    if log.no_ib_device and log.socket_interfaces and not log.plugin:
        return SocketUse(
            text="NCCL found no RDMA device and lists interfaces for sockets",
            place=log.place_of("no ib device"),
            sure=False,
        )
    return None


def rdma_network(log: NcclLog) -> str | None:
    """Name of the network that carries data and is no socket; None when sockets do or nothing is said."""
    if socket_use(log) is not None and not any(not is_socket_network(name) for name in log.networks):
        return None
    named = next((name for name in log.networks if not is_socket_network(name)), None)
    if named:
        return named
    return next((route.detail for route in net_routes(log) if not is_socket_network(route.detail)), None)
