"""Are the Ethernet interfaces clean, and fast enough where they carry a job?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.network_view import (
    interface_choice,
    join_names,
    links,
    rdma_carries_job,
    spans_hosts,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import Interface
from distdoctor.env.predict.interface_kind import InterfaceKind, interface_kind
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# One packet in ten thousand with an error, and enough of them to be no accident. Our own thresholds; TCP's
# throughput falls with the square root of the loss rate (Mathis et al. 1997).
MAX_ERROR_SHARE = 1e-4
MIN_ERRORS = 100

# Gradients of one billion parameters in bf16 are 2 GB: 1.6 s at 10 Gb/s. Below that, a job over several
# hosts waits for its network. Our own threshold.
MIN_SPEED_MBPS = 10_000


def check_ethernet_errors(facts: EnvFacts) -> Sequence[Outcome]:
    """The share of received packets with errors since boot, for cards that are up."""
    interfaces = facts.network.interfaces if facts.network else None
    if interfaces is None:
        return [missing(facts, "network.interfaces")]
    cards = [each for each in interfaces if interface_kind(each) is InterfaceKind.ORDINARY and each.is_up]
    if not cards:
        return [NotApplicable(detail="no network card is up")]
    counted = [each for each in cards if each.rx_errors is not None and each.rx_packets is not None]
    if not counted:
        return [missing(facts, "network.rx_errors", what="error counters of the interfaces")]
    bad = [each for each in counted if _is_bad(each)]
    if not bad:
        return [
            Passed(detail=f"few or no receive errors on {join_names([each.name for each in counted], 4)}")
        ]
    return [_errors(facts, each) for each in bad]


def _is_bad(interface: Interface) -> bool:
    errors, packets = interface.rx_errors or 0, interface.rx_packets or 0
    return errors >= MIN_ERRORS and errors > MAX_ERROR_SHARE * max(packets, 1)


def _errors(facts: EnvFacts, interface: Interface) -> Found:
    errors, packets = interface.rx_errors or 0, interface.rx_packets or 0
    share_pct = 100 * errors / max(packets + errors, 1)
    return Found(
        key=interface.name,
        title=f"{interface.name} received {share_pct:.2g} % of packets with errors since boot"[:80],
        severity=Severity.WARNING,
        confidence=Confidence.LOW,
        evidence=(
            Evidence(
                text=f"{interface.name}: {errors} receive errors, {packets} packets since boot",
                value=errors,
                unit="packets",
                expected=f"less than {MAX_ERROR_SHARE * 100:g} %",
                expected_source="our own threshold",
                source=interface.sources.get("rx_errors"),
            ),
        ),
        explanation="A cable or transceiver that damages packets; they are sent again, and TCP slows down.",
        actions=(
            Action(
                team=Team.NETWORK,
                text="See whether the errors grow now, and of which kind they are",
                command=f"ethtool -S {shlex.quote(interface.name)} | grep -iE 'err|crc|drop' | grep -v ': 0$'",
            ),
        ),
        scope=links(facts, (interface.name,)),
        fault=Fault.NETWORK,
    )


def check_ethernet_speed(facts: EnvFacts) -> Sequence[Outcome]:
    """Below 10 Gb/s on the interface that carries data between hosts is a warning."""
    several = spans_hosts(facts)
    if several is False:
        return [NotApplicable(detail="the job stays on this host")]
    choice = interface_choice(facts)
    if isinstance(choice, NotSeen):
        return [choice]
    over_rdma = rdma_carries_job(facts)
    if over_rdma is None:
        return [missing(facts, "network.rdma_ports")]
    if over_rdma:
        return [NotApplicable(detail="data between hosts goes over RDMA")]
    chosen = [
        each.interface for each in choice.chosen if interface_kind(each.interface) is InterfaceKind.ORDINARY
    ]
    if not chosen:
        return [NotApplicable(detail="NCCL would choose no network card")]
    known = [each for each in chosen if each.speed_mbps is not None]
    if not known:
        reason = chosen[0].unread.get("speed_mbps")
        what = f"link speed of {chosen[0].name}"
        return [
            NotSeen(unread=reason, what=what) if reason else missing(facts, "network.speed_mbps", what=what)
        ]
    first = known[0]
    speed = first.speed_mbps or 0
    if speed >= MIN_SPEED_MBPS:
        return [Passed(detail=f"{first.name} runs at {speed / 1000:g} Gb/s")]
    return [_slow(facts, first, speed, several)]


def _slow(facts: EnvFacts, interface: Interface, speed_mbps: int, several: bool | None) -> Found:
    shown = f"{speed_mbps / 1000:g} Gb/s" if speed_mbps >= 1000 else f"{speed_mbps} Mb/s"
    return Found(
        key=interface.name,
        title=f"{interface.name}, which carries data between hosts, runs at {shown}"[:80],
        severity=Severity.WARNING if several else Severity.INFO,
        confidence=Confidence.HIGH if several else Confidence.LOW,
        evidence=(
            Evidence(
                text=f"{interface.name}: {speed_mbps} Mb/s negotiated",
                value=speed_mbps,
                unit="Mb/s",
                expected=f"at least {MIN_SPEED_MBPS} Mb/s",
                expected_source="our own threshold",
                source=interface.sources.get("speed_mbps"),
            ),
        ),
        explanation=(
            "No RDMA port is used, so gradients go over this interface. A link at 100 Mb/s on a faster card is "
            "usually a damaged cable."
        ),
        actions=(
            Action(
                team=Team.NETWORK,
                text="See what the card could do and what was negotiated; use a faster interface if there is one",
                command=f"ethtool {shlex.quote(interface.name)}",
            ),
        ),
        scope=links(facts, (interface.name,)),
        fault=Fault.NETWORK,
    )


ERRORS = Check(
    id="ethernet-errors", title="receive errors of network cards", run=check_ethernet_errors, preflight=True
)
SPEED = Check(
    id="ethernet-speed-low",
    title="speed of the interface between hosts",
    run=check_ethernet_speed,
    preflight=True,
)
