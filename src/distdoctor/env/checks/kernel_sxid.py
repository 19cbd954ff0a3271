"""Does the kernel log hold NVSwitch errors (SXid)?"""

from __future__ import annotations

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
from distdoctor.report.model import Action, Confidence, Fault, Scope, Severity, Team

# Single non-fatal SXids are recovered by the switch; this many on one switch mean a bad link. Our own threshold.
MANY_NONFATAL = 10


def check_sxid(facts: EnvFacts) -> Sequence[Outcome]:
    """Critical where the line says Fatal; a warning where it does not say, or for many non-fatal ones; else info."""
    events = events_of(facts, KernelEventKind.SXID)
    if isinstance(events, NotSeen):
        return [events]
    switches: dict[str, list[KernelEvent]] = {}
    for event in events:
        switches.setdefault(event.pci or event.device or "", []).append(event)
    found = [_found(facts, name, group) for name, group in switches.items()]
    return found or [nothing_found(facts, "SXid")]


def _found(facts: EnvFacts, switch: str, events: list[KernelEvent]) -> Found:
    fatal = [event for event in events if event.fatal]
    root = (fatal or events)[0]
    number = sum(event.times for event in events)
    if fatal:
        severity, confidence = Severity.CRITICAL, Confidence.HIGH
    elif all(event.fatal is False for event in events):
        severity = Severity.WARNING if number >= MANY_NONFATAL else Severity.INFO
        confidence = Confidence.MEDIUM
    else:
        severity, confidence = Severity.WARNING, Confidence.LOW
    name = root.device or switch
    word = "a fatal error" if fatal else "errors" if number > 1 else "an error"
    return Found(
        key=f"{root.code}:{switch}",
        title=f"NVSwitch {name} reports {word} (SXid {root.code})",
        severity=severity_by_age(facts, events, severity),
        confidence=confidence,
        evidence=(
            line_evidence(facts, root, value=root.code),
            count_evidence(events, "SXid lines of this switch"),
        ),
        explanation=(
            "The GPUs of this host talk to one another through NVSwitches. A fatal error stops that traffic: "
            "collectives hang or fail until GPUs and switches are reset together." + boot_note(events)
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Drain the host; reset all GPUs and switches together, or reboot; if it comes back, service it",
                command="nvidia-smi nvlink -e; systemctl status nvidia-fabricmanager",
            ),
        ),
        scope=Scope(links=(f"NVSwitch {name}",)),
        cause_class="gpu:nvlink",
        fault=Fault.GPU,
    )


CHECK = Check(
    id="kernel-sxid", title="NVSwitch errors (SXid) in the kernel log", run=check_sxid, preflight=True
)
