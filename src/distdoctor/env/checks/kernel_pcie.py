"""Does the kernel log show PCIe errors, or devices behind a link slower than they are made for?"""

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

# Corrected errors cost a resend each; this many lines from one device mean a bad contact. Our own threshold.
MANY_CORRECTED = 100

# Half of what a device could do is what one generation or half the lanes cost, and may be by design; below that a
# slot or riser is wrong. Half itself comes out a little under 0.5 by the kernel's rounding. Our own threshold.
LOW_SHARE = 0.49

_BANDWIDTH = re.compile(
    r"(?P<have>[\d.]+) Gb/s available PCIe bandwidth, limited by (?P<limit>.{3,80}?)\s*\(capable of (?P<can>[\d.]+) Gb/s"
)
_FATAL = re.compile(r"[Ff]atal\b|DPC|Surprise|Link Down|not present", re.IGNORECASE)
_NON_FATAL = re.compile(r"Non-?Fatal", re.IGNORECASE)


def check_pcie(facts: EnvFacts) -> Sequence[Outcome]:
    """Critical for a fatal error; a warning for uncorrected ones, many corrected ones, or under half the bandwidth."""
    events = events_of(facts, KernelEventKind.PCIE_ERROR, KernelEventKind.PCIE_LIMITED)
    if isinstance(events, NotSeen):
        return [events]
    errors: dict[tuple[str, bool], list[KernelEvent]] = {}
    found: list[Outcome] = []
    limited: dict[str, KernelEvent] = {}
    for event in events:
        if event.kind is KernelEventKind.PCIE_LIMITED:
            limited[event.pci or ""] = event
        else:
            errors.setdefault((event.pci or "", bool(event.fatal)), []).append(event)
    found += [_error(facts, pci, group, is_corrected=not bad) for (pci, bad), group in errors.items()]
    found += [outcome for event in limited.values() if (outcome := _limited(facts, event)) is not None]
    return found or [nothing_found(facts, "PCIe error")]


def _error(facts: EnvFacts, pci: str, events: list[KernelEvent], *, is_corrected: bool) -> Found:
    number = sum(event.times for event in events)
    is_fatal = any(_FATAL.search(event.text) and not _NON_FATAL.search(event.text) for event in events)
    if is_corrected:
        severity = Severity.WARNING if number >= MANY_CORRECTED else Severity.INFO
        word = "corrected"
    else:
        severity = Severity.CRITICAL if is_fatal else Severity.WARNING
        word = "fatal" if is_fatal else "uncorrected"
    return Found(
        key=f"{word}:{pci}",
        title=f"PCIe device {pci} has {word} errors",
        severity=severity_by_age(facts, events, severity),
        confidence=Confidence.HIGH if is_fatal else Confidence.MEDIUM,
        evidence=(
            line_evidence(facts, events[0]),
            count_evidence(events, f"lines of {word} errors of this device"),
        ),
        explanation=(
            "GPUs and network cards move data over PCIe. Corrected errors slow it down, uncorrected ones lose data, "
            "and after a fatal one the device is gone. The address may be that of the port above the device."
            + boot_note(events)
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="See which device is below this address; reseat it, check riser, slot and firmware",
                command=f"lspci -vvs {pci}; lspci -tv",
            ),
        ),
        scope=Scope(links=(f"PCIe {pci}",)),
        fault=Fault.HOST,
    )


def _limited(facts: EnvFacts, event: KernelEvent) -> Found | None:
    match = _BANDWIDTH.search(event.detail)
    if match is None:
        return None
    have, can = float(match["have"]), float(match["can"])
    is_low = can > 0 and have < LOW_SHARE * can
    return Found(
        key=f"limited:{event.pci}",
        title=f"PCIe device {event.pci} gets {have:.0f} of its {can:.0f} Gb/s",
        severity=severity_by_age(facts, [event], Severity.WARNING if is_low else Severity.INFO),
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{have:.0f} Gb/s, limited by {match['limit']}",
                value=have,
                unit="Gb/s",
                expected=f"{can:.0f} Gb/s",
                expected_source="the device's own capability, as the kernel prints it",
                source=line_evidence(facts, event).source,
            ),
        ),
        explanation=(
            "The kernel writes this line at boot for a device whose slot, riser or bridge is narrower or slower than the "
            "device. For a GPU or a network card that halves bandwidth or worse; for other devices it may be by design."
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Check that the card is in the right slot and fully seated; compare with a sibling host",
                command=f"lspci -vvs {event.pci} | grep -E 'LnkCap|LnkSta'",
            ),
        ),
        scope=Scope(links=(f"PCIe {event.pci}",)),
        fault=Fault.HOST,
    )


CHECK = Check(id="kernel-pcie", title="PCIe errors in the kernel log", run=check_pcie, preflight=True)
