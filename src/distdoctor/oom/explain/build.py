"""From out-of-memory events to the report. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.oom.checks.explain.all import EXPLAIN_CHECKS
from distdoctor.oom.explain.changes import change_findings, change_table
from distdoctor.oom.explain.devices import findings_for, missing_for, skips_for
from distdoctor.oom.explain.judged import Explained, explained, is_consequence
from distdoctor.oom.explain.missing import missing_evidence
from distdoctor.oom.explain.tables import explain_tables
from distdoctor.oom.explain.verdict import explain_verdict
from distdoctor.oom.facts.events import ExplainFacts
from distdoctor.report.assemble import build_report
from distdoctor.report.checking import run_checks
from distdoctor.report.model import CheckState, Culprit, GpuRef, InputFile, Report, RuledOut, Subject
from distdoctor.report.request import ReportRequest
from distdoctor.report.site import apply_site

# Culprits that are named one by one; the scope of the finding holds all. Our own bound.
_MAX_CULPRITS = 8


def explain_report(
    request: ReportRequest,
    facts: ExplainFacts,
    *,
    inputs: Sequence[InputFile] = (),
    was: ExplainFacts | None = None,
    beside: Report | None = None,
) -> Report:
    """The report over messages of one job.

    `was`: an earlier failure to compare with. `beside`: what was found in snapshots of the same job; its findings and
    tables are added, its skips do not decide.
    """
    judged = explained(facts)
    wanted = [check for check in EXPLAIN_CHECKS if not request.only or check.id in request.only]
    found, not_seen, checks = run_checks(wanted, judged, is_live=False)
    family = judged.lead.event.family if judged.lead is not None else None
    findings, skipped = findings_for(found, family), skips_for(not_seen, family)
    if was is not None:
        findings += change_findings(was, facts)
    if beside is not None:
        findings += beside.findings
        skipped += [replace(each, essential=False) for each in beside.skipped]
        checks += beside.checks
    if request.only:
        findings = [each for each in findings if each.id in request.only]
    tables = explain_tables(judged)
    if was is not None:
        tables = (change_table(was, facts), *tables)
    report = build_report(
        command=request.command,
        argv=request.argv,
        about=_about(facts),
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=checks,
        skipped=skipped,
        subject=_subject(facts, beside),
        tables=(*tables, *(beside.tables if beside is not None else ())),
        inputs=inputs,
        missing_evidence=missing_for(missing_evidence(judged), family),
        started=request.started,
        answered=bool(facts.events) and all(each.read for each in inputs),
    )
    ruled_out = tuple(
        RuledOut(what=each.title, why=each.detail)
        for each in checks
        if each.state is CheckState.PASSED and each.id in _RULES_OUT
    )
    report = replace(report, culprits=_culprits(judged), ruled_out=ruled_out)
    return replace(report, verdict=explain_verdict(report, judged))


# Checks whose "no" is worth a line: a reader asks for these first.
_RULES_OUT = frozenset(
    ("oom-other-process", "oom-process-cap", "oom-growth", "oom-fragmentation", "oom-outside-pool")
)


def _about(facts: ExplainFacts) -> str:
    number = len(facts.events)
    return f"{number} out-of-memory event{'s' if number != 1 else ''}"


def _subject(facts: ExplainFacts, beside: Report | None) -> Subject:
    known = beside.subject if beside is not None else Subject()
    hosts = tuple(dict.fromkeys(event.host for event in facts.events if event.host))
    return replace(
        known,
        hosts=hosts or known.hosts,
        world_size=facts.hints.num_ranks or known.world_size,
        gpu_models=facts.hints.gpu_names or known.gpu_models,
        torch=facts.hints.torch_version or known.torch,
    )


def _culprits(judged: Explained) -> tuple[Culprit, ...]:
    """Ranks that show the lead's cause; the others that failed are its victims."""
    lead = judged.lead
    if lead is None:
        return ()
    same = [each for each in judged.of((lead.cause,)) if not is_consequence(each, judged.facts)]
    named = [each.event for each in same if each.event.rank is not None or each.event.gpu is not None]
    culprits = [
        Culprit(
            rank=event.rank,
            host=event.host,
            local_rank=event.local_rank,
            gpu=GpuRef(host=event.host, index=event.gpu) if event.gpu is not None else None,
            why="ran out of memory",
        )
        for event in named[:_MAX_CULPRITS]
    ]
    ranks = {event.rank for event in named}
    victims = tuple(
        sorted(
            {
                row.rank
                for row in judged.facts.failures
                if row.rank not in ranks and row.exit_code not in (None, 0)
            }
        )
    )
    if victims and ranks - {None}:
        culprits.append(
            Culprit(role="victim", ranks=victims, why="ended by the launcher, or failed after the first")
        )
    return tuple(culprits)
