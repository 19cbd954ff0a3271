"""The numbers of an event as lines of evidence, each with what it is measured against."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.explain.cause import Judged
from distdoctor.oom.explain.words import rank_words, size_words
from distdoctor.oom.facts.events import OomEvent
from distdoctor.report.model import Evidence

# Events of a group that are shown with their numbers; the table holds all. Our own bound.
MAX_SHOWN = 3


def source_of(event: OomEvent) -> str:
    """ "rank_3.log, line 812"."""
    return f"{event.path}, line {event.line}"


def numbers_of(group: Sequence[Judged]) -> tuple[Evidence, ...]:
    """What was asked for, what was free, and who held the rest, of the first events of a group."""
    lines: list[Evidence] = []
    for judged in group[:MAX_SHOWN]:
        lines += _numbers(judged)
    return tuple(lines)


def _numbers(judged: Judged) -> list[Evidence]:
    event, account = judged.event, judged.account
    whose = rank_words([event])
    begin = f"{whose}: " if whose else ""
    source = source_of(event)
    lines = []
    if event.requested_bytes is not None:
        text = f"{begin}asked for {size_words(event.requested_bytes)}"
        if event.free_bytes is not None:
            text += f", {size_words(event.free_bytes)} free on the GPU"
        if event.total_bytes is not None:
            text += f" of {size_words(event.total_bytes)}"
        lines.append(Evidence(text=text, value=event.requested_bytes, unit="B", source=source))
    held = _holders(judged)
    if held:
        lines.append(Evidence(text=f"{begin}{held}", value=event.allocated_bytes, unit="B", source=source))
    if not lines:
        lines.append(Evidence(text=f"{begin}{event.sentence[:200]}", source=source))
    for each in account.bogus[:2]:
        lines.append(
            Evidence(text=f"{begin}a number in the message was set aside: {each.why}", source=source)
        )
    return lines


def _holders(judged: Judged) -> str:
    event, account = judged.event, judged.account
    parts = []
    if event.allocated_bytes is not None:
        parts.append(f"tensors {size_words(event.allocated_bytes)}")
    if event.unallocated_bytes is not None:
        parts.append(f"idle in PyTorch's pool {size_words(event.unallocated_bytes)}")
    if account.non_torch is not None:
        parts.append(f"this process beside the pool {size_words(account.non_torch)}")
    if account.others_bytes:
        number = len(account.others)
        of = f"{number} other process{'es' if number != 1 else ''}" if number else "others"
        parts.append(f"{of} {size_words(account.others_bytes)}")
    if account.non_torch is None and account.outside is not None:
        parts.append(f"outside the pool {size_words(account.outside)}")
    if event.allowed_bytes is not None:
        parts.append(f"limit {size_words(event.allowed_bytes)}")
    if event.other_allocations_bytes is not None:
        parts.append(f"other allocations {size_words(event.other_allocations_bytes)}")
    return ", ".join(parts)


def why_of(judged: Judged) -> Evidence:
    """The comparison that decided."""
    return Evidence(text=judged.why, source="the numbers of the message")


def phase_of(group: Sequence[Judged]) -> tuple[Evidence, ...]:
    """In which phase, and what says so."""
    event = group[0].event
    if not event.phase_why or event.phase.value == "phase not shown":
        return ()
    return (Evidence(text=f"phase: {event.phase.value} ({event.phase_why})", source=source_of(event)),)
