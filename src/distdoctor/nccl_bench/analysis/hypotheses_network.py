"""Why are several hosts slow together? Sockets, no GPUDirect, idle ports, half a path, a lossy fabric."""

from __future__ import annotations

from distdoctor.nccl_bench.analysis.hypothesis import FITS, SAID, Hypothesis, hypothesis, share_left
from distdoctor.nccl_bench.analysis.shortfall import Shortfall
from distdoctor.nccl_bench.facts.nccl_log import Route
from distdoctor.report.model import Fault, Team

# Shares of the expectation that belong to a cause. Sockets on an RDMA machine: 28.6 of 480 GB/s; PCIe access
# control (ACS) or one rail of two: 49 of 88 (nccl-tests issue 106), 9.8 of 23 (issue 112); no GPUDirect: 33 of 93
# (nccl issue 1412). The limits around them are our own.
SOCKETS_MOST = 0.10
HALF = (0.40, 0.62)
NO_GPUDIRECT = (0.20, 0.50)
ONE_OF_N_TOLERANCE = 0.15


def sockets(shortfall: Shortfall) -> Hypothesis | None:
    """Plain TCP on hosts with RDMA ports."""
    if shortfall.num_hosts < 2 or shortfall.expectation.scheme != "rdma":
        return None
    log = shortfall.facts.nccl_log
    pro: list[tuple[str, int]] = []
    contra: list[str] = []
    if shortfall.ratio <= SOCKETS_MOST:
        pro.append((share_left(shortfall), FITS))
    network = log.network if log is not None else None
    if network is not None and network.lower() == "socket":
        pro.append(("NCCL's log: `Using network Socket`", SAID))
    elif network is not None:
        contra.append(f"NCCL's log: `Using network {network}`")
    if log is not None and log.ibverbs_missing:
        pro.append(("NCCL's log: libibverbs could not be opened", SAID))
    for name, value in (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")):
        if shortfall.setting(name) == f"{name}={value}":
            pro.append((f"set: {name}={value}", SAID))
    return hypothesis(
        "plain TCP",
        "NCCL uses plain TCP although the hosts have RDMA ports",
        pro,
        contra,
        decides="which network NCCL chose, and why not RDMA",
        command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET … 2>&1 | grep -E 'Using network|NET/|ibverbs'",
        team=Team.PLATFORM,
        fault=Fault.CONFIG,
        cause_class="network:socket_fallback",
    )


def no_gpudirect(shortfall: Shortfall) -> Hypothesis | None:
    """Ports that go through host memory."""
    if shortfall.num_hosts < 2 or shortfall.expectation.scheme != "rdma":
        return None
    log = shortfall.facts.nccl_log
    pro: list[tuple[str, int]] = []
    contra: list[str] = []
    if NO_GPUDIRECT[0] <= shortfall.ratio <= NO_GPUDIRECT[1]:
        pro.append((share_left(shortfall), FITS))
    if log is not None and log.gpudirect_disabled and not log.gpudirect_enabled:
        pro.append(("NCCL's log: `GPU Direct RDMA Disabled`", SAID))
    routes = _net_routes(shortfall)
    if routes and not any(route.gpudirect for route in routes):
        pro.append(("NCCL's log: no connection between hosts ends in /GDRDMA", SAID))
    elif routes and all(route.gpudirect for route in routes):
        contra.append("NCCL's log: the connections between hosts end in /GDRDMA")
    if any(each.gpudirect_rdma is False for each in shortfall.facts.hardware):
        hosts = ", ".join(each.host for each in shortfall.facts.hardware if each.gpudirect_rdma is False)
        pro.append((f"GPUDirect RDMA is not possible on {hosts}", SAID))
    if setting := shortfall.setting("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ"):
        pro.append((f"set: {setting}", FITS))
    return hypothesis(
        "no GPUDirect",
        "The network ports read and write through the hosts' memory instead of the GPUs'",
        pro,
        contra,
        decides="whether the module that lets ports reach GPU memory is loaded",
        command="lsmod | grep -E 'nvidia_peermem|nv_peer_mem' || sudo modprobe -n -v nvidia_peermem",
        team=Team.PLATFORM,
        fault=Fault.HOST,
        cause_class="network:no_gpudirect",
    )


def _net_routes(shortfall: Shortfall) -> tuple[Route, ...]:
    log = shortfall.facts.nccl_log
    return tuple(route for route in log.routes if route.transport == "NET") if log is not None else ()


def half(shortfall: Shortfall) -> Hypothesis | None:
    """Half of the bandwidth: ACS, or one rail of two."""
    if shortfall.expectation.scheme not in ("rdma", "pcie") or not HALF[0] <= shortfall.ratio <= HALF[1]:
        return None
    return hypothesis(
        "half a path",
        "Every transfer crosses the PCIe root twice because access control (ACS) redirects it, or one of two "
        "rails is idle",
        [(share_left(shortfall), FITS)],
        [],
        decides="whether a bridge on the path has ACS redirection on: a `+` behind ReqRedir",
        command="sudo lspci -vvv | grep -E '^[0-9a-f].*bridge|ACSCtl'",
        team=Team.PLATFORM,
        fault=Fault.HOST,
        cause_class="network:below_expected",
    )


def few_ports(shortfall: Shortfall) -> Hypothesis | None:
    """k of n ports carry the data."""
    nics = shortfall.machine.nics
    if shortfall.expectation.scheme != "rdma" or not nics or len(nics) < 2:
        return None
    log = shortfall.facts.nccl_log
    pro: list[tuple[str, int]] = []
    contra: list[str] = []
    used = max(1, round(shortfall.ratio * len(nics)))
    exact = used / len(nics)
    if used < len(nics) and abs(shortfall.ratio / exact - 1) <= ONE_OF_N_TOLERANCE:
        pro.append((f"{share_left(shortfall)}, which {used} of {len(nics)} ports would give", FITS))
    if log is not None and log.rdma_nics:
        if len(log.rdma_nics) < len(nics):
            pro.append((f"NCCL's log lists {len(log.rdma_nics)} of {len(nics)} ports", SAID))
        elif pro:
            contra.append(f"NCCL's log lists {len(log.rdma_nics)} ports")
    if setting := shortfall.setting("NCCL_IB_HCA"):
        pro.append((f"set: {setting}", FITS))
    fewer = [
        f"{each.host} has {len(each.nics)} of {len(nics)} ports"
        for each in shortfall.facts.hardware
        if each.nics is not None and len(each.nics) < len(nics)
    ]
    pro += [(text, SAID) for text in fewer[:3]]
    return hypothesis(
        "idle ports",
        "Not all network ports carry data",
        pro,
        contra,
        decides="which ports NCCL uses",
        command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET … 2>&1 | grep 'NET/.* Using'",
        team=Team.NETWORK,
        fault=Fault.NETWORK,
        cause_class="network:ports_idle",
    )


def lossy(shortfall: Shortfall) -> Hypothesis | None:
    """RoCE without flow control, told by a cliff."""
    nics = shortfall.machine.nics
    if not shortfall.has_cliff or not nics or nics[0].kind != "roce":
        return None
    return hypothesis(
        "lossy Ethernet",
        "The Ethernet fabric drops packets when it is full: flow control (PFC or ECN) is not set up end to end",
        [("bandwidth falls from one size to the next larger", FITS), ("the ports are RoCE", FITS)],
        [],
        decides="whether packets are lost or resent while the benchmark runs; run before and after and compare",
        command="grep . /sys/class/infiniband/*/ports/*/hw_counters/{out_of_sequence,packet_seq_err,local_ack_timeout_err}",
        team=Team.NETWORK,
        fault=Fault.NETWORK,
        cause_class="network:lossy",
    )
