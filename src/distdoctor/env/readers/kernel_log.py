"""Events in a kernel log: GPU errors, lost GPUs, links, out-of-memory kills, memory and PCIe errors."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from distdoctor.env.facts.kernel_log import KernelEvent, KernelEventKind, KernelLogFacts
from distdoctor.env.readers.kernel_lines import KernelLine, parse_lines
from distdoctor.env.readers.kernel_patterns import BOOT, PATTERNS

# Alike events beyond this many are counted on the last one kept. Our own choice: a flapping link writes for days.
MAX_ALIKE = 100

# A text without any event is taken for a kernel log when this share of its lines (and at least three) say "kernel"
# or have the kernel's stamp. Our own threshold.
MIN_KERNEL_SHARE = 0.5
MIN_KERNEL_LINES = 3

# "NVRM: The NVIDIA GPU 0000:5d:00.0" and "fallen off the bus" stand on lines apart; nothing else comes between more
# than this many lines.
OFF_BUS_WINDOW = 4

_ADDRESS = re.compile(r"GPU (?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)\b")
_IDENTITY = re.compile(r"NVRM: GPU at (?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,16}): (?P<uuid>GPU-[0-9a-fA-F-]{36})")
_PID = re.compile(r"\bpid='?(?P<pid>\d+)'?(?:, name='?(?P<name>[^,']{1,64}))?")
_NVLINK5_SEVERITY = re.compile(r"\b(?P<word>Nonfatal|Non-fatal|Fatal)\b", re.IGNORECASE)


def sniff(text: str) -> bool:
    """True when a line is a known event, or most lines are the kernel's."""
    total = kernel = 0
    for line in parse_lines(text):
        if _match(line.message):
            return True
        total += 1
        kernel += line.is_of_kernel
    return kernel >= MIN_KERNEL_LINES and kernel >= MIN_KERNEL_SHARE * total


def read(text: str, origin: str, *, first_line: int = 1) -> KernelLogFacts:
    """Events of the log in order. The text is what was given, not the whole log: no event there is no event in it."""
    return read_lines(parse_lines(text, first_line=first_line), origin)


def read_lines(lines: Iterable[KernelLine], origin: str) -> KernelLogFacts:
    """Events of lines that were taken apart before; `covers_since_utc` is the first time that is known."""
    events: list[KernelEvent] = []
    boots: list[int] = []
    uuids: dict[str, str] = {}
    recent: deque[KernelLine] = deque(maxlen=OFF_BUS_WINDOW)
    alike: dict[tuple[object, ...], list[int]] = {}
    num_lines, since = 0, None
    for line in lines:
        num_lines += 1
        since = since or line.utc
        if BOOT.match(line.message):
            boots.append(len(events))
        if identity := _IDENTITY.search(line.message):
            uuids[identity["pci"].lower()] = identity["uuid"]
        event = _event(line, recent)
        recent.append(line)
        if event is None or _is_second_half(event, events):
            continue
        _keep(event, events, alike)
    return KernelLogFacts(
        events=tuple(_finish(event, number, boots, uuids) for number, event in enumerate(events)),
        source=origin,
        covers_since_utc=since,
        num_lines=num_lines,
        sources={"events": origin},
    )


def hosts_in(text: str) -> tuple[str, ...]:
    """Hosts that syslog or the journal name, in order of appearance."""
    return tuple(dict.fromkeys(line.host for line in parse_lines(text) if line.host and line.tag is not None))


# One look for all words of all patterns: most lines of most files hold none.
_ANY_WORD = re.compile("|".join(sorted({re.escape(word) for pattern in PATTERNS for word in pattern.words})))


def _match(message: str) -> tuple[re.Match[str], KernelEventKind, bool | None] | None:
    if _ANY_WORD.search(message) is None:
        return None
    for pattern in PATTERNS:
        if any(word in message for word in pattern.words):
            match = pattern.regex.search(message)
            if match:
                return match, pattern.kind, pattern.fatal
    return None


def _event(line: KernelLine, recent: Iterable[KernelLine]) -> KernelEvent | None:
    # The tag is part of what a daemon says: "nv-fabricmanager[4177]: request … failed".
    daemon = line.tag not in (None, "kernel")
    message = f"{line.tag}: {line.message}" if daemon else line.message
    found = _match(message)
    if found is None:
        return None
    match, kind, fatal = found
    groups = match.groupdict()
    detail = (groups.get("detail") or "").strip(" :,")
    pci, pid, process = groups.get("pci"), groups.get("pid"), groups.get("process")
    if kind is KernelEventKind.OFF_BUS and pci is None:
        pci = _address_before(line, recent)
        if pci is None and not _is_nvidias(line, recent):
            return None
    if kind is KernelEventKind.XID and (owner := _PID.search(detail)):
        pid, process = owner["pid"], owner["name"]
    if kind in (KernelEventKind.XID, KernelEventKind.SXID):
        word = _NVLINK5_SEVERITY.search(detail)
        fatal = word["word"].lower() == "fatal" if word else None
    code = groups.get("code")
    return KernelEvent(
        kind=kind,
        text=message.strip()[:600],
        code=int(code) if code else None,
        pci=pci,
        device=groups.get("device"),
        utc=line.utc,
        stamp=line.stamp,
        process=process,
        pid=int(pid) if pid and len(pid) < 12 else None,
        line=line.number,
        host=line.host,
        uuid=groups.get("uuid"),
        detail=detail[:400],
        fatal=fatal,
    )


def _address_before(line: KernelLine, recent: Iterable[KernelLine]) -> str | None:
    """The GPU that this line, or one of the few before it, speaks of."""
    for each in (line, *reversed(list(recent))):
        address = _ADDRESS.search(each.message)
        if address and "NVRM" in each.message:
            return address["pci"]
    return None


def _is_nvidias(line: KernelLine, recent: Iterable[KernelLine]) -> bool:
    return any("NVRM" in each.message or "nvidia" in each.message.lower() for each in (line, *recent))


def _is_second_half(event: KernelEvent, events: list[KernelEvent]) -> bool:
    """The kernel writes "oom-kill:…pid=N" and "Killed process N" for one kill."""
    if event.kind is not KernelEventKind.OOM_KILL or event.pid is None:
        return False
    for number in range(len(events) - 1, max(len(events) - 6, -1), -1):
        other = events[number]
        if other.kind is event.kind and other.pid == event.pid:
            if "Kill" in event.text:
                events[number] = replace(event, line=other.line)
            return True
    return False


def _keep(event: KernelEvent, events: list[KernelEvent], alike: dict[tuple[object, ...], list[int]]) -> None:
    key = (event.kind, event.code, event.pci, event.device, event.host, event.fatal)
    kept = alike.setdefault(key, [])
    if len(kept) < MAX_ALIKE:
        kept.append(len(events))
        events.append(event)
    else:
        last = events[kept[-1]]
        # The last one kept moves on in time, so that "the last was at" stays true.
        events[kept[-1]] = replace(event, times=last.times + 1)


def _finish(event: KernelEvent, number: int, boots: list[int], uuids: dict[str, str]) -> KernelEvent:
    boots_ago = sum(1 for boot in boots if boot > number)
    uuid = event.uuid or (uuids.get(event.pci.lower()) if event.pci else None)
    return replace(event, boots_ago=boots_ago, uuid=uuid)
