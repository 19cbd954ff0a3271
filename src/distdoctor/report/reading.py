"""How a report is read: the order of findings and actions, and the sentences that every renderer shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.report.model import (
    Action,
    Confidence,
    Culprit,
    Evidence,
    Fact,
    Finding,
    Impact,
    Report,
    Series,
    Severity,
    Since,
    Status,
    Subject,
    Table,
    Team,
)
from distdoctor.report.names import culprit_name, fold_hosts, scalar_text
from distdoctor.report.spans import areas_note, span_peaks, span_rows
from distdoctor.report.stacks import limit_note, part_names, stacks, total_text
from distdoctor.units import fold_ints

_SEVERITY = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_CONFIDENCE = (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)

# More culprits, victims or hosts to drain than this are counted, not told one by one.
MAX_CULPRITS = 3

_HOW_SURE = {
    Confidence.HIGH: "",
    Confidence.MEDIUM: "medium confidence: check first",
    Confidence.LOW: "low confidence: a lead",
}


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that count, worst and surest first."""
    counted = [finding for finding in findings if finding.ignored is None]
    return sorted(
        counted,
        key=lambda finding: (_SEVERITY.index(finding.severity), _CONFIDENCE.index(finding.confidence)),
    )


def ignored(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that a site has accepted."""
    return [finding for finding in findings if finding.ignored is not None]


def first_tables(report: Report) -> tuple[Table, ...]:
    """Tables that stand right below the verdict."""
    return tuple(table for table in report.tables if table.place == "first")


def body_tables(report: Report) -> tuple[Table, ...]:
    """The other tables that people look at; those for programs are in the JSON only."""
    return tuple(table for table in report.tables if table.place == "body")


def how_sure(confidence: Confidence) -> str:
    """What a confidence below high asks of the reader; empty for high."""
    return _HOW_SURE[confidence]


def verdict_sureness(report: Report) -> str:
    """What the verdict's confidence asks of the reader; an ok verdict says what it has not seen instead."""
    return "" if report.verdict.status is Status.OK else how_sure(report.verdict.confidence)


def count_by_severity(findings: Sequence[Finding]) -> str:
    """`2 critical, 1 warning`; empty when there are none."""
    counts = [(severity, sum(each.severity is severity for each in findings)) for severity in _SEVERITY]
    return ", ".join(f"{count} {severity.value}" for severity, count in counts if count)


def evidence_text(evidence: Evidence) -> str:
    """The measured, the expected and where each comes from, in one sentence."""
    parts = [evidence.text]
    if evidence.expected:
        origin = f" ({evidence.expected_source})" if evidence.expected_source else ""
        parts.append(f"expected {evidence.expected}{origin}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamBlock:
    """What one team has to do, and the findings that make it so."""

    team: Team
    actions: tuple[Action, ...]
    """Each once, in the order of the findings."""
    findings: tuple[Finding, ...]


def team_blocks(report: Report) -> list[TeamBlock]:
    """Next actions by team; the team of the worst finding comes first."""
    actions: dict[Team, dict[Action, None]] = {}
    findings: dict[Team, list[Finding]] = {}
    for finding in ranked(report.findings):
        for action in finding.actions:
            actions.setdefault(action.team, {})[action] = None
            block = findings.setdefault(action.team, [])
            if not block or block[-1] is not finding:
                block.append(finding)
    drains = {
        Action(team=Team.PLATFORM, text=f"Take {drain.host} out: {drain.why}", command=drain.command): None
        for drain in report.drain
        if drain.answer == "yes" and drain.command
    }
    if drains:
        actions[Team.PLATFORM] = {**drains, **actions.get(Team.PLATFORM, {})}
    return [
        TeamBlock(team=team, actions=tuple(each), findings=tuple(findings.get(team, ())))
        for team, each in actions.items()
    ]


def story(report: Report) -> list[tuple[str, str]]:
    """Who, since when, what it costs, whether to drain: label and sentence, only what is known."""
    rows: list[tuple[str, str]] = []
    culprits = [culprit for culprit in report.culprits if culprit.role == "culprit"]
    victims = [culprit for culprit in report.culprits if culprit.role == "victim"]
    for culprit in culprits[:MAX_CULPRITS]:
        rows.append(("who", culprit_name(culprit) + (f": {culprit.why}" if culprit.why else "")))
    if len(culprits) > MAX_CULPRITS:
        rows.append(("", f"and {len(culprits) - MAX_CULPRITS} more"))
    if victims:
        rows.append(("waiting", _victims(victims)))
    if report.subject.missing_ranks or report.subject.missing_hosts:
        rows.append(("missing", _missing(report.subject)))
    if report.since is not None and (since := since_text(report.since)):
        rows.append(("since", since))
    if report.impact is not None and (impact := impact_text(report.impact)):
        rows.append(("costs", impact))
    for drain in report.drain[:MAX_CULPRITS]:
        rows.append(("drain", f"{drain.host}: {drain.answer}; {drain.why}"))
    if len(report.drain) > MAX_CULPRITS:
        answers = {
            answer: sum(d.answer == answer for d in report.drain)
            for answer in ("yes", "no", "not enough evidence")
        }
        told = ", ".join(f"{count} {answer}" for answer, count in answers.items() if count)
        rows.append(("", f"of {len(report.drain)} hosts: {told}"))
    return rows


def _victims(victims: Sequence[Culprit]) -> str:
    shown = [culprit_name(each) for each in victims[:MAX_CULPRITS]]
    rest = len(victims) - MAX_CULPRITS
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _missing(subject: Subject) -> str:
    parts = []
    if subject.missing_ranks:
        word = "rank" if len(subject.missing_ranks) == 1 else "ranks"
        parts.append(f"{word} {fold_ints(subject.missing_ranks)}")
    if subject.missing_hosts:
        parts.append(fold_hosts(subject.missing_hosts))
    return ", ".join(parts)


def since_text(since: Since) -> str:
    """`2026-11-30T10:02:11Z (Europe/Berlin), step 1200, to the second`."""
    zone = f" ({since.source_zone})" if since.source_zone else ""
    parts = [f"{since.utc}{zone}" if since.utc else "", "" if since.step is None else f"step {since.step}"]
    return ", ".join(each for each in (*parts, since.exactness or "") if each)


def impact_text(impact: Impact) -> str:
    """`64 GPUs held, 31 % slower, 12 GPU-hours (estimated)`."""
    parts = [
        "" if impact.gpus_held is None else f"{impact.gpus_held} GPU{'s' * (impact.gpus_held != 1)} held",
        "" if impact.slowdown_pct is None else f"{scalar_text(impact.slowdown_pct)} % slower",
        "" if impact.gpu_hours is None else f"{scalar_text(impact.gpu_hours)} GPU-hours",
        ""
        if impact.gpu_hours_per_day is None
        else f"{scalar_text(impact.gpu_hours_per_day)} GPU-hours a day",
    ]
    told = ", ".join(each for each in parts if each)
    return f"{told} ({impact.basis})" if told else ""


def subject_phrases(subject: Subject) -> list[str]:
    """`host-a`, `slurm job 4711`, `8 x NVIDIA H100`, `torch 2.13.0` …, only what is known."""
    gpus = ", ".join(subject.gpu_models)
    counted = f"{subject.num_gpus} x {gpus}" if subject.num_gpus and gpus else gpus
    if subject.num_gpus and not gpus:
        counted = f"{subject.num_gpus} GPUs"
    job = " ".join(each for each in (subject.scheduler, "job", subject.job_id, subject.job_name) if each)
    hosts = fold_hosts(subject.hosts)
    if len(subject.hosts) > 1:
        hosts = hosts if hosts.endswith("hosts)") else f"{hosts} ({len(subject.hosts)} hosts)"
    phrases = [
        hosts,
        job if subject.job_id or subject.job_name else (subject.scheduler or ""),
        "" if subject.world_size is None else f"world size {subject.world_size}",
        "" if subject.restart_count is None else f"restart {subject.restart_count}",
        counted,
        ", ".join(subject.nic_models),
        f"torch {subject.torch}" if subject.torch else "",
        f"NCCL {subject.nccl}" if subject.nccl else "",
        f"CUDA {subject.cuda}" if subject.cuda else "",
        f"driver {subject.driver}" if subject.driver else "",
        f"image {subject.image}" if subject.image else "",
    ]
    return [phrase for phrase in phrases if phrase]


def facts_by_group(report: Report) -> dict[str, list[Fact]]:
    """Facts by the first part of their key, in the order of first sight."""
    groups: dict[str, list[Fact]] = {}
    for fact in report.facts:
        groups.setdefault(fact.key.partition(".")[0], []).append(fact)
    return groups


def facts_differ(report: Report) -> set[str]:
    """Keys that have more than one value: there hosts are named beside the value."""
    values: dict[str, set[object]] = {}
    for fact in report.facts:
        values.setdefault(fact.key, set()).add((type(fact.value), fact.value))
    return {key for key, each in values.items() if len(each) > 1}


def series_rows(series: Series) -> tuple[list[str], list[tuple[str, ...]]]:
    """A series as a table: header and rows."""
    if series.kind == "heat":
        header = [series.y_label or "row", *(scalar_text(each) for each in series.x)]
        names = series.names or tuple(str(index) for index in range(len(series.values)))
        return header, [
            (name, *(scalar_text(each) for each in row))
            for name, row in zip(names, series.values, strict=False)
        ]
    if series.kind == "stacked":
        return [series.x_label or "bar", "total", *part_names(series)], [
            (stack.label, total_text(stack), *map(scalar_text, stack.parts)) for stack in stacks(series)
        ]
    if series.kind == "areas":
        return span_rows(series)
    names = series.names or (series.y_label or "value",) * len(series.values)
    header = [series.x_label or "x", *names]
    rows = [
        (scalar_text(x), *(scalar_text(ys[index]) if index < len(ys) else "-" for ys in series.values))
        for index, x in enumerate(series.x)
    ]
    return header, rows


def hot_rows(series: Series) -> frozenset[int]:
    """The rows of the table of `series` that are accused, or beyond its limit."""
    if series.kind == "lines":
        return frozenset()
    if series.kind == "stacked":
        return frozenset(index for index, stack in enumerate(stacks(series)) if stack.hot)
    if series.kind == "areas":
        return frozenset(index for index, span in enumerate(span_peaks(series)) if span.peak.excess > 0)
    return frozenset(series.hot)


def series_note(series: Series) -> str:
    """What stands beside the table of `series`: the limit, and what is beyond it; empty where there is nothing."""
    return areas_note(series) if series.kind == "areas" else limit_note(series)
