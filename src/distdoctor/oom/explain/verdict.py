"""The answer in one line: whose it is, short by how much, in which phase, on which ranks."""

from __future__ import annotations

from collections import Counter

from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained, is_consequence
from distdoctor.oom.explain.words import CAUSE_WORDS, FAULT_OF, cause_title, phase_words, rank_words
from distdoctor.report.model import Confidence, Report, Severity, Status, Verdict

_OWNERS = {
    Cause.OTHER_PROCESS: "It is not this job's own memory: the platform decides who may use the GPU.",
    Cause.PEER_RANKS: "It is the job's own ranks, on a GPU that is not theirs.",
    Cause.PROCESS_CAP: "It is a limit, not the card.",
    Cause.WRONG_CAPACITY: "It is the card or its set-up, not the job.",
    Cause.HOST_RAM: "It is the host's memory, not the GPU's.",
    Cause.HOST_PINNED: "It is the host's memory, not the GPU's.",
    Cause.HOST_SHM: "It is the host's shared memory, not the GPU's.",
    Cause.DRIVER_LIMIT: "It is neither the card nor the size of the job.",
    Cause.CORRUPT_SIZE: "It is a consequence of another error.",
}


def explain_verdict(report: Report, facts: Explained) -> Verdict:
    """The verdict over events: that of the lead, unless its finding is ignored or was not asked for."""
    lead = facts.lead
    if lead is None:
        return report.verdict
    counted = [
        each
        for each in report.findings
        if each.ignored is None and each.severity in (Severity.CRITICAL, Severity.WARNING)
    ]
    finding = next((each for each in counted if each.cause_class == lead.cause.value), None)
    if finding is None:
        return _without_finding(report, facts, found=bool(counted))
    group = [each for each in facts.of((lead.cause,)) if not is_consequence(each, facts.facts)]
    ordered = [lead, *(each for each in group if each is not lead)]
    parts = [
        _what_happened(facts, len(ordered)),
        _owner(lead),
        finding.explanation,
        _others_too(facts),
    ]
    return Verdict(
        status=Status.CRITICAL if finding.severity is Severity.CRITICAL else Status.WARNING,
        title=cause_title(ordered),
        summary=" ".join(part for part in parts if part),
        confidence=lead.confidence,
        cause_class=lead.cause.value,
        fault=FAULT_OF[lead.cause],
    )


def _owner(lead: Judged) -> str:
    """Whose it is, where the evidence decides."""
    if lead.confidence is Confidence.LOW:
        return "A lead, not a proof: the evidence does not decide."
    return _OWNERS.get(lead.cause, "It is the job's own memory.")


def _without_finding(report: Report, facts: Explained, *, found: bool) -> Verdict:
    lead = facts.lead
    if found or lead is None or lead.cause is not Cause.UNKNOWN:
        return report.verdict
    return Verdict(
        status=Status.UNKNOWN,
        title=cause_title([lead]),
        summary=f"{_what_happened(facts, 1)} {lead.why.capitalize()}.",
        confidence=Confidence.LOW,
        cause_class=Cause.UNKNOWN.value,
        fault=FAULT_OF[Cause.UNKNOWN],
    )


def _what_happened(facts: Explained, number: int) -> str:
    lead = facts.lead
    if lead is None:
        return ""
    named = [each.event for each in facts.of((lead.cause,))]
    whose = rank_words(named) or (f"{number} processes" if number > 1 else "one process")
    phase = phase_words(lead.event.phase) or "phase not shown"
    gpu = f", GPU {lead.event.gpu}" if lead.event.gpu is not None and number == 1 else ""
    return f"{whose[0].upper()}{whose[1:]}{gpu}, {phase}."


def _others_too(facts: Explained) -> str:
    """Other causes in the same evidence, by how many events show them."""
    lead = facts.lead
    if lead is None:
        return ""
    counts = Counter(
        CAUSE_WORDS[each.cause]
        for each in facts.judged
        if each.cause is not lead.cause and not is_consequence(each, facts.facts)
    )
    if not counts:
        return ""
    told = ", ".join(f"{name} ({count})" for name, count in counts.most_common(3))
    return f"Other events: {told}."
