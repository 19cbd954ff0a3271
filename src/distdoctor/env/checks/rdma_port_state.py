"""Are the RDMA ports up, and as fast as their siblings?

Ports of the same board, link layer, function and port number are siblings: on a host with eight equal cards
one port that differs is a fault, while the unused second port of every card is not.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.network_view import is_active, join_names, port_scope
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.network import RdmaPort
from distdoctor.env.predict.name_filter import NameFilter, parse_name_filter
from distdoctor.env.predict.nccl import MAX_HCAS, port_name, rdma_disabled_by, values_in_force
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

# A port is an odd one out when at least this many siblings are up and at most a quarter of them are not:
# one failed cable on a host, not a second port that nobody uses. Our own thresholds.
MIN_ACTIVE_SIBLINGS = 3
MAX_DOWN_SHARE = 0.25

# Half the siblings' rate or less: a lane or a generation was lost. Our own threshold.
HALF_RATE = 0.5

# 4X SDR: where InfiniBand starts before it negotiates; no card of the last fifteen years stays there.
SDR_GBIT = 10.0

GUIDE = "NCCL user guide, troubleshooting: networking"


def check_rdma_port_state(facts: EnvFacts) -> Sequence[Outcome]:
    """Critical: a port that NCCL would want is down, or all cards are. Unused ports are an info."""
    ports = facts.network.rdma_ports if facts.network else None
    if ports is None:
        return [missing(facts, "network.rdma_ports")]
    if not ports:
        return [NotApplicable(detail="no RDMA device here")]
    known = [port for port in ports if port.state is not None]
    outcomes: list[Outcome] = []
    outcomes += [_unknown(port) for port in ports if port.state is None][:1]
    active = [port for port in known if is_active(port)]
    down = [port for port in known if not is_active(port)]
    no_manager = [port for port in down if _waits_for_manager(port)]
    if known and not active and not no_manager:
        return [*outcomes, _all_down(facts, known)]
    wanted = [port for port in down if _is_wanted(port, known, _named_ports(facts)) or not active]
    outcomes += _down(facts, [port for port in wanted if active and port not in no_manager], active)
    outcomes += _initialising(facts, no_manager, wanted, active)
    outcomes += _slow(facts, active)
    idle = [port for port in down if port not in wanted and port not in no_manager]
    if idle and active:
        outcomes.append(_unused(facts, idle, active))
    if active and not any(isinstance(each, Found) for each in outcomes):
        outcomes.append(Passed(detail=f"{len(active)} of {len(ports)} RDMA ports ACTIVE"))
    return outcomes


def _unknown(port: RdmaPort) -> NotSeen:
    fallback = Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason=f"the state of {port_name(port)} is not shown")
    return NotSeen(unread=port.unread.get("state", fallback), what=f"state of {port_name(port)}")


def _siblings(port: RdmaPort, ports: Sequence[RdmaPort]) -> list[RdmaPort]:
    def place(each: RdmaPort) -> tuple[object, ...]:
        function = each.pci.rpartition(".")[2] if each.pci else None
        return each.board, each.link_layer, function, each.port, each.is_virtual_function

    return [each for each in ports if each is not port and place(each) == place(port)]


def _named_ports(facts: EnvFacts) -> NameFilter | None:
    """NCCL_IB_HCA in force, or None when unset, not known, or RDMA is turned off."""
    if facts.variables is None:
        return None
    values = values_in_force(facts.variables)
    text = values.get("NCCL_IB_HCA", "")
    if not text or rdma_disabled_by(values):
        return None
    return parse_name_filter(text, max_entries=MAX_HCAS)


def _is_wanted(port: RdmaPort, ports: Sequence[RdmaPort], names: NameFilter | None) -> bool:
    if names is not None:
        if not names.admits(port.device, port.port):
            return False
        entry = names.entry_for(port.device, port.port)
        if entry is not None and entry.name == port.device:
            return True  # named in full, not by a prefix such as `mlx5`
    if port.board is None:
        return False
    siblings = _siblings(port, ports)
    up = sum(is_active(each) for each in siblings)
    down = len(siblings) - up + 1
    return up >= MIN_ACTIVE_SIBLINGS and down <= MAX_DOWN_SHARE * (len(siblings) + 1)


def _waits_for_manager(port: RdmaPort) -> bool:
    """Link up, but no subnet manager has configured it: INIT (or, for a moment, ARMED) on InfiniBand."""
    return (port.state or "").upper().startswith(("INIT", "ARM")) and port.link_layer != "Ethernet"


def _evidence(port: RdmaPort, expected: str, source: str) -> Evidence:
    words = [f"state {port.state}"]
    if port.phys_state:
        words.append(f"physical state {port.phys_state}")
    if port.link_layer:
        words.append(port.link_layer)
    # The rate of a port that is down is the slowest one it could start with, so it is left out.
    return Evidence(
        text=f"{port_name(port)}: {', '.join(words)}",
        value=port.state,
        expected=expected,
        expected_source=source,
        source=port.sources.get("state"),
    )


def _look(port: RdmaPort) -> str:
    if port.link_layer == "Ethernet" and port.netdev:
        return f"ethtool {shlex.quote(port.netdev)}; ip -s link show {shlex.quote(port.netdev)}"
    return f"ibstat {shlex.quote(port.device)} {port.port}; mlxlink -d {shlex.quote(port.device)} -p {port.port} -e"


def _key(kind: str, ports: Sequence[RdmaPort]) -> str:
    return f"{kind}:" + ",".join(port_name(port) for port in ports)


def _num_cards(ports: Sequence[RdmaPort]) -> int:
    """Cards by PCI slot; without PCI addresses two devices may be the two ports of one card."""
    slots = {port.pci.rpartition(".")[0] if port.pci else None for port in ports}
    if None not in slots:
        return len(slots)
    return (len({port.device for port in ports}) + 1) // 2


def _all_down(facts: EnvFacts, ports: Sequence[RdmaPort]) -> Found:
    several_cards = _num_cards(ports) > 1
    names = _named_ports(facts)
    named = (
        names is not None
        and not names.excludes
        and any(names.admits(each.device, each.port) for each in ports)
    )
    return Found(
        key="all-down",
        title=f"no RDMA port is up ({len(ports)} ports): this host cannot use RDMA"[:80],
        severity=Severity.CRITICAL if several_cards or named else Severity.WARNING,
        confidence=Confidence.HIGH if several_cards or named else Confidence.LOW,
        evidence=tuple(_evidence(port, "ACTIVE on the ports that a job uses", GUIDE) for port in ports[:16]),
        explanation=(
            "NCCL uses only ACTIVE ports. Without one it falls back to TCP sockets, or the job fails when the "
            "other hosts use RDMA. `Disabled` means switched off or no cable, `Polling` no peer at the other end."
        ),
        actions=(
            Action(
                team=Team.NETWORK,
                text="Look at the cable, the switch port and the driver",
                command=_look(ports[0]),
            ),
        ),
        scope=port_scope(facts, ports),
        cause_class="network:link_down",
        fault=Fault.NETWORK,
    )


def _down(facts: EnvFacts, ports: Sequence[RdmaPort], active: Sequence[RdmaPort]) -> list[Outcome]:
    if not ports:
        return []
    names = join_names([port_name(port) for port in ports], 3)
    listed = _named_ports(facts)
    by_name = listed is not None and not listed.excludes
    # Without PCI addresses (pasted text) a port may be the unused second one of its card.
    sure = by_name or all(port.pci is not None for port in ports)
    return [
        Found(
            key=_key("down", ports),
            title=f"RDMA port {names} is not ACTIVE, {len(active)} others are"[:80],
            severity=Severity.CRITICAL,
            confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
            evidence=tuple(
                _evidence(port, "ACTIVE, as its siblings", "equal cards of this host") for port in ports
            ),
            explanation=(
                "NCCL leaves this port out. The GPUs beside it share the other cards, and hosts with unequal "
                "sets of ports run slowly or hang."
            ),
            actions=(
                Action(
                    team=Team.NETWORK,
                    text="Look at the cable and the switch port; keep the host out of large jobs until it is up",
                    command=_look(ports[0]),
                ),
            ),
            scope=port_scope(facts, ports),
            cause_class="network:link_down",
            fault=Fault.NETWORK,
        )
    ]


def _initialising(
    facts: EnvFacts, ports: Sequence[RdmaPort], wanted: Sequence[RdmaPort], active: Sequence[RdmaPort]
) -> list[Outcome]:
    if not ports:
        return []
    critical = any(port in wanted for port in ports)
    return [
        Found(
            key=_key("init", ports),
            title=f"{join_names([port_name(port) for port in ports], 3)}: link up, no subnet manager"[:80],
            severity=Severity.CRITICAL if critical else Severity.WARNING,
            confidence=Confidence.HIGH,
            evidence=tuple(
                _evidence(port, f"ACTIVE, as {len(active)} other ports", "InfiniBand port states")
                for port in ports
            ),
            explanation=(
                "The cable and its peer are there, but no subnet manager has given the port an address (LID). "
                "It cannot be used until one does."
            ),
            actions=(
                Action(
                    team=Team.NETWORK,
                    text="See whether a subnet manager runs on that fabric",
                    command=f"sminfo -C {shlex.quote(ports[0].device)} -P {ports[0].port}",
                ),
            ),
            scope=port_scope(facts, ports),
            cause_class="network:link_down",
            fault=Fault.NETWORK,
        )
    ]


def _slow(facts: EnvFacts, active: Sequence[RdmaPort]) -> list[Outcome]:
    """ACTIVE ports below the rate that most of their siblings have, or stuck at SDR."""
    found: list[Outcome] = []
    for port in active:
        usual = _usual_rate([each for each in _siblings(port, active) if each.board is not None])
        if port.rate_gbit is None or port.is_efa:
            continue
        if usual is not None and port.rate_gbit < usual:
            found.append(_below(facts, port, usual, "equal cards of this host"))
        elif usual is None and port.link_layer == "InfiniBand" and port.rate_gbit <= SDR_GBIT:
            found.append(_below(facts, port, None, "InfiniBand link speeds"))
    return found


def _usual_rate(siblings: Sequence[RdmaPort]) -> float | None:
    rates = Counter(port.rate_gbit for port in siblings if port.rate_gbit is not None)
    if not rates:
        return None
    rate, count = rates.most_common(1)[0]
    return rate if count >= 2 and count > sum(rates.values()) / 2 else None


def _below(facts: EnvFacts, port: RdmaPort, usual: float | None, source: str) -> Found:
    rate = port.rate_gbit or 0.0
    by_far = usual is not None and rate <= usual * HALF_RATE
    compared = f", its siblings at {usual:g}" if usual is not None else " (SDR)"
    return Found(
        key=f"rate:{port_name(port)}",
        title=f"{port_name(port)} runs at {rate:g} Gb/s{compared}"[:80],
        severity=Severity.CRITICAL if by_far else Severity.WARNING,
        confidence=Confidence.HIGH if usual is not None else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{port_name(port)} is ACTIVE at {rate:g} Gb/s",
                value=rate,
                unit="Gb/s",
                expected=f"{usual:g} Gb/s" if usual is not None else f"more than {SDR_GBIT:g} Gb/s",
                expected_source=source,
                source=port.sources.get("rate_gbit"),
            ),
        ),
        explanation="The link was negotiated with fewer lanes or at a lower generation; collectives wait for it.",
        actions=(Action(team=Team.NETWORK, text="Look at cable and transceiver", command=_look(port)),),
        scope=port_scope(facts, (port,)),
        cause_class="network:link_down",
        fault=Fault.NETWORK,
    )


def _unused(facts: EnvFacts, ports: Sequence[RdmaPort], active: Sequence[RdmaPort]) -> Found:
    return Found(
        key=_key("unused", ports),
        title=("1 RDMA port is" if len(ports) == 1 else f"{len(ports)} RDMA ports are")
        + f" not in use, {len(active)} {'is' if len(active) == 1 else 'are'} ACTIVE",
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=tuple(_evidence(port, "ACTIVE if it is meant to carry a job", GUIDE) for port in ports[:16]),
        explanation="No cable, switched off, or another network: nothing says that a job would want them.",
        actions=(),
        scope=port_scope(facts, ports),
        fault=Fault.NETWORK,
    )


CHECK = Check(
    id="rdma-port-state",
    title="state and rate of RDMA ports",
    run=check_rdma_port_state,
    preflight=True,
)
