"""Do this host's name and MASTER_ADDR lead where the other hosts can follow?"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.network_view import join_names, spans_hosts
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import NetworkFacts
from distdoctor.env.predict.gloo import is_loopback, predict_gloo
from distdoctor.env.predict.nccl import values_in_force
from distdoctor.env.predict.subnets import leads_to, reachable_networks
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

GLOO = "torch, ProcessGroupGloo::createDefaultDevice"


def check_hostname_resolution(facts: EnvFacts) -> Sequence[Outcome]:
    """Gloo tells the other ranks the address that the own host name resolves to."""
    network = facts.network
    if network is None or network.hostname_resolves_to is None:
        return [missing(facts, "network.hostname_resolves_to")]
    values = values_in_force(facts.variables) if facts.variables is not None else {}
    if len(values.get("GLOO_SOCKET_IFNAME", "")) > 1:
        return [NotApplicable(detail="GLOO_SOCKET_IFNAME is set, so the name is not used")]
    if spans_hosts(facts) is False:
        return [NotApplicable(detail="the job stays on this host")]
    name = network.hostname or "the own host name"
    found = network.hostname_resolves_to
    if not found:
        return [_bad_name(facts, network, f"host name {name} does not resolve", "it has no address")]
    choice = predict_gloo(network.interfaces or (), values, found)
    first = choice.addresses[0] if choice else found[0]
    if is_loopback(first):
        what = f"it resolves to {join_names(found, 3)}"
        if choice is not None and choice.is_fallback:
            if not network.interfaces:
                return [missing(facts, "network.interfaces")]
            return [_bad_name(facts, network, f"host name {name} resolves to no local address", what)]
        return [_bad_name(facts, network, f"host name {name} resolves to {first}", what)]
    return [Passed(detail=f"{name} resolves to {first}")]


def _bad_name(facts: EnvFacts, network: NetworkFacts, title: str, what: str) -> Found:
    several = spans_hosts(facts)
    return Found(
        key="hostname",
        title=title[:80],
        severity=Severity.WARNING if several else Severity.INFO,
        confidence=Confidence.HIGH if several else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{network.hostname or 'host name'}: {what}",
                value=", ".join(network.hostname_resolves_to or ()),
                expected="an address of this host that the others can reach",
                expected_source=GLOO,
                source=network.sources.get("hostname_resolves_to"),
            ),
        ),
        explanation=(
            "Gloo groups (CPU tensors, object collectives, barriers of some trainers) bind to the address of "
            "the host name, and to 127.0.0.1 when there is none. Other hosts then connect to themselves: "
            "`Connection refused`, or a hang. Debian and Ubuntu write 127.0.1.1 into /etc/hosts."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Let the name resolve to the host's own address (/etc/hosts or DNS)",
                command="getent ahosts $(hostname)",
            ),
            Action(
                team=Team.JOB_OWNER,
                text="Until the name resolves, name the interface for Gloo",
                command="export GLOO_SOCKET_IFNAME=eth0",
            ),
        ),
        fault=Fault.HOST,
    )


def check_master_address(facts: EnvFacts) -> Sequence[Outcome]:
    """MASTER_ADDR must resolve, must not be loopback for several hosts, and must be routable from here."""
    address = facts.scheduler.master_addr if facts.scheduler is not None else None
    if facts.scheduler is None:
        return [missing(facts, "scheduler.master_addr")]
    if not address:
        return [NotApplicable(detail="MASTER_ADDR is not set")]
    network = facts.network
    several = spans_hosts(facts)
    found = (address,) if _is_address(address) else (network.master_addr_resolves_to if network else None)
    if found is None:
        return [missing(facts, "network.master_addr_resolves_to")]
    if not found:
        return [_does_not_resolve(facts, address)]
    if all(is_loopback(each) for each in found):
        if several:
            return [_loopback(facts, address, found)]
        return [Passed(detail=f"MASTER_ADDR {address} is loopback, and the job may stay on this host")]
    unreachable = _unreachable(network, found)
    if unreachable is None:
        return [missing(facts, "network.routes")]
    if unreachable:
        return [_no_route(facts, address, found)]
    return [Passed(detail=f"MASTER_ADDR {address} is {join_names(found, 2)}, which a route leads to")]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _unreachable(network: NetworkFacts | None, found: Sequence[str]) -> bool | None:
    """True when no subnet of this host and no route leads to any of the addresses; None when not known."""
    ways = reachable_networks(network) if network is not None else None
    if ways is None:
        return None
    return not any(leads_to(ways, each) for each in found)


def _does_not_resolve(facts: EnvFacts, address: str) -> Found:
    several = spans_hosts(facts)
    return Found(
        key="unresolved",
        title=f"MASTER_ADDR {address} does not resolve here"[:80],
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH if several else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"the resolver knows no address for `{address}`",
                value=address,
                expected="an address of the host of rank 0",
                expected_source="torch.distributed, environment variable initialization",
                source=facts.network.sources.get("master_addr_resolves_to") if facts.network else None,
            ),
        ),
        explanation="Every rank connects to this name to meet the others; `init_process_group` cannot start.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Use a name that every host resolves, or the IP address of rank 0's host",
                command=f"getent ahosts {shlex.quote(address)}",
            ),
        ),
        cause_class="rendezvous:endpoint_mismatch",
        fault=Fault.CONFIG,
    )


def _loopback(facts: EnvFacts, address: str, found: Sequence[str]) -> Found:
    return Found(
        key="loopback",
        title=f"MASTER_ADDR {address} is loopback, but the job has several hosts"[:80],
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"`{address}` is {join_names(found, 3)}; the job has {_num_hosts(facts)}",
                value=address,
                expected="an address of rank 0's host that the others reach",
                expected_source="torch.distributed, environment variable initialization",
                source=facts.network.sources.get("master_addr_resolves_to") if facts.network else None,
            ),
        ),
        explanation="Each host looks for rank 0 on itself: the ranks never meet, and start-up ends in a timeout.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Use the address of the first host",
                command="export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)   # Slurm",
            ),
        ),
        cause_class="rendezvous:endpoint_mismatch",
        fault=Fault.CONFIG,
    )


def _num_hosts(facts: EnvFacts) -> str:
    number = facts.scheduler.num_nodes if facts.scheduler is not None else None
    return f"{number} hosts" if number else "several hosts"


def _no_route(facts: EnvFacts, address: str, found: Sequence[str]) -> Found:
    return Found(
        key="no-route",
        title=f"no route leads to MASTER_ADDR {address}"[:80],
        severity=Severity.CRITICAL if spans_hosts(facts) else Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{join_names(found, 3)} is in no subnet of this host, and there is no default route",
                value=address,
                expected="a subnet or a route that holds it",
                expected_source="routing table of this host",
                source=facts.network.sources.get("routes") if facts.network else None,
            ),
        ),
        explanation="Ranks on this host cannot reach the meeting point. Nothing was sent to find this out.",
        actions=(
            Action(
                team=Team.NETWORK,
                text="See which way packets would go; add the route, or use an address of a common network",
                command=f"ip route get {shlex.quote(found[0])}",
            ),
        ),
        cause_class="rendezvous:endpoint_mismatch",
        fault=Fault.NETWORK,
    )


HOSTNAME = Check(
    id="hostname-resolution",
    title="address of the own host name",
    run=check_hostname_resolution,
    preflight=True,
)
MASTER = Check(id="master-address", title="MASTER_ADDR", run=check_master_address, preflight=True)
