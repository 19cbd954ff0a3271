"""What the checks of the kernel log share: picking events, telling old from new, showing a line as evidence."""

from __future__ import annotations

from collections.abc import Iterable

from distdoctor.env.checks.base import NotSeen, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import UNKNOWN_INDEX
from distdoctor.env.facts.kernel_log import KernelEvent, KernelEventKind
from distdoctor.env.pci import same_device
from distdoctor.report.model import Evidence, GpuRef, Severity

# On a live machine older events are told as history: the fault may have been repaired since. Our own choice.
OLD_AFTER_S = 24 * 3600.0

# A line longer than this is cut in evidence.
MAX_LINE = 220


def events_of(facts: EnvFacts, *kinds: KernelEventKind) -> list[KernelEvent] | NotSeen:
    """Events of these kinds in the log's order, or why the log was not seen."""
    if facts.kernel_log is None or facts.kernel_log.events is None:
        return missing(facts, "kernel_log.events")
    return [event for event in facts.kernel_log.events if event.kind in kinds]


def nothing_found(facts: EnvFacts, what: str) -> Passed:
    """Passed, saying how much of the log was seen."""
    log = facts.kernel_log
    lines = f"{log.num_lines} lines" if log is not None and log.num_lines is not None else "the lines"
    source = log.source if log is not None and log.source else "the kernel log"
    since = f" since {log.covers_since_utc}" if log is not None and log.covers_since_utc else ""
    return Passed(detail=f"no {what} in {lines} of {source}{since}")


def is_old(facts: EnvFacts, event: KernelEvent) -> bool:
    """On this machine: before the last boot, or more than a day ago. In a text nothing is old."""
    if not facts.is_live:
        return False
    return event.boots_ago > 0 or (event.seconds_ago is not None and event.seconds_ago > OLD_AFTER_S)


def severity_by_age(facts: EnvFacts, events: Iterable[KernelEvent], severity: Severity) -> Severity:
    """`severity`, or info when all of the events are old."""
    return Severity.INFO if all(is_old(facts, event) for event in events) else severity


def line_evidence(facts: EnvFacts, event: KernelEvent, *, value: int | None = None) -> Evidence:
    """The line itself, with when and where it was read."""
    source = facts.kernel_log.source if facts.kernel_log is not None else None
    where = f"{source or 'kernel log'}" + (f" line {event.line}" if event.line is not None else "")
    when = event.utc or event.stamp
    stamp = f" {when}" if when else ""
    return Evidence(text=event.text[:MAX_LINE], value=value, source=f"{where}{stamp}")


def count_evidence(events: Iterable[KernelEvent], what: str) -> Evidence:
    """How often, when more than once."""
    number = sum(event.times for event in events)
    return Evidence(text=f"{number} {what} in the log", value=number, unit="lines")


def gpu_ref(facts: EnvFacts, pci: str | None, uuid: str | None = None) -> GpuRef:
    """The GPU at an address, with its index, UUID and model where other evidence has them."""
    devices = facts.gpus.devices if facts.gpus is not None and facts.gpus.devices is not None else ()
    for device in devices:
        same = same_device(pci, device.pci) or (uuid is not None and uuid == device.uuid)
        if same:
            index = device.index if device.index != UNKNOWN_INDEX else None
            return GpuRef(index=index, pci=device.pci or pci, uuid=device.uuid or uuid, model=device.name)
    return GpuRef(pci=pci, uuid=uuid)


def boot_note(events: Iterable[KernelEvent]) -> str:
    """A sentence when the log shows a boot after the last of the events."""
    if all(event.boots_ago > 0 for event in events):
        return " The log shows a boot after it: check that the fault came back before acting."
    return ""
