"""Do the error counters of RDMA ports tell of a bad link?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.network_view import is_active, join_names, port_scope
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import RdmaPort
from distdoctor.env.predict.nccl import port_name
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# Errors of the link itself. Growth while we look is a bad cable, transceiver or port.
LINK_COUNTERS = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "rx_icrc_encapsulated",
)

# Lost or late packets: congestion or a bad link further on.
LOSS_COUNTERS = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "port_xmit_discards",
    "roce_adp_retrans",
)

# Up to here, and equal on all ports, is what a restart of the host or the switch leaves. Our own threshold.
COMMON_LINK_DOWNS = 3

# So many times the median of the siblings stands out. Our own threshold.
STANDS_OUT = 5

RESET = "perfquery -R (InfiniBand) or a driver reload sets them to zero; when that was is not recorded"


def check_rdma_port_counters(facts: EnvFacts) -> Sequence[Outcome]:
    """Growth between two samples is critical (link lost) or a warning; totals of unknown age are a lead."""
    ports = facts.network.rdma_ports if facts.network else None
    if ports is None:
        return [missing(facts, "network.rdma_ports")]
    if not ports:
        return [NotApplicable(detail="no RDMA device here")]
    readable = [port for port in ports if port.counters]
    unread = [port for port in ports if is_active(port) and not port.counters and not port.is_efa]
    outcomes: list[Outcome] = []
    if unread:
        reason = unread[0].unread.get("counters")
        what = f"error counters of {join_names([port_name(port) for port in unread], 3)}"
        outcomes.append(
            NotSeen(unread=reason, what=what) if reason else missing(facts, "network.counters", what=what)
        )
    if not readable:
        return outcomes or [NotApplicable(detail="no ACTIVE port with error counters")]
    outcomes += [found for port in readable for found in _growth(facts, port)]
    outcomes += _totals(facts, readable)
    if not any(isinstance(each, Found) for each in outcomes):
        sampled = [port for port in readable if port.counters_window_s is not None]
        how = f"in {sampled[0].counters_window_s:.0f} s" if sampled else "since they were last reset"
        outcomes.append(Passed(detail=f"no link errors on {len(readable)} ports {how}"))
    return outcomes


def _growth(facts: EnvFacts, port: RdmaPort) -> list[Found]:
    grown = {name: value for name, value in port.counters_growth.items() if value > 0}
    names = [name for name in (*LINK_COUNTERS, *LOSS_COUNTERS) if name in grown]
    if not names:
        return []
    lost = "link_downed" in names
    link = any(name in LINK_COUNTERS for name in names)
    window = f"{port.counters_window_s:.0f} s" if port.counters_window_s is not None else "the window"
    return [
        Found(
            key=f"growth:{port_name(port)}",
            title=f"{port_name(port)}: {names[0]} grew by {grown[names[0]]} in {window}"[:80],
            severity=Severity.CRITICAL if lost else Severity.WARNING,
            confidence=Confidence.HIGH if link else Confidence.MEDIUM,
            evidence=tuple(
                Evidence(
                    text=f"{name} on {port_name(port)}: +{grown[name]} in {window}",
                    value=grown[name],
                    expected="0",
                    expected_source="our own threshold",
                    source="two readings of /sys/class/infiniband/*/ports/*/{counters,hw_counters}",
                )
                for name in names
            ),
            explanation=(
                "The link went down while we looked."
                if lost
                else "The link drops or repeats packets now; collectives slow down and may time out."
            ),
            actions=(
                Action(
                    team=Team.NETWORK,
                    text="Clean or replace cable and transceiver; see the switch side of the port",
                    command=f"mlxlink -d {port.device} -p {port.port} -c -e",
                ),
            ),
            scope=port_scope(facts, (port,)),
            cause_class="network:link_down" if lost else None,
            fault=Fault.NETWORK,
        )
    ]


def _totals(facts: EnvFacts, ports: Sequence[RdmaPort]) -> list[Found]:
    downs = {
        port_name(port): port.counters["link_downed"] for port in ports if "link_downed" in port.counters
    }
    shown = [
        port
        for port in ports
        if downs.get(port_name(port), 0) > 0 and not port.counters_growth.get("link_downed")
    ]
    if not shown:
        return []
    counts = sorted(downs.values())
    common = len(counts) > 1 and counts[-1] <= COMMON_LINK_DOWNS and counts[-1] - counts[0] <= 1
    usual = median(counts)
    odd = (
        [port for port in shown if downs[port_name(port)] >= STANDS_OUT * max(1, usual)]
        if len(counts) > 2
        else []
    )
    accused = odd or shown
    worst = max(downs[port_name(port)] for port in accused)
    names = join_names([port_name(port) for port in accused], 2)
    return [
        Found(
            key="link_downed:" + ",".join(port_name(port) for port in accused),
            title=f"{names} lost the link up to {worst} times since an unknown date"[:80],
            severity=Severity.INFO if common else Severity.WARNING,
            confidence=Confidence.MEDIUM if odd else Confidence.LOW,
            evidence=tuple(
                Evidence(
                    text=f"link_downed on {port_name(port)}: {downs[port_name(port)]}",
                    value=downs[port_name(port)],
                    expected=f"0; the median of this host's {len(counts)} ports is {usual:g}",
                    expected_source="ports of this host; " + RESET,
                    source=f"/sys/class/infiniband/{port.device}/ports/{port.port}/counters/link_downed",
                )
                for port in accused[:16]
            ),
            explanation=(
                "The counter holds every loss since it was last reset, restarts included. "
                "Only growth during a job shows a bad link."
            ),
            actions=(
                Action(
                    team=Team.NETWORK,
                    text="Take a second sample while the job runs, and look for link events in the kernel log",
                    command="dmesg -T | grep -iE 'mlx5.*link|ib[0-9].*link|port [0-9]+ (de)?activ'",
                ),
            ),
            scope=port_scope(facts, accused),
            fault=Fault.NETWORK,
        )
    ]


CHECK = Check(
    id="rdma-port-counters",
    title="error counters of RDMA ports",
    run=check_rdma_port_counters,
    preflight=True,
)
