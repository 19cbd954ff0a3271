"""What differs between two or more reports: before and after, host against host, the odd one out of many.

Works on any kind of report: findings that one has and another has not, and facts with different values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from distdoctor.report.assemble import clip_title
from distdoctor.report.differences import RESULTS, Difference, Relevance, find_differences
from distdoctor.report.model import (
    Action,
    Column,
    Confidence,
    Evidence,
    Fault,
    Finding,
    Report,
    Scalar,
    Scope,
    Severity,
    Table,
    Team,
)

# A difference of at least this weight is a finding of its own; the others are rows of the table.
FINDING_WEIGHT = 30

# Findings that only some have come before all differing facts: they say what is wrong, not only what is unlike.
_FINDING_WEIGHTS = {Severity.CRITICAL: 200, Severity.WARNING: 150, Severity.INFO: 20}

MAX_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One side of a comparison: a host, a rank, a report at a time."""

    name: str
    facts: Mapping[str, Scalar]
    findings: Mapping[str, Finding] = field(default_factory=dict)
    """By fingerprint; ignored ones left out."""


def holders_of(report: Report, label: str) -> list[Holder]:
    """The sides that one report gives: one per host when it gathered several, else one named `label`."""
    hosts = tuple(dict.fromkeys(host for fact in report.facts for host in fact.hosts))
    if len(hosts) < 2:
        name = label
        return [Holder(name=name, facts=_facts_of(report, None), findings=_findings_of(report, None))]
    return [
        Holder(name=host, facts=_facts_of(report, host), findings=_findings_of(report, host))
        for host in hosts
    ]


def compare_holders(
    holders: Sequence[Holder], relevance: Callable[[str], Relevance | None]
) -> tuple[tuple[Finding, ...], tuple[Table, ...]]:
    """Findings (what matters, most relevant first) and a table of all differences between `holders`."""
    faults = find_differences(
        {
            # Titles hold host names and figures, which differ where the fault is the same.
            holder.name: {key: each.severity.value for key, each in holder.findings.items()}
            for holder in holders
        },
        lambda key: _fault_relevance(key, holders),
    )
    facts = find_differences({holder.name: holder.facts for holder in holders}, relevance)
    findings = [_fault_finding(each, holders) for each in faults]
    findings += [
        _fact_finding(each, len(holders)) for each in facts if each.relevance.weight >= FINDING_WEIGHT
    ]
    return tuple(findings), _table([*faults, *facts])


def unique_names(names: Sequence[str]) -> list[str]:
    """Names made distinct by a number, so that two reports of one host can be compared."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if names.count(name) == 1 else f"{name} ({seen[name]})")
    return result


def _facts_of(report: Report, host: str | None) -> dict[str, Scalar]:
    return {
        fact.key: fact.value
        for fact in reversed(report.facts)
        if fact.value is not None and (host is None or not fact.hosts or host in fact.hosts)
    }


def _findings_of(report: Report, host: str | None) -> dict[str, Finding]:
    return {
        each.fingerprint: each
        for each in report.findings
        if each.ignored is None and (host is None or not each.scope.hosts or host in each.scope.hosts)
    }


def _fault_relevance(fingerprint: str, holders: Sequence[Holder]) -> Relevance:
    finding = next(holder.findings[fingerprint] for holder in holders if fingerprint in holder.findings)
    return Relevance(
        weight=_FINDING_WEIGHTS[finding.severity],
        severity=finding.severity,
        topic="findings",
        consequence=finding.explanation,
        absence_counts=True,
    )


def _fault_finding(difference: Difference, holders: Sequence[Holder]) -> Finding:
    """A finding that some have, or have worse than the others."""
    with_it = [holder for holder in holders if difference.key in holder.findings]
    worst = max((holder.findings[difference.key].severity for holder in with_it), key=list(Severity).index)
    having = [holder for holder in with_it if holder.findings[difference.key].severity is worst]
    milder = [holder.name for holder in with_it if holder not in having]
    without = [holder.name for holder in holders if difference.key not in holder.findings]
    first = having[0].findings[difference.key]
    who = _names([holder.name for holder in having])
    evidence = (
        Evidence(text=f"{who}: {first.title}"),
        *first.evidence[:4],
        *([Evidence(text=f"{_names(milder)}: less severe")] if milder else ()),
        *([Evidence(text=f"{_names(without)}: not found")] if without else ()),
    )
    return Finding(
        id=first.id,
        severity=first.severity,
        confidence=first.confidence,
        title=clip_title(f"{'worst on' if milder else 'only'} {who}: {first.title}"),
        fingerprint=f"compare:{difference.key}",
        evidence=evidence,
        explanation=first.explanation,
        actions=first.actions,
        scope=Scope(
            hosts=tuple(holder.name for holder in having), gpus=first.scope.gpus, links=first.scope.links
        ),
        cause_class=first.cause_class,
        fault=first.fault,
    )


def _fact_finding(difference: Difference, num_holders: int) -> Finding:
    relevance = difference.relevance
    many = num_holders > 2 and difference.has_majority
    if many:
        title = f"{_names(difference.odd)}: {difference.name} differs from the others"
    else:
        title = f"{difference.name} differs"
    return Finding(
        id="compare-differs",
        severity=relevance.severity,
        confidence=Confidence.HIGH if many else Confidence.MEDIUM,
        title=clip_title(title),
        fingerprint=f"compare-differs:{difference.key}",
        evidence=tuple(
            Evidence(text=f"{_names(holders)}: {_shown(value)}", value=value)
            for value, holders in difference.groups[:MAX_NAMES]
        ),
        explanation=relevance.consequence[:1].upper() + relevance.consequence[1:] + ".",
        actions=()
        if relevance.topic == RESULTS
        else (
            Action(team=Team.PLATFORM, text=f"If they belong to one job, make {difference.name} the same"),
        ),
        scope=Scope(hosts=difference.odd if many else ()),
        fault=Fault.CONFIG if relevance.topic == "variables" else Fault.UNKNOWN,
    )


def _table(differences: Sequence[Difference]) -> tuple[Table, ...]:
    rows: list[tuple[Scalar, ...]] = [
        (each.key, _names(holders), _shown(value)) for each in differences for value, holders in each.groups
    ]
    if not rows:
        return ()
    return (
        Table(
            name="differences",
            title="All differences, most relevant first",
            columns=(Column(name="what"), Column(name="who"), Column(name="value")),
            rows=tuple(rows),
        ),
    )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown} and {len(names) - MAX_NAMES} more"


def _shown(value: Scalar) -> str:
    return "—" if value is None else str(value)
