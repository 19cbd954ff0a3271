"""Does the kernel log show errors of the host's memory (EDAC, machine checks)?"""

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
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team

# Corrected errors happen on good machines; this many lines mean a module that is failing. Our own threshold.
MANY_CORRECTED = 100


def check_memory_error(facts: EnvFacts) -> Sequence[Outcome]:
    """Critical when uncorrected; a warning for machine checks of unknown kind and for many corrected errors."""
    events = events_of(facts, KernelEventKind.MEMORY_ERROR)
    if isinstance(events, NotSeen):
        return [events]
    groups: dict[bool | None, list[KernelEvent]] = {}
    for event in events:
        groups.setdefault(event.fatal, []).append(event)
    found = [_found(facts, is_bad, group) for is_bad, group in groups.items()]
    return found or [nothing_found(facts, "host memory error")]


def _found(facts: EnvFacts, is_bad: bool | None, events: list[KernelEvent]) -> Found:
    number = sum(event.times for event in events)
    if is_bad:
        severity, confidence, words = Severity.CRITICAL, Confidence.HIGH, "uncorrected memory errors"
    elif is_bad is None:
        severity, confidence, words = Severity.WARNING, Confidence.LOW, "machine check errors"
    else:
        severity = Severity.WARNING if number >= MANY_CORRECTED else Severity.INFO
        confidence, words = Confidence.MEDIUM, f"{number} corrected memory errors"
    return Found(
        key={True: "uncorrected", False: "corrected", None: "machine-check"}[is_bad],
        title=f"The host has {words}",
        severity=severity_by_age(facts, events, severity),
        confidence=confidence,
        evidence=(line_evidence(facts, events[0]), count_evidence(events, "such lines")),
        explanation=(
            "The CPU or the memory controller reports wrong data in host memory. Uncorrected errors end the process "
            "that used it, or the machine; corrected ones cost nothing but announce a failing module when they grow."
            + boot_note(events)
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Find the memory module and replace it; until then keep jobs away when errors are uncorrected",
                command="ras-mc-ctl --errors; ipmitool sel list | tail",
            ),
        ),
        fault=Fault.HOST,
    )


CHECK = Check(
    id="kernel-memory-error",
    title="host memory errors in the kernel log",
    run=check_memory_error,
    preflight=True,
)
