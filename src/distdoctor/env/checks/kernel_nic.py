"""Does the kernel log show network cards that lost their link, their power or their firmware?

Links come up at boot (INIT, then ACTIVE; Ethernet says down, then up): only a link that goes down after it was
up, or well after boot, is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome
from distdoctor.env.checks.kernel_events import (
    boot_note,
    count_evidence,
    events_of,
    line_evidence,
    nothing_found,
    severity_by_age,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.kernel_log import KernelEvent, KernelEventKind
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team

# Drivers and the subnet manager settle within minutes of a boot. Our own threshold.
BOOT_SETTLES_S = 300.0

# Linux runs a machine for at least this long before the kernel's stamp reaches it.
_UPTIME = re.compile(r"^\[\s*(\d+\.\d+)\]$")

_K = KernelEventKind

_OTHER_FAULTS = {
    _K.NIC_FATAL: (
        Severity.CRITICAL,
        "reported a fatal error",
        "The card's firmware stopped or the driver lost it: the port is gone until it recovers, and collectives "
        "over it fail with a timeout or a work request error.",
        "network:hca_fatal",
    ),
    _K.NIC_POWER: (
        Severity.WARNING,
        "does not get enough power from its slot",
        "The slot offers less power than the card and its optics need; ports then stay down or run slower.",
        None,
    ),
    _K.NIC_CABLE: (
        Severity.WARNING,
        "reports a bad cable or a hot module",
        "The card does not accept its cable or optical module, or the module is too hot.",
        "network:link_down",
    ),
}


def check_nic(facts: EnvFacts) -> Sequence[Outcome]:
    """One finding a device and kind of fault."""
    kinds = (_K.LINK_DOWN, _K.LINK_UP, *_OTHER_FAULTS)
    events = events_of(facts, *kinds)
    if isinstance(events, NotSeen):
        return [events]
    by_device: dict[str, list[KernelEvent]] = {}
    for event in events:
        by_device.setdefault(event.device or event.pci or "", []).append(event)
    found: list[Outcome] = []
    for name, group in by_device.items():
        for kind in _OTHER_FAULTS:
            same = [event for event in group if event.kind is kind]
            if same:
                found.append(_other(facts, name, same))
        found += _flaps(facts, name, group)
    return found or [nothing_found(facts, "link loss or card error")]


def _flaps(facts: EnvFacts, name: str, events: list[KernelEvent]) -> list[Outcome]:
    links = [event for event in events if event.kind in (_K.LINK_DOWN, _K.LINK_UP)]
    losses = _losses(links)
    if not losses:
        return []
    still_down = links[-1].kind is _K.LINK_DOWN
    number = sum(event.times for event in losses)
    times = "once" if number == 1 else f"{number} times"
    # An administrator who takes a link down writes the same line.
    severity = Severity.CRITICAL if still_down else Severity.WARNING
    state = "and did not come back in this log" if still_down else "and came back"
    downs = sum(event.times for event in links if event.kind is _K.LINK_DOWN)
    earlier = f"; {downs} downs in the log, the first of a boot may be no loss" if downs > number else ""
    return [
        Found(
            key=f"flap:{name}",
            title=f"Link of {name} went down {times}",
            severity=severity_by_age(facts, losses, severity),
            confidence=Confidence.MEDIUM,
            evidence=(
                *(line_evidence(facts, event) for event in losses[:3]),
                Evidence(text=f"link lost {times}, {state}{earlier}", value=number, unit="losses"),
            ),
            explanation=(
                "A link that goes down during a job ends its connections: NCCL reports a timeout or a failed work "
                "request, or waits until it gives up. The usual cause is a cable, an optical module or a switch port."
                + boot_note(losses)
            ),
            actions=(
                Action(
                    team=Team.NETWORK,
                    text=f"Check cable, module and switch port of {name}",
                    command=f"mlxlink -d {name} -m -c" if name.startswith("mlx5_") else f"ethtool {name}",
                ),
            ),
            scope=_scope(facts, name),
            cause_class="network:link_down",
            fault=Fault.NETWORK,
        )
    ]


def _losses(links: list[KernelEvent]) -> list[KernelEvent]:
    """Downs after an up of the same boot, downs well after boot, and a second down without any up between."""
    losses: list[KernelEvent] = []
    was_up, downs, boot = False, 0, links[0].boots_ago if links else 0
    for event in links:
        if event.boots_ago != boot:
            was_up, downs, boot = False, 0, event.boots_ago
        if event.kind is _K.LINK_UP:
            was_up = True
            continue
        downs += 1
        if was_up or _is_after_boot(event) or downs > 1:
            losses.append(event)
    return losses


def _is_after_boot(event: KernelEvent) -> bool:
    stamp = _UPTIME.match(event.stamp or "")
    return stamp is not None and float(stamp[1]) > BOOT_SETTLES_S


def _other(facts: EnvFacts, name: str, events: list[KernelEvent]) -> Found:
    severity, words, explanation, cause_class = _OTHER_FAULTS[events[0].kind]
    return Found(
        key=f"{events[0].kind.name.lower()}:{name}",
        title=f"Network card {name} {words}",
        severity=severity_by_age(facts, events, severity),
        confidence=Confidence.HIGH,
        evidence=(line_evidence(facts, events[0]), count_evidence(events, "such lines")),
        explanation=explanation + boot_note(events),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Check slot power and seating, cable, module and firmware of the card",
                command=f"mlxlink -d {name} -m" if name.startswith("mlx5_") else "dmesg -T | grep -i mlx5",
            ),
        ),
        scope=_scope(facts, name),
        cause_class=cause_class,
        fault=Fault.NETWORK,
    )


def _scope(facts: EnvFacts, name: str) -> Scope:
    return Scope(links=(f"{facts.host_name} {name}" if facts.host_name else name,))


CHECK = Check(
    id="kernel-nic", title="network card and link errors in the kernel log", run=check_nic, preflight=True
)
