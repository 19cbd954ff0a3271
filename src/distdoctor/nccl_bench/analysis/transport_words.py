"""A log of NCCL in one sentence, and what it chose for a collective at a size."""

from __future__ import annotations

from distdoctor.nccl_bench.analysis.log_networks import (
    is_socket_network,
    net_routes,
    rdma_network,
    socket_use,
)
from distdoctor.nccl_bench.definitions import canonical_name
from distdoctor.nccl_bench.facts.nccl_log import ChosenAlgorithm, NcclLog


def transport_words(log: NcclLog) -> str:
    """What joins ranks: "between hosts: IB with GPUDirect over 8 NICs; inside hosts: P2P (CUMEM); NVLS …".

    Parts that the log does not tell are left out; empty when it tells none.
    """
    return "; ".join(part for part in (_between(log), _inside(log), _nvls(log)) if part)


def algorithm_of(log: NcclLog, collective: str, size_bytes: int) -> ChosenAlgorithm | None:
    """What NCCL chose for exactly this size, else for the nearest within a factor of two; None when not logged.

    Sizes are those of NCCL's lines (bytes of one rank's buffer), so gathers differ from nccl-tests by the number of
    ranks. Of several choices for one size the last one counts: earlier ones may be warm-up.
    """
    name = canonical_name(collective) or collective
    same = [each for each in log.algorithms if each.collective == name and each.size_bytes > 0]
    exact = [each for each in same if each.size_bytes == size_bytes]
    if exact:
        return exact[-1]
    near = [each for each in same if size_bytes <= 2 * each.size_bytes and each.size_bytes <= 2 * size_bytes]
    return min(near, key=lambda each: abs(each.size_bytes - size_bytes), default=None)


def _between(log: NcclLog) -> str:
    network = rdma_network(log)
    use = socket_use(log)
    if network is None:
        if use is None:
            return ""
        names = ", ".join(nic.name for nic in log.socket_interfaces[:4])
        return f"between hosts: TCP sockets{f' over {names}' if names else ''}"
    nics = len(log.rdma_nics) or log.nics_found
    over = f" over {nics} NIC{'s' if nics > 1 else ''}" if nics else ""
    mixed = ", TCP sockets on some hosts" if any(map(is_socket_network, log.networks)) else ""
    return f"between hosts: {network}{_gpudirect(log)}{over}{mixed}"


def _gpudirect(log: NcclLog) -> str:
    routes = net_routes(log)
    if routes:
        direct = sum(route.gpudirect for route in routes)
        if direct == len(routes):
            return " with GPUDirect"
        return " without GPUDirect" if not direct else f" with GPUDirect on {direct} of {len(routes)} routes"
    if log.gpudirect_disabled:
        return " without GPUDirect"
    return " with GPUDirect" if log.gpudirect_enabled or log.ring_gpudirect else ""


def _inside(log: NcclLog) -> str:
    direct = [route for route in log.routes if route.transport == "P2P"]
    memory = [route for route in log.routes if route.transport == "SHM"]
    if not direct and not memory:
        return ""
    nvlink = "NVLink " if log.nvlink_gbps or log.nvls_channels else ""
    if not memory:
        return f"inside hosts: {nvlink}P2P ({direct[0].detail})"
    if not direct:
        return "inside hosts: host memory (SHM)"
    return f"inside hosts: {len(memory)} of {len(memory) + len(direct)} routes through host memory (SHM), the others P2P"


def _nvls(log: NcclLog) -> str:
    if log.nvls_channels:
        return f"NVLS set up, {log.nvls_channels} channels"
    if log.nvls_channels == 0:
        return "no NVLS"
    if log.nvls_set_up:
        return "NVLS set up"
    if log.nvls_available is not None:
        return "NVLS available" if log.nvls_available else "no NVLS"
    return ""
