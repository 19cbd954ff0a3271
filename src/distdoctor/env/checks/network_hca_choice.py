"""Which RDMA ports would NCCL use, and are they the ones that were meant?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.network_interface_filters import origin_of
from distdoctor.env.checks.network_view import (
    hca_choice,
    is_active,
    join_names,
    links,
    port_scope,
    spans_hosts,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import RdmaPort
from distdoctor.env.predict.name_filter import FilterEntry, NameFilter
from distdoctor.env.predict.nccl import Prediction, port_name
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

NCCL_GUIDE = "NCCL user guide, NCCL_IB_HCA"


def check_hca_choice(facts: EnvFacts) -> Sequence[Outcome]:
    """A list that leaves no port is critical; one that takes more, less or a mixture is a warning."""
    choice = hca_choice(facts)
    if isinstance(choice, NotSeen):
        return [choice]
    ports = facts.network.rdma_ports if facts.network else None
    if not ports:
        return [NotApplicable(detail="no RDMA device here")]
    if choice.variable not in (None, "NCCL_IB_HCA"):
        return [NotApplicable(detail=choice.why)]
    if all(port.is_efa for port in ports):
        return [NotApplicable(detail="only EFA devices, which a plugin uses")]
    if choice.filter is None and not choice.chosen:
        return [NotApplicable(detail="no RDMA port that NCCL could use is ACTIVE")]
    outcomes: list[Outcome] = []
    if choice.filter is not None:
        outcomes += _filter_faults(facts, choice, choice.filter, ports)
    outcomes += _mixture(facts, choice.chosen)
    outcomes += _slower(facts, choice)
    names = join_names([port_name(port) for port in choice.chosen])
    return outcomes or [Passed(detail=f"NCCL would use {names} ({choice.why})")]


def _filter_faults(
    facts: EnvFacts, choice: Prediction[RdmaPort], names: NameFilter, ports: Sequence[RdmaPort]
) -> list[Outcome]:
    if not choice.chosen:
        return [_nothing_chosen(facts, choice, names, ports)]
    if names.excludes:
        return []
    found: list[Outcome] = []
    matches = {entry: _matches(names, entry, ports) for entry in names.entries}
    absent = [entry for entry, matched in matches.items() if not matched]
    if absent:
        found.append(_absent(facts, names, absent, len(choice.chosen)))
    down = [
        port for port in ports if names.admits(port.device, port.port) and port.state and not is_active(port)
    ]
    if down:
        found.append(_down(facts, names, down, len(choice.chosen)))
    if not names.exact:
        found += _prefix_takes_more(facts, matches)
    return found


def _matches(names: NameFilter, entry: FilterEntry, ports: Sequence[RdmaPort]) -> list[RdmaPort]:
    return [port for port in ports if names.entry_matches(entry, port.device, port.port)]


def _nothing_chosen(
    facts: EnvFacts, choice: Prediction[RdmaPort], names: NameFilter, ports: Sequence[RdmaPort]
) -> Found:
    several = spans_hosts(facts)
    return Found(
        key="nothing",
        title=f"NCCL_IB_HCA={names.text} leaves NCCL no RDMA port"[:80],
        severity=Severity.CRITICAL if several else Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"NCCL_IB_HCA is `{names.text}`; no port that is ACTIVE and openable is admitted",
                value=names.text,
                expected="at least one ACTIVE port",
                expected_source=NCCL_GUIDE,
                source=origin_of(facts, "NCCL_IB_HCA"),
            ),
            *_rejected(choice.rejected, ports),
        ),
        explanation=(
            "NCCL says `NET/IB : No device found` and goes on over TCP sockets: the job runs, and data between "
            "hosts moves many times slower."
        ),
        actions=(_name_active(ports),),
        scope=port_scope(facts, ports),
        cause_class="network:unreachable_peer",
        fault=Fault.CONFIG,
    )


def _rejected(rejected: Mapping[str, str], ports: Sequence[RdmaPort]) -> list[Evidence]:
    return [
        Evidence(text=f"{name}: {rejected[name]}", value=name, source="/sys/class/infiniband")
        for name in map(port_name, ports)
        if name in rejected
    ][:12]


def _name_active(ports: Sequence[RdmaPort]) -> Action:
    active = [port.device for port in ports if is_active(port) and not port.is_efa]
    value = "=" + ",".join(dict.fromkeys(active))
    command = f"export NCCL_IB_HCA={shlex.quote(value)}" if active else "unset NCCL_IB_HCA"
    return Action(
        team=Team.JOB_OWNER, text="Name the ports of the compute network, or unset it", command=command
    )


def _absent(facts: EnvFacts, names: NameFilter, absent: Sequence[FilterEntry], used: int) -> Found:
    shown = [entry.name if entry.port is None else f"{entry.name}:{entry.port}" for entry in absent]
    return Found(
        key="absent:" + ",".join(shown),
        title=f"NCCL_IB_HCA names {join_names(shown, 3)}, which this host lacks"[:80],
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"{len(shown)} of {len(names.entries)} names match no device: {join_names(shown)}",
                value=names.text,
                expected="every name a device of this host",
                expected_source=NCCL_GUIDE,
                source=origin_of(facts, "NCCL_IB_HCA"),
            ),
            Evidence(text=f"ports that NCCL would use: {used}", value=used),
        ),
        explanation="A list from another kind of machine leaves network cards unused without a message.",
        actions=(_name_active(facts.network.rdma_ports or () if facts.network else ()),),
        scope=links(facts, shown),
        fault=Fault.CONFIG,
    )


def _down(facts: EnvFacts, names: NameFilter, down: Sequence[RdmaPort], used: int) -> Found:
    shown = [port_name(port) for port in down]
    return Found(
        key="down:" + ",".join(shown),
        title=f"NCCL_IB_HCA names {join_names(shown, 3)}, not ACTIVE"[:80],
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(
            *(
                Evidence(
                    text=f"{port_name(port)}: state {port.state}",
                    value=port.state,
                    source="/sys/class/infiniband",
                )
                for port in down
            ),
            Evidence(
                text=f"ports that NCCL would use: {used}", value=used, source=f"NCCL_IB_HCA={names.text}"
            ),
        ),
        explanation="NCCL leaves out a port that is not ACTIVE without a message, so this host has less bandwidth.",
        actions=(
            Action(
                team=Team.NETWORK,
                text="Bring the port up, or take it off the list",
                command=f"ibstat {shlex.quote(down[0].device)} {down[0].port}",
            ),
        ),
        scope=port_scope(facts, down),
        cause_class="network:link_down",
        fault=Fault.NETWORK,
    )


def _prefix_takes_more(facts: EnvFacts, matches: Mapping[FilterEntry, Sequence[RdmaPort]]) -> list[Outcome]:
    """`mlx5_1` also admits mlx5_10 to mlx5_19; a bare `mlx5` is meant as a prefix."""
    listed = {entry.name for entry in matches}
    found: list[Outcome] = []
    for entry, matched in matches.items():
        more = [port for port in matched if port.device not in listed and is_active(port)]
        if not more or all(port.device != entry.name for port in matched):
            continue
        shown = [port_name(port) for port in more]
        found.append(
            Found(
                key=f"prefix:{entry.name}",
                title=f"NCCL_IB_HCA={entry.name} also takes {join_names(shown, 3)}"[:80],
                severity=Severity.WARNING,
                confidence=Confidence.HIGH,
                evidence=(
                    Evidence(
                        text=f"`{entry.name}` is a prefix: it admits {join_names([port_name(p) for p in matched])}",
                        value=entry.name,
                        expected_source=NCCL_GUIDE,
                        source=origin_of(facts, "NCCL_IB_HCA"),
                    ),
                ),
                explanation="NCCL compares beginnings of names; the ports taken along may belong to another network.",
                actions=(
                    Action(
                        team=Team.JOB_OWNER,
                        text="Ask for whole names with one `=` in front of the list",
                        command=f"export NCCL_IB_HCA={shlex.quote('=' + ','.join(sorted(listed)))}",
                    ),
                ),
                scope=port_scope(facts, more),
                fault=Fault.CONFIG,
            )
        )
    return found


def _mixture(facts: EnvFacts, chosen: Sequence[RdmaPort]) -> list[Outcome]:
    layers: dict[str, list[RdmaPort]] = {}
    for port in chosen:
        if port.link_layer:
            layers.setdefault(port.link_layer, []).append(port)
    several = spans_hosts(facts)
    if len(layers) < 2 or several is False:
        return []
    fewest = min(layers.values(), key=len)
    return [
        Found(
            key="mixed",
            title="NCCL would use InfiniBand and Ethernet ports together",
            severity=Severity.WARNING if several else Severity.INFO,
            confidence=Confidence.MEDIUM,
            evidence=tuple(
                Evidence(
                    text=f"{layer}: {join_names([port_name(port) for port in ports])}",
                    value=len(ports),
                    unit="ports",
                    source="/sys/class/infiniband/*/ports/*/link_layer",
                )
                for layer, ports in sorted(layers.items())
            ),
            explanation=(
                "The two kinds are different networks. If a pair of hosts takes an InfiniBand port on one side "
                "and an Ethernet port on the other, the connection waits until it times out (completion error 12)."
            ),
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="Name the ports of the compute network only",
                    command=_command([port for port in chosen if port not in fewest]),
                ),
            ),
            scope=port_scope(facts, fewest),
            fault=Fault.CONFIG,
        )
    ]


def _slower(facts: EnvFacts, choice: Prediction[RdmaPort]) -> list[Outcome]:
    """Slower ports of another kind of card: often the storage network. (Same board: see rdma-port-state.)"""
    rated = [port for port in choice.chosen if port.rate_gbit is not None and port.board is not None]
    if not rated or spans_hosts(facts) is False:
        return []
    best = max(port.rate_gbit or 0 for port in rated)
    fast_boards = {port.board for port in rated if port.rate_gbit == best}
    fast = [port for port in rated if port.board in fast_boards]
    slow = [port for port in rated if port.board not in fast_boards and (port.rate_gbit or 0) < best]
    if not slow or len({port.link_layer for port in rated}) > 1:
        return []
    return [
        Found(
            key="slower:" + ",".join(port_name(port) for port in slow),
            title=f"slower ports among NCCL's: {join_names([port_name(port) for port in slow], 3)}"[:80],
            severity=Severity.INFO,
            confidence=Confidence.LOW,
            evidence=(
                *(
                    Evidence(
                        text=f"{port_name(port)}: {port.rate_gbit:g} Gb/s ({port.board})",
                        value=port.rate_gbit,
                        unit="Gb/s",
                        expected=f"{best:g} Gb/s, as {len(fast)} other ports",
                        expected_source="ports of this host",
                        source="/sys/class/infiniband/*/ports/*/rate",
                    )
                    for port in slow
                ),
            ),
            explanation="A slower card of another kind is often for storage; a ring through it is as slow as it is.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="If they are not for this job's traffic, name the others",
                    command=_command(fast),
                ),
            ),
            scope=port_scope(facts, slow),
            fault=Fault.CONFIG,
        )
    ]


def _command(ports: Sequence[RdmaPort]) -> str | None:
    devices = ",".join(dict.fromkeys(port.device for port in ports))
    return f"export NCCL_IB_HCA={shlex.quote('=' + devices)}" if devices else None


CHECK = Check(
    id="network-hca-choice",
    title="RDMA ports that NCCL would use",
    run=check_hca_choice,
    preflight=True,
)
