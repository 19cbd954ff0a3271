"""What changed between two failures of a job for want of memory?"""

from __future__ import annotations

from distdoctor.oom.explain.cause import Judged
from distdoctor.oom.explain.judged import explained
from distdoctor.oom.explain.words import MAX_TITLE, rank_words, size_words
from distdoctor.oom.facts.events import ExplainFacts
from distdoctor.report.checking import Found, finding_of
from distdoctor.report.model import Column, Confidence, Evidence, Fault, Finding, Scalar, Severity, Table
from distdoctor.units import MIB

ID = "oom-changed"

# Sizes that differ by less are the same: messages print two decimals.
_SAME_BYTES = 32 * MIB


def explain_changes(old: ExplainFacts, new: ExplainFacts) -> tuple[tuple[str, Scalar, Scalar, bool], ...]:
    """(what, before, now, whether it differs) of the two leads: cause, phase, ranks, and the sizes in words."""
    before, now = explained(old).lead, explained(new).lead
    rows: list[tuple[str, Scalar, Scalar, bool]] = []
    pairs = (
        ("cause", _cause(before), _cause(now)),
        ("phase", _phase(before), _phase(now)),
        ("ranks", rank_words(old.events) or None, rank_words(new.events) or None),
        ("steps done before", _steps(before), _steps(now)),
    )
    rows += [(name, first, second, first != second) for name, first, second in pairs]
    for name in (
        "requested_bytes",
        "free_bytes",
        "total_bytes",
        "allocated_bytes",
        "unallocated_bytes",
        "allowed_bytes",
    ):
        rows.append(_size_row(_SIZE_NAMES[name], _value(before, name), _value(now, name)))
    rows.append(_size_row("other processes", _others(before), _others(now)))
    return tuple(rows)


_SIZE_NAMES = {
    "requested_bytes": "asked for",
    "free_bytes": "free on the GPU",
    "total_bytes": "size of the GPU",
    "allocated_bytes": "tensors",
    "unallocated_bytes": "idle in the pool",
    "allowed_bytes": "limit",
}


def change_table(old: ExplainFacts, new: ExplainFacts) -> Table:
    """The rows of `explain_changes` as a table."""
    rows = explain_changes(old, new)
    return Table(
        name="oom-changes",
        title="what changed since the earlier failure",
        columns=(Column(name="what"), Column(name="before"), Column(name="now"), Column(name="changed")),
        rows=tuple((what, before, now, "yes" if differs else "") for what, before, now, differs in rows),
        place="first",
    )


def change_findings(old: ExplainFacts, new: ExplainFacts) -> list[Finding]:
    """One note: what differs, or that nothing does."""
    changed = [(what, before, now) for what, before, now, differs in explain_changes(old, new) if differs]
    shown = [f"{what}: {_word(before)}, now {_word(now)}" for what, before, now in changed]
    title = _title(changed)
    found = Found(
        title=title,
        severity=Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=tuple(Evidence(text=text, source="both messages") for text in shown[:8])
        or (Evidence(text="cause, phase, ranks and sizes are the same", source="both messages"),),
        explanation=(
            "What was changed between the two runs shows in these rows."
            if changed
            else "What was changed between the two runs did not reach the memory that decides."
        ),
        actions=(),
        fault=Fault.UNKNOWN,
    )
    return [finding_of(ID, found)]


def _title(changed: list[tuple[str, Scalar, Scalar]]) -> str:
    if not changed:
        return "the same failure as before: cause, phase and sizes are equal"
    names = [what for what, _, _ in changed]
    for number in range(len(names), 0, -1):
        more = len(names) - number
        title = f"changed since the earlier failure: {', '.join(names[:number])}" + (
            f" and {more} more" if more else ""
        )
        if len(title) <= MAX_TITLE:
            return title
    return "changed since the earlier failure"


def _word(value: Scalar) -> str:
    return "not told" if value is None else str(value)


def _cause(judged: Judged | None) -> Scalar:
    return judged.cause.value if judged is not None else None


def _phase(judged: Judged | None) -> Scalar:
    return judged.event.phase.value if judged is not None else None


def _steps(judged: Judged | None) -> Scalar:
    return judged.event.steps_before if judged is not None else None


def _value(judged: Judged | None, name: str) -> int | None:
    value = getattr(judged.event, name) if judged is not None else None
    return value if isinstance(value, int) else None


def _others(judged: Judged | None) -> int | None:
    return judged.account.others_bytes if judged is not None else None


def _size_row(what: str, before: int | None, now: int | None) -> tuple[str, Scalar, Scalar, bool]:
    if before is None or now is None:
        differs = before is not None or now is not None
    else:
        differs = abs(now - before) > _SAME_BYTES
    return what, _size(before), _size(now), differs


def _size(num_bytes: int | None) -> str | None:
    return None if num_bytes is None else size_words(num_bytes)
