"""RoCE: which GID would be used, and how large may a packet be?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.network_view import (
    hca_choice,
    is_active,
    join_names,
    nccl_version,
    port_scope,
    spans_hosts,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import GidEntry, RdmaPort
from distdoctor.env.predict.gid import GidChoice, gid_ipv4, is_link_local, predict_gid, roce_version
from distdoctor.env.predict.nccl import port_name, values_in_force
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

NCCL_GUIDE = "NCCL user guide, NCCL_IB_GID_INDEX"

# The largest payload of an RDMA packet.
BEST_MTU = 4096

# What Linux takes off the interface's MTU for RoCE headers (iboe_get_mtu, include/rdma/ib_addr.h): GRH 40,
# UDP 8, BTH 12, XRC 4, atomics 28, ICRC 4 bytes.
ROCE_HEADER_BYTES = 96


def roce_ports(facts: EnvFacts) -> list[RdmaPort] | NotSeen:
    """ACTIVE Ethernet ports, those that NCCL would use where that is known."""
    ports = facts.network.rdma_ports if facts.network else None
    if ports is None:
        return missing(facts, "network.rdma_ports")
    choice = hca_choice(facts)
    candidates = ports if isinstance(choice, NotSeen) else choice.chosen
    return [
        port for port in candidates if port.link_layer == "Ethernet" and is_active(port) and not port.is_efa
    ]


def check_roce_gid(facts: EnvFacts) -> Sequence[Outcome]:
    """Every RoCE port must give NCCL a routable RoCE v2 address."""
    ports = roce_ports(facts)
    if isinstance(ports, NotSeen):
        return [ports]
    if not ports:
        return [NotApplicable(detail="no ACTIVE RoCE port that NCCL would use")]
    if facts.variables is None:
        return [missing(facts, "variables.environment")]
    values = values_in_force(facts.variables)
    outcomes: list[Outcome] = []
    good = 0
    for port in ports:
        choice = predict_gid(port, values, nccl_version=nccl_version(facts))
        if choice is None:
            reason = port.unread.get("gids")
            what = f"GIDs of {port_name(port)}"
            outcomes.append(
                NotSeen(unread=reason, what=what) if reason else missing(facts, "network.gids", what=what)
            )
            continue
        found = _judge(facts, port, choice, values)
        outcomes += [found] if found else []
        good += found is None
    if good and not any(isinstance(each, Found) for each in outcomes):
        outcomes.append(
            Passed(detail=f"{good} of {len(ports)} RoCE ports have a RoCE v2 address that NCCL would use")
        )
    return outcomes


def _judge(facts: EnvFacts, port: RdmaPort, choice: GidChoice, values: Mapping[str, str]) -> Found | None:
    wants_ipv6 = values.get("NCCL_IB_ADDR_FAMILY") == "AF_INET6"
    wants_v1 = values.get("NCCL_IB_ROCE_VERSION_NUM") == "1"
    entry = choice.entry
    if entry is None:
        return _bad(facts, port, choice, "holds no address", Severity.CRITICAL)
    version = roce_version(entry)
    if version == 1 and not wants_v1:
        return _bad(facts, port, choice, "is RoCE v1", _for_v1(facts))
    if gid_ipv4(entry) is None and is_link_local(entry):
        return _bad(facts, port, choice, "is link-local", _for_v1(facts))
    if gid_ipv4(entry) is None and not wants_ipv6 and choice.why.startswith("NCCL_IB_GID_INDEX"):
        return _bad(facts, port, choice, "is an IPv6 address", Severity.INFO)
    if version is None:
        return None  # the kind is hidden in this container; the address itself is fine
    return None


def _for_v1(facts: EnvFacts) -> Severity:
    """RoCE v1 and link-local addresses work within one Ethernet segment, and through no router."""
    return Severity.WARNING if spans_hosts(facts) is False else Severity.CRITICAL


def _bad(facts: EnvFacts, port: RdmaPort, choice: GidChoice, what: str, severity: Severity) -> Found:
    forced = choice.why.startswith("NCCL_IB_GID_INDEX")
    good = [entry for entry in port.gids or () if _is_good(entry)]
    lead = (
        f"NCCL_IB_GID_INDEX={choice.index}" if forced else f"the address NCCL would use (row {choice.index})"
    )
    return Found(
        key=f"{'index' if forced else 'none'}:{port_name(port)}",
        title=f"{port_name(port)}: {lead} {what}"[:80],
        severity=severity,
        confidence=Confidence.HIGH
        if severity is Severity.CRITICAL and choice.entry is None
        else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"row {choice.index} of {port_name(port)}: {_row(choice.entry)} ({choice.why})",
                value=choice.index,
                expected="a RoCE v2 row with the port's IPv4 address",
                expected_source=NCCL_GUIDE,
                source=port.sources.get("gids"),
            ),
            *(
                Evidence(
                    text=f"row {entry.index} would do: {_row(entry)}",
                    value=entry.index,
                    source=port.sources.get("gids"),
                )
                for entry in good[:4]
            ),
        ),
        explanation=(
            "RoCE packets carry this address. RoCE v1 and link-local addresses pass no router, and an empty row "
            "cannot be used at all; NCCL reports `ibv_modify_qp failed` or completion error 12."
        ),
        actions=_remedy(port, good, forced),
        scope=port_scope(facts, (port,)),
        cause_class="network:roce_gid",
        fault=Fault.CONFIG if forced else Fault.NETWORK,
    )


def _is_good(entry: GidEntry) -> bool:
    return roce_version(entry) == 2 and not is_link_local(entry)


def _row(entry: GidEntry | None) -> str:
    if entry is None:
        return "empty, or hidden from this container"
    address = gid_ipv4(entry)
    return f"{address or entry.gid}, {entry.kind or 'kind hidden'}"


def _remedy(port: RdmaPort, good: Sequence[GidEntry], forced: bool) -> tuple[Action, ...]:
    if forced and any(gid_ipv4(entry) is not None for entry in good):
        text = "NCCL 2.21 and later finds the row by itself: unset the variable"
        return (Action(team=Team.JOB_OWNER, text=text, command="unset NCCL_IB_GID_INDEX"),)
    if good and not any(gid_ipv4(entry) is not None for entry in good):
        text = "The port has IPv6 addresses only: ask for that family"
        return (Action(team=Team.JOB_OWNER, text=text, command="export NCCL_IB_ADDR_FAMILY=AF_INET6"),)
    if good:
        text = "Upgrade NCCL to 2.21 or later, or name the row"
        return (Action(team=Team.JOB_OWNER, text=text, command=f"export NCCL_IB_GID_INDEX={good[0].index}"),)
    netdev = shlex.quote(port.netdev) if port.netdev else "NETDEV"
    text = f"Give the interface of {port_name(port)} an IP address and the port RoCE v2"
    return (
        Action(team=Team.NETWORK, text=text, command=f"ip address show {netdev}; show_gids {port.device}"),
    )


def active_mtu(facts: EnvFacts, port: RdmaPort) -> int | None:
    """Payload bytes of a packet: as printed, or by the kernel's rule from the MTU of the port's interface."""
    if port.active_mtu is not None:
        return port.active_mtu
    interface = netdev_mtu(facts, port)
    if interface is None:
        return None
    room = interface - ROCE_HEADER_BYTES
    return next((size for size in (4096, 2048, 1024, 512) if room >= size), 256)


def netdev_mtu(facts: EnvFacts, port: RdmaPort) -> int | None:
    """MTU in bytes of the interface of a RoCE port."""
    interfaces = facts.network.interfaces if facts.network else None
    return next((each.mtu for each in interfaces or () if each.name == port.netdev), None)


def check_mtu(facts: EnvFacts) -> Sequence[Outcome]:
    """Unequal MTUs among the RoCE ports of a host are a warning, small ones an info."""
    ports = roce_ports(facts)
    if isinstance(ports, NotSeen):
        return [ports]
    if not ports:
        return [NotApplicable(detail="no ACTIVE RoCE port that NCCL would use")]
    sizes = {port_name(port): active_mtu(facts, port) for port in ports}
    known = {name: size for name, size in sizes.items() if size is not None}
    if not known:
        return [missing(facts, "network.mtu", what="MTU of the RoCE ports")]
    if len(set(known.values())) > 1:
        return [_unequal(facts, ports, known)]
    smallest = next(iter(known.values()))
    if smallest < BEST_MTU:
        return [_small(facts, ports, smallest)]
    return [Passed(detail=f"active MTU {smallest} on {len(known)} RoCE ports")]


def _mtu_evidence(facts: EnvFacts, port: RdmaPort, size: int) -> Evidence:
    interface = netdev_mtu(facts, port)
    derived = f", from MTU {interface} of {port.netdev}" if port.active_mtu is None and interface else ""
    return Evidence(
        text=f"{port_name(port)}: active MTU {size}{derived}",
        value=size,
        unit="bytes",
        expected=str(BEST_MTU),
        expected_source="InfiniBand specification: largest MTU",
        source="/sys/class/net/*/mtu",
    )


def _unequal(facts: EnvFacts, ports: Sequence[RdmaPort], sizes: Mapping[str, int]) -> Found:
    values = list(sizes.values())
    usual = max(set(values), key=lambda size: (values.count(size), size))
    odd = [port for port in ports if sizes.get(port_name(port), usual) != usual]
    return Found(
        key="unequal",
        title=f"MTU of {join_names([port_name(port) for port in odd], 3)} differs from the other ports"[:80],
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=tuple(
            _mtu_evidence(facts, port, sizes[port_name(port)]) for port in ports if port_name(port) in sizes
        ),
        explanation="Two ends of a connection must agree on the MTU; a switch in between drops what is too large.",
        actions=(
            Action(
                team=Team.NETWORK,
                text="Give all RoCE interfaces and switch ports the same MTU (9000 is usual)",
            ),
        ),
        scope=port_scope(facts, odd),
        cause_class="network:mtu_mismatch",
        fault=Fault.NETWORK,
    )


def _small(facts: EnvFacts, ports: Sequence[RdmaPort], size: int) -> Found:
    return Found(
        key="small",
        title=f"RoCE packets carry {size} bytes; {BEST_MTU} are possible"[:80],
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=tuple(_mtu_evidence(facts, port, size) for port in ports[:8]),
        explanation="Smaller packets cost a few per cent of bandwidth. Clouds sometimes allow no more.",
        actions=(
            Action(
                team=Team.NETWORK,
                text="If the switches allow it, raise the interface's MTU to 4200 or more on all hosts",
                command=f"ip link show {shlex.quote(ports[0].netdev or 'NETDEV')}",
            ),
        ),
        scope=port_scope(facts, ports),
        fault=Fault.NETWORK,
    )


GID = Check(id="roce-gid", title="RoCE addresses (GID table)", run=check_roce_gid, preflight=True)
MTU = Check(id="mtu-odd", title="MTU of RoCE ports", run=check_mtu, preflight=True)
