"""Does the kernel log hold GPU errors (Xid), and which of them is the cause?

One fault writes many lines: a root cause, victims (45, often 43, 13 and 31), details (63, 94, 171), a wanted
recovery (154), and "fallen off the bus" beside 79. They are folded to one finding a GPU, and GPUs with the same
cause to one finding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.env.catalog.xid import Xid, xid_of
from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome, Passed
from distdoctor.env.checks.kernel_events import (
    boot_note,
    events_of,
    gpu_ref,
    is_old,
    line_evidence,
    nothing_found,
    severity_by_age,
)
from distdoctor.env.checks.kernel_xid_actions import actions_for, cause_class_of, explanation_of, fault_of
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.kernel_log import KernelEvent, KernelEventKind
from distdoctor.env.pci import same_device, sysfs_address
from distdoctor.report.model import Confidence, Evidence, GpuRef, Scope, Severity

OFF_BUS_CODE = 79
RECOVERY_CODE = 154

# NVLink 5 numbers name a unit; the same number is harmless or fatal, as the line itself says.
NVLINK5_CODES = range(144, 151)

# The same kind of program fault from this many programs on one GPU points at the GPU. Our own threshold.
MANY_PROGRAMS = 3

# Lines shown as evidence for one finding; the rest is counted.
MAX_SHOWN = 3

_ORDER = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
_WANTED = re.compile(r"\bto 0x[0-9a-fA-F]+ \((?P<word>[^)]{2,60})\)")

_UNKNOWN_ROW = Xid(
    code=-1,
    title="reports an error that our catalogue does not have",
    meaning="unknown",
    kind="driver",
    severity=Severity.WARNING,
    action="look it up in NVIDIA's Xid catalogue",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """One GPU's events, boiled down."""

    code: int | None
    """None for a failed initialisation, which has no Xid."""
    row: Xid
    severity: Severity
    root: KernelEvent
    others: tuple[KernelEvent, ...]
    recovery: str | None
    gpu: GpuRef
    confidence: Confidence


def check_xid(facts: EnvFacts) -> Sequence[Outcome]:
    """One finding for each root cause; severity by the catalogue, by the line's own words for 144-150 and 154."""
    kinds = KernelEventKind
    events = events_of(facts, kinds.XID, kinds.OFF_BUS, kinds.NVML_LOST, kinds.RM_INIT_FAILED)
    if isinstance(events, NotSeen):
        return [events]
    causes = [_cause(facts, group) for group in _by_gpu(facts, events)]
    # "recovery action changed to None" alone is good news.
    causes = [cause for cause in causes if cause.code != RECOVERY_CODE or cause.recovery]
    if not causes:
        return [nothing_found(facts, "Xid or lost GPU")]
    told = [cause for cause in causes if _told_by_gpu_lost(facts, cause)]
    causes = [cause for cause in causes if cause not in told]
    if not causes:
        names = ", ".join(_name(cause.gpu) for cause in told)
        return [Passed(detail=f"the log tells the loss of GPU {names}, which gpu-lost reports; no other Xid")]
    folded: dict[tuple[object, ...], list[_Cause]] = {}
    for cause in causes:
        folded.setdefault((cause.code, cause.severity, cause.recovery), []).append(cause)
    return [_found(facts, group) for group in folded.values()]


def _told_by_gpu_lost(facts: EnvFacts, cause: _Cause) -> bool:
    """One root cause is told once: `gpu-lost` tells a GPU that is lost now, and one without any Xid line."""
    if cause.code != OFF_BUS_CODE:
        return False
    devices = facts.gpus.devices if facts.gpus is not None and facts.gpus.devices is not None else ()
    known = [device for device in devices if same_device(device.pci, cause.gpu.pci)]
    if known:
        return any(device.lost for device in known)
    has_xid = any(event.code == OFF_BUS_CODE for event in (cause.root, *cause.others))
    return not has_xid and cause.root.kind is KernelEventKind.OFF_BUS and cause.root.pci is not None


def _by_gpu(facts: EnvFacts, events: Sequence[KernelEvent]) -> list[list[KernelEvent]]:
    """Events of each GPU; an error that names no address joins the only GPU that is lost, if there is one.

    Old and new events of a live machine are kept apart, so that history does not colour today's fault.
    """
    groups: dict[tuple[str, bool], list[KernelEvent]] = {}
    homeless: list[KernelEvent] = []
    for event in events:
        pci = event.pci or gpu_ref(facts, None, event.uuid).pci
        if pci is None:
            homeless.append(event)
        else:
            groups.setdefault((_key(pci), is_old(facts, event)), []).append(event)
    lost = [key for key, group in groups.items() if any(_is_off_bus(event) for event in group)]
    for event in homeless:
        key = lost[0] if len(lost) == 1 else (event.uuid or "", is_old(facts, event))
        groups.setdefault(key, []).append(event)
    return list(groups.values())


def _key(pci: str) -> str:
    return sysfs_address(pci) or pci.lower()


def _is_off_bus(event: KernelEvent) -> bool:
    kinds = (KernelEventKind.OFF_BUS, KernelEventKind.NVML_LOST)
    return event.kind in kinds or event.code == OFF_BUS_CODE


def _cause(facts: EnvFacts, events: list[KernelEvent]) -> _Cause:
    root = _root(events)
    code = OFF_BUS_CODE if _is_off_bus(root) else root.code
    row = (xid_of(code) if code is not None else None) or _UNKNOWN_ROW
    recovery = _recovery(events)
    severity, confidence = _judge(root, code, row, recovery)
    pci = next((event.pci for event in events if event.pci), None)
    uuid = next((event.uuid for event in events if event.uuid), None)
    return _Cause(
        code=code,
        row=row,
        severity=severity_by_age(facts, events, severity),
        root=root,
        others=tuple(event for event in events if event is not root),
        recovery=recovery,
        gpu=gpu_ref(facts, pci, uuid),
        confidence=confidence,
    )


