"""What do several hosts reach over their network ports, or over NVLink that joins hosts?

With n ranks on k hosts, r = n/k on each, and m ports of R GB/s a host: every ring that crosses hosts is carried by
one port, so that busbw of rings is at best m·R. An all_reduce or all_gather that first works inside the hosts
sends only (k-1)/k of the data once over the ports; its busbw can reach m·R·(n-1)/(r·(k-1)): 1.9 times the ports
on two hosts of 8, 1.3 times on four (NVIDIA/nccl-tests issues 22 and 290 ask about such numbers). Neither can
exceed what the GPUs of one host reach among themselves.
"""

from __future__ import annotations

from distdoctor.nccl_bench.analysis.expected import Expectation
from distdoctor.nccl_bench.analysis.expected_inside import RING, RING_SOURCE, inside_host, ring
from distdoctor.nccl_bench.analysis.machine import Machine
from distdoctor.nccl_bench.catalog.published import Published, published_for
from distdoctor.report.model import Confidence
from distdoctor.units import GIB, MIB

# Shares of the ports' line rate that rings reached. InfiniBand: 0.92-0.96 (one NDR port 46-48 GB/s, 4 HDR 0.93
# and 0.96, 8 NDR 0.97). RoCE: 0.90-0.98, one report of 0.88 on 8 hosts, all_gather on two 0.82. EFA: 0.88
# (2020) to 0.95.
PORT_SHARE: dict[str, tuple[float, float]] = {
    "infiniband": (0.92, 0.97),
    "roce": (0.87, 0.97),
    "efa": (0.87, 0.97),
}
PORT_SHARE_ALL_GATHER_ROCE = 0.82

JUDGED = frozenset({"all_reduce", "all_gather", "reduce_scatter"})

# Sizes at which published curves have left their climb: 2 hosts 512 MiB to 2 GiB, 4 and 8 hosts 1 GiB; 360 hosts
# were still rising at 16 GiB. The value between is our own.
PLATEAU_BYTES = ((16, GIB), (64, 8 * GIB))

# All GPUs of one NVLink domain of GB200 or GB300.
MNNVL_MAX_RANKS = 72
# GB200 NVL72: 0.93-0.94 on 72, 0.90 on 8 of two hosts.
MNNVL_ALL_REDUCE = (0.90, 0.95)
MNNVL_PLATEAU_BYTES = 4 * GIB
MNNVL_SOURCE = "coreweave/nccl-tests README.md; lixueduan.com, GB200 MNNVL NCCL test"

# One TCP stream fills links up to here; on faster ones CPUs decide, and no published floor exists.
SOCKET_MAX_GBIT = 25
# Theory, not measurement: share of an Ethernet line that is left after headers, and of it what one may ask for.
SOCKET_SHARE = (0.80, 0.92)
SOCKET_PLATEAU_BYTES = 64 * MIB

# A published figure of exactly such hosts is asked for with this tolerance. Our own.
PUBLISHED_TOLERANCE = 0.95

PORT_SOURCE = (
    "published nccl-tests runs per port: NVIDIA/nccl-tests issues 119 and 290, coreweave/nccl-tests README.md, "
    "oracle-quickstart/oci-hpc-oke, aws-samples/awsome-distributed-training, stas00/ml-engineering"
)


def across_hosts(
    machine: Machine, collective: str, num_ranks: int, num_hosts: int, *, plugin: str | None, at_once: bool
) -> Expectation | str:
    """The range for a group over several hosts, or why there is none.

    `plugin`: "tcpx" or "tcpxo" where NCCL's log names one of these; `at_once`: other groups use the ports too.
    """
    if num_ranks % num_hosts:
        return "the hosts hold different numbers of ranks"
    kind = machine.kind
    if kind is not None and kind.family in ("GB200", "GB300"):
        return _mnnvl(machine, collective, num_ranks)
    if plugin is not None:
        return _as_published(machine, collective, num_ranks, num_hosts, plugin)
    if machine.nics is None:
        return "the network ports are not known"
    if not machine.nics or machine.nic_gbps is None or machine.nic_gbps <= 0:
        return "the speed of the network ports is not known"
    if collective not in JUDGED:
        return f"no figure for {collective} across hosts is published"
    if machine.nics[0].kind == "ethernet":
        return _sockets(machine, num_ranks, num_hosts, at_once=at_once)
    return _rdma(machine, collective, num_ranks, num_hosts, at_once=at_once)


def _rdma(
    machine: Machine, collective: str, num_ranks: int, num_hosts: int, *, at_once: bool
) -> Expectation | str:
    from_bytes = plateau_bytes(num_hosts)
    if from_bytes is None:
        return f"for {num_hosts} hosts no size is published from which on they are at full speed"
    nics, rate = machine.nics or (), machine.nic_gbps or 0.0
    kind = nics[0].kind
    share_low, share_high = PORT_SHARE.get(kind, PORT_SHARE["roce"])
    if kind == "roce" and collective != "all_reduce":
        share_low = PORT_SHARE_ALL_GATHER_ROCE
    per_host = num_ranks // num_hosts
    used = _ports_for_sure(len(nics), machine.gpus or per_host, per_host, at_once=at_once)
    low = used * rate * share_low
    ceiling = len(nics) * rate * _hierarchical(num_ranks, num_hosts)
    high = ceiling * share_high
    words = f"{_count(used)} {kind} ports × {rate:g} GB/s × {share_low:.2f} of the line"
    inside = _inside(machine, collective, per_host)
    known_inside = isinstance(inside, Expectation)
    if isinstance(inside, Expectation):
        if inside.low_gbps < low:
            low, words = inside.low_gbps, f"within each host: {inside.rule}"
        high = max(low, min(high, _inside_high(machine, collective, per_host)))
    elif per_host > 1:
        return f"what the GPUs of one host can do is not known: {inside}"
    return Expectation(
        scheme="rdma",
        low_gbps=low,
        high_gbps=high,
        from_bytes=from_bytes,
        rule=f"{words} = {low:.4g} GB/s" if "ports ×" in words else words,
        source=PORT_SOURCE if "ports ×" in words else RING_SOURCE,
        confidence=_port_confidence(kind, rate, known_inside=known_inside),
        ceiling_gbps=ceiling,
    )


