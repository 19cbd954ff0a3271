"""What is odd about the evidence: missing, duplicated and restarted ranks, cut files, clocks, units."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.report.model import Confidence, Evidence, Fault, Severity
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.base import Found, Outcome, Passed, StragglerCheck
from distdoctor.straggler.facts.reading import Note, NoteKind

_MAX_LINES = 12

# What can be seen and what never can is told by the verdict, not as something odd.
_NOT_ODD = (NoteKind.LIMITED,)


def check_evidence(facts: Analysed) -> Sequence[Outcome]:
    """One note that lists everything odd."""
    odd = [note for note in dict.fromkeys(facts.reading.notes) if note.kind not in _NOT_ODD]
    unread = [each for each in facts.reading.inputs if not each.read]
    if not odd and not unread:
        return [Passed(detail="nothing is odd about the evidence")]
    lines = [Evidence(text=f"{note.kind.value}: {note.text}") for note in odd]
    lines += [
        Evidence(text=f"not read: {each.path}: {each.why_not or 'no reason known'}", source=each.path)
        for each in unread
    ]
    more = len(lines) - _MAX_LINES
    shown = (*lines[:_MAX_LINES], *((Evidence(text=f"and {more} more"),) if more > 0 else ()))
    return [
        Found(
            title=_title(odd, len(unread)),
            severity=Severity.INFO,
            confidence=Confidence.HIGH,
            evidence=shown,
            explanation="What was read was judged; what is odd about it is told, because it may hide a slow rank.",
            actions=(),
            fault=Fault.UNKNOWN,
        )
    ]


def _title(odd: Sequence[Note], num_unread: int) -> str:
    kinds = list(dict.fromkeys(note.kind.value for note in odd))
    if num_unread:
        kinds.insert(0, f"{num_unread} file{'s' if num_unread != 1 else ''} not read")
    text = f"about the evidence: {', '.join(kinds)}"
    return text if len(text) <= 80 else text[:79].rsplit(",", 1)[0] + " …"


CHECK = StragglerCheck(id="straggler-evidence", title="what is odd about the evidence", run=check_evidence)