def _root(events: list[KernelEvent]) -> KernelEvent:
    """A lost GPU first; else the first of the worst that is no victim; victims only when there is nothing else."""
    lost = [event for event in events if _is_off_bus(event)]
    if lost:
        # The Xid line says more than the sentence beside it.
        return next((event for event in lost if event.code == OFF_BUS_CODE), lost[0])
    best, best_rank = events[0], (-1, -1)
    for event in events:
        row = (xid_of(event.code) if event.code is not None else None) or _UNKNOWN_ROW
        severity, _ = _judge(event, event.code, row, None)
        is_root = row.kind not in ("victim", "recovery")
        rank = (int(is_root), _ORDER[severity])
        if rank > best_rank:
            best, best_rank = event, rank
    return best


def _judge(
    root: KernelEvent, code: int | None, row: Xid, recovery: str | None
) -> tuple[Severity, Confidence]:
    if code is None:
        return Severity.CRITICAL, Confidence.HIGH
    if code == RECOVERY_CODE:
        return (Severity.CRITICAL, Confidence.HIGH) if recovery else (Severity.INFO, Confidence.HIGH)
    if code in NVLINK5_CODES:
        if root.fatal is None:
            return Severity.WARNING, Confidence.LOW
        return (Severity.CRITICAL if root.fatal else Severity.WARNING), Confidence.MEDIUM
    if row is _UNKNOWN_ROW:
        return Severity.WARNING, Confidence.LOW
    if row.kind in ("application", "victim"):
        return row.severity, Confidence.MEDIUM
    return row.severity, Confidence.HIGH


def _recovery(events: Sequence[KernelEvent]) -> str | None:
    """What the driver wants done, by the last Xid 154; None when it wants nothing."""
    wanted: str | None = None
    for event in events:
        if event.code == RECOVERY_CODE and (match := _WANTED.search(event.detail)):
            wanted = match["word"]
    return None if wanted is None or wanted.lower() == "none" else wanted


def _found(facts: EnvFacts, causes: list[_Cause]) -> Found:
    first = causes[0]
    events = [event for cause in causes for event in (cause.root, *cause.others)]
    many = len(causes) > 1
    where = f"{len(causes)} GPUs: each" if many else f"GPU {_name(first.gpu)}"
    number = f" (Xid {first.code})" if first.code is not None else ""
    title = "could not be initialised by the driver" if first.code is None else first.row.title
    code = "init" if first.code is None else str(first.code)
    return Found(
        key=code if many else f"{code}:{_key(first.gpu.pci)}" if first.gpu.pci else code,
        title=_short(f"{where} {title}{number}"),
        severity=first.severity,
        confidence=first.confidence,
        evidence=_evidence(facts, causes),
        explanation=explanation_of(first.row, first.code) + _program_note(causes) + boot_note(events),
        actions=actions_for(first.row, first.code, first.recovery, first.gpu),
        scope=Scope(gpus=tuple(cause.gpu for cause in causes)),
        cause_class=cause_class_of(first.row, first.code),
        fault=fault_of(first.row),
    )


def _evidence(facts: EnvFacts, causes: list[_Cause]) -> tuple[Evidence, ...]:
    shown = [line_evidence(facts, cause.root, value=cause.code) for cause in causes[:MAX_SHOWN]]
    if len(causes) > MAX_SHOWN:
        shown.append(Evidence(text=f"and {len(causes) - MAX_SHOWN} more GPUs with the same error"))
    followers: dict[str, int] = {}
    for cause in causes:
        repeats = cause.root.times - 1
        for event in cause.others:
            if event.kind is cause.root.kind and event.code == cause.root.code:
                repeats += event.times
                continue
            name = f"Xid {event.code}" if event.code is not None else f"`{event.kind.value}`"
            followers[name] = followers.get(name, 0) + event.times
        if repeats and len(causes) == 1:
            number = repeats + 1
            shown.append(Evidence(text=f"the same line {number} times", value=number, unit="lines"))
    if followers:
        text = ", ".join(
            name if count == 1 else f"{name} ({count} times)" for name, count in followers.items()
        )
        shown.append(Evidence(text=f"with it, and not counted as causes: {text}"))
    wanted = causes[0].recovery
    if wanted is not None:
        shown.append(Evidence(text=f"the driver asks for: {wanted}", value=wanted, source="Xid 154"))
    return tuple(shown)


def _program_note(causes: list[_Cause]) -> str:
    """Several programs that fail alike on one GPU, while the others are quiet, speak against the program."""
    if len(causes) != 1 or causes[0].row.kind != "application":
        return ""
    events = (causes[0].root, *causes[0].others)
    programs = {event.pid for event in events if event.code == causes[0].code and event.pid is not None}
    if len(programs) < MANY_PROGRAMS:
        return ""
    return f" Here {len(programs)} programs failed so on this one GPU: the GPU itself is then suspect."


def _name(gpu: GpuRef) -> str:
    if gpu.index is not None:
        return f"{gpu.index}" + (f" ({gpu.pci})" if gpu.pci else "")
    return gpu.pci or gpu.uuid or "without address"


def _short(title: str) -> str:
    return title if len(title) <= 80 else title[:79] + "…"


CHECK = Check(id="kernel-xid", title="GPU errors (Xid) in the kernel log", run=check_xid, preflight=True)
