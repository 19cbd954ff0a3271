"""Would sockets run over bridges, VPNs or loopback?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.log_hosts import HostsSeen, hosts_of
from distdoctor.nccl_bench.analysis.log_networks import rdma_network
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, Outcome, Passed
from distdoctor.nccl_bench.checks.log_view import least, log_or_reason, override_evidence, unsaid
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import LoggedNic, NcclLog
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team

# Names that container engines, VPNs and virtual machines give to interfaces that do not lead to other hosts, or lead
# there by a detour. Our own list.
_KINDS = (
    ("loopback", re.compile(r"^lo\d*$")),
    (
        "container or VM bridge",
        re.compile(
            r"^(?:docker|br-|virbr|lxcbr|lxdbr|cni|podman|nerdctl|kube-|nodelocaldns|weave|cbr|vmnet|ovs-|dummy)"
        ),
    ),
    ("container link", re.compile(r"^(?:veth|vnet|cali|lxc|cilium|azv|eni[0-9a-f]{8,})")),
    ("overlay", re.compile(r"^(?:flannel|vxlan|geneve|genev|gre\d|gretap|sit\d|ip6tnl|tunl\d|antrea)")),
    (
        "VPN",
        re.compile(r"^(?:tailscale|zt[0-9a-z]{6,}|wg|tun|tap|utun|ppp|nebula|ham\d|wt\d|netbird|nordlynx)"),
    ),
)


def check_interfaces(facts: BenchFacts) -> Sequence[Outcome]:
    """A warning between hosts or where their number is unknown; info where RDMA carries the data."""
    log = log_or_reason(facts)
    if not isinstance(log, NcclLog):
        return [log]
    listed = list(log.socket_interfaces)
    start = log.bootstrap
    if not listed and start is None:
        return [unsaid(facts, "which interfaces it uses")]
    odd = [(nic, kind) for nic in listed if (kind := kind_of(nic.name))]
    odd_start = kind_of(start.name) if start is not None else None
    if not odd and not odd_start:
        names = ", ".join(dict.fromkeys([nic.name for nic in listed] or [start.name if start else ""]))
        return [Passed(detail=f"interfaces: {names}")]
    hosts = hosts_of(facts)
    if hosts.several is False:
        return [Passed(detail=f"{hosts.why}: interfaces that do not lead to other hosts do no harm")]
    return [_found(log, hosts, odd, odd_start)]


def kind_of(name: str) -> str | None:
    """What an interface is that is no way to other hosts: "VPN", "loopback"; None for all others."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), None)


def _found(
    log: NcclLog, hosts: HostsSeen, odd: Sequence[tuple[LoggedNic, str]], odd_start: str | None
) -> Found:
    carried = rdma_network(log)
    only_loopback = (
        bool(odd) and all(kind == "loopback" for _, kind in odd) and len(odd) == len(log.socket_interfaces)
    )
    severity = Severity.WARNING
    if carried and not odd_start:
        severity = Severity.INFO
    elif hosts.several and (only_loopback or odd_start == "loopback"):
        severity = Severity.CRITICAL
    kinds = list(dict.fromkeys([kind for _, kind in odd] + ([odd_start] if odd_start else [])))
    title = f"NCCL's sockets would use interfaces of kind {', '.join(kinds)}"
    if not odd:
        title = f"NCCL sets its connections up over a {odd_start} interface"
    return Found(
        title=title if len(title) <= 80 else "NCCL's sockets would use bridges, VPNs or container links",
        severity=severity,
        confidence=least(hosts.confidence if hosts.several else Confidence.MEDIUM, Confidence.HIGH),
        evidence=_evidence(log, hosts, odd, odd_start),
        explanation=(
            "Without RDMA, NCCL spreads data over all interfaces that it lists, and the first one is told to all other "
            "ranks for the set-up. A bridge or VPN address cannot be reached from another host, or only by a detour: "
            "the job hangs in its first collective, stops with `connection refused`, or crawls."
            + (f" Here {carried} carries the data, and sockets only the set-up." if carried else "")
        ),
        actions=_actions(log),
        scope=Scope(links=tuple(nic.name for nic, _ in odd)),
        cause_class="config:socket_ifname",
        fault=Fault.CONFIG,
    )


def _evidence(
    log: NcclLog, hosts: HostsSeen, odd: Sequence[tuple[LoggedNic, str]], odd_start: str | None
) -> tuple[Evidence, ...]:
    lines = [
        Evidence(
            text=f"{nic.name} ({kind}{f', {nic.address}' if nic.address else ''}) is in the list for sockets",
            expected="cards that join the hosts",
            expected_source="NCCL user guide, NCCL_SOCKET_IFNAME; the list of names is our own",
            source=log.place_of("interfaces"),
        )
        for nic, kind in odd[:8]
    ]
    if odd_start and log.bootstrap is not None:
        text = f"connections are set up over {log.bootstrap.name} ({odd_start})"
        lines.append(Evidence(text=text, source=log.place_of("bootstrap")))
    lines.append(Evidence(text=hosts.why, source=hosts.place or log.origin))
    return (*lines, *override_evidence(log, "NCCL_SOCKET_IFNAME"))


def _actions(log: NcclLog) -> tuple[Action, ...]:
    cards = [nic.name for nic in log.socket_interfaces if not kind_of(nic.name)]
    if cards:
        return (
            Action(
                team=Team.JOB_OWNER,
                text=f"Name the card that joins the hosts, such as {cards[0]} (`=` asks for the whole name)",
                command=f"export NCCL_SOCKET_IFNAME={shlex.quote('=' + cards[0])}",
            ),
        )
    return (
        Action(
            team=Team.JOB_OWNER,
            text="See which card has the address that the other hosts reach, and name it",
            command="ip -br addr; ip route get <address of another host>   # then NCCL_SOCKET_IFNAME='=<card>'",
        ),
    )


CHECK = BenchCheck(id="nccl-log-interfaces", title="interfaces for sockets", run=check_interfaces)