def _inside(machine: Machine, collective: str, per_host: int) -> Expectation | str:
    """Rings cross the hosts' inside as rings, whatever a single host could do with NVLink SHARP."""
    if per_host < 2:
        return "one rank on each host"
    if machine.kind is not None and machine.kind.form == "sxm":
        return ring(machine, collective, per_host)
    return inside_host(machine, collective, per_host)


def _inside_high(machine: Machine, collective: str, per_host: int) -> float:
    best = inside_host(machine, collective, per_host)
    return best.high_gbps if isinstance(best, Expectation) else float("inf")


def _ports_for_sure(ports: int, gpus: int, per_host: int, *, at_once: bool) -> float:
    """Ports that these ranks use at least: those nearest to their GPUs, not the whole host's."""
    gpus = max(gpus, per_host)
    if ports >= gpus:
        return float(ports // gpus * per_host)
    return ports * per_host / gpus if at_once else float(max(1, ports * per_host // gpus))


def _hierarchical(num_ranks: int, num_hosts: int) -> float:
    """busbw over port bandwidth of an algorithm that sends each byte once over the ports."""
    per_host = num_ranks // num_hosts
    return (num_ranks - 1) / (per_host * (num_hosts - 1))


def plateau_bytes(num_hosts: int) -> int | None:
    """Size from which on healthy jobs of so many hosts are at full speed; None beyond what is published."""
    return next((size for hosts, size in PLATEAU_BYTES if num_hosts <= hosts), None)


def _port_confidence(kind: str, rate_gbps: float, *, known_inside: bool) -> Confidence:
    seen = kind in PORT_SHARE and rate_gbps <= 50 and known_inside
    return Confidence.HIGH if seen else Confidence.MEDIUM


def _mnnvl(machine: Machine, collective: str, num_ranks: int) -> Expectation | str:
    links, each = machine.nvlinks or (machine.kind.nvlinks if machine.kind else None), machine.link_gbps
    if num_ranks > MNNVL_MAX_RANKS:
        return f"{num_ranks} ranks span several NVLink domains, and the ports between them are not judged"
    if not links or not each or collective not in RING:
        return f"no figure for {collective} over NVLink across hosts is published"
    low, high = MNNVL_ALL_REDUCE if collective == "all_reduce" else RING[collective]
    if num_ranks < 8:
        low = RING[collective][0]
    total = links * each
    return Expectation(
        scheme="mnnvl",
        low_gbps=low * total,
        high_gbps=high * total,
        from_bytes=MNNVL_PLATEAU_BYTES,
        rule=(
            f"{links} NVLinks × {each:g} GB/s = {total:g} GB/s one way, over all hosts of one NVLink domain; "
            f"{collective} reaches {low:.2f} to {high:.2f} of it"
        ),
        source=MNNVL_SOURCE,
        confidence=Confidence.MEDIUM,
    )


def _as_published(
    machine: Machine, collective: str, num_ranks: int, num_hosts: int, fabric: str
) -> Expectation | str:
    family = machine.kind.family if machine.kind is not None else ""
    same = [
        each
        for each in published_for(gpu=family, collective=collective, several_hosts=True, fabrics=(fabric,))
        if each.num_hosts == num_hosts and each.num_ranks == num_ranks
    ]
    if not same:
        return f"no figure for {collective} on {num_ranks} ranks of {family or 'such GPUs'} over {fabric} is published"
    return _published_range(same, fabric)


def _published_range(same: list[Published], fabric: str) -> Expectation:
    lowest = min(same, key=lambda each: each.busbw_gbps)
    return Expectation(
        scheme="published",
        low_gbps=lowest.busbw_gbps * PUBLISHED_TOLERANCE,
        high_gbps=max(each.busbw_gbps for each in same),
        from_bytes=lowest.size_bytes or GIB,
        rule=f"the same GPUs, ranks and hosts over {fabric} were published at {lowest.in_words}",
        source=lowest.source,
        confidence=Confidence.MEDIUM,
    )


def _sockets(machine: Machine, num_ranks: int, num_hosts: int, *, at_once: bool) -> Expectation | str:
    nics = machine.nics or ()
    rate = machine.nic_gbps or 0.0
    if rate * 8 > SOCKET_MAX_GBIT:
        return f"TCP on a line of {rate * 8:g} Gbit/s is limited by CPUs, and no floor is published"
    if at_once:
        return "groups that run at once share the Ethernet line"
    low = rate * SOCKET_SHARE[0]
    ceiling = len(nics) * rate * _hierarchical(num_ranks, num_hosts)
    return Expectation(
        scheme="sockets",
        low_gbps=low,
        high_gbps=ceiling * SOCKET_SHARE[1],
        from_bytes=SOCKET_PLATEAU_BYTES,
        rule=(
            f"theoretical, not measured: {SOCKET_SHARE[0]:.2f} of one Ethernet line of {rate * 8:g} Gbit/s "
            f"= {low:.3g} GB/s"
        ),
        source="line rate of the interface",
        confidence=Confidence.LOW,
        ceiling_gbps=ceiling,
    )


def _count(used: float) -> str:
    return f"{used:g}"
