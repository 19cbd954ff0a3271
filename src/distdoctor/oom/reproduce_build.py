"""From what was reproduced to the report."""

from __future__ import annotations

import re

from msgspec.structs import replace

from distdoctor.oom.checks.reproduce.all import REPRODUCE_CHECKS
from distdoctor.oom.facts.reproduced import Outcome, ReproduceFacts
from distdoctor.oom.reproduce_tables import reproduce_series, reproduce_tables
from distdoctor.oom.settings import DataParallel
from distdoctor.report.assemble import build_report, clip_title
from distdoctor.report.checking import run_checks
from distdoctor.report.model import Culprit, Finding, Report, Severity, Status, Subject, Verdict
from distdoctor.report.request import ReportRequest
from distdoctor.report.site import apply_site
from distdoctor.units import format_bytes


def reproduce_report(request: ReportRequest, facts: ReproduceFacts) -> Report:
    """The report over a run, complete or cut short."""
    wanted = [check for check in REPRODUCE_CHECKS if not request.only or check.id in request.only]
    findings, skipped, results = run_checks(wanted, facts)
    report = build_report(
        command=request.command,
        argv=request.argv,
        about=about(facts),
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=results,
        skipped=skipped,
        subject=_subject(facts),
        tables=reproduce_tables(facts),
        started=request.started,
        answered=_is_answered(facts),
    )
    return replace(
        report,
        verdict=_verdict(report, facts),
        culprits=_culprits(facts, report.findings),
        series=reproduce_series(facts),
    )


def about(facts: ReproduceFacts) -> str:
    """`4 ranks on 1 host over Gloo, model tiny`."""
    num_hosts = len({place.host for place in facts.places})
    ranks = f"{facts.num_ranks} rank{'s' if facts.num_ranks != 1 else ''}"
    where = f" on {num_hosts} host{'s' if num_hosts != 1 else ''}" if num_hosts else ""
    over = {"nccl": " over NCCL", "gloo": " over Gloo"}.get(facts.backend or "", "")
    models = ", ".join(dict.fromkeys(each.job.model.name for each in facts.combinations))
    shared = ", beside another job on the GPUs" if facts.shares_gpus else ""
    return f"{ranks}{where}{over}, model {models}{shared}"


def _is_answered(facts: ReproduceFacts) -> bool:
    """Every combination that can run here has come to an end of its own."""
    ended = (Outcome.DONE, Outcome.OUT_OF_MEMORY)
    outcomes = [each.outcome for each in facts.combinations if not each.not_begun]
    return (
        facts.stopped is None
        and len(outcomes) == len(facts.combinations)
        and any(each in ended for each in outcomes)
        and all(each in (*ended, Outcome.CANNOT_RUN) for each in outcomes)
    )


def _subject(facts: ReproduceFacts) -> Subject:
    lost = facts.stopped.lost if facts.stopped is not None else ()
    return Subject(
        hosts=tuple(dict.fromkeys(place.host for place in facts.places)),
        world_size=facts.num_ranks,
        gpu_models=tuple(dict.fromkeys(place.gpu_model for place in facts.places if place.gpu_model)),
        torch=facts.torch,
        missing_ranks=tuple(each.rank for each in lost),
    )


def _verdict(report: Report, facts: ReproduceFacts) -> Verdict:
    """Findings speak first; else how many ran, and which took most."""
    serious = any(each.ignored is None and each.severity is not Severity.INFO for each in report.findings)
    ran = [each for each in facts.combinations if each.outcome is Outcome.DONE]
    if report.verdict.status is Status.UNKNOWN and not report.subject.missing_ranks:
        return _unknown(report.verdict, facts)
    if serious or not ran or report.verdict.status is not Status.OK:
        return report.verdict
    most = max(ran, key=lambda each: each.worst.peak.num_bytes if each.worst and each.worst.peak else 0)
    peak = most.worst.peak.num_bytes if most.worst is not None and most.worst.peak is not None else 0
    if len(facts.combinations) == 1:
        rank = most.worst.rank if most.worst is not None else 0
        where = f" on {facts.num_ranks} ranks" if facts.num_ranks > 1 else ""
        title = f"{most.name} ran{where}: {format_bytes(peak)} of tensors at the peak, on rank {rank}"
    else:
        title = (
            f"{len(ran)} of {len(facts.combinations)} strategies ran; most memory: "
            f"{most.name}, {format_bytes(peak)}"
        )
    limit = (
        f" Each rank was limited to {format_bytes(facts.memory_limit_bytes)}."
        if facts.memory_limit_bytes
        else ""
    )
    steps = f"{facts.steps} step{'s' if facts.steps != 1 else ''}"
    summary = (
        f"{about(facts)}, {steps}. Measured with real tensors and collectives.{limit}{_why_this_one(facts)}"
    )
    return replace(report.verdict, title=clip_title(title), summary=summary)


def _why_this_one(facts: ReproduceFacts) -> str:
    """Why this strategy was run, where nobody has asked for one."""
    if len(facts.combinations) != 1 or facts.combinations[0].job.said.strategy is not None:
        return ""
    job = facts.combinations[0].job
    if job.strategy is not DataParallel.NONE:
        return (
            f" No --strategy was given: {job.strategy.value} is the default; --strategy all runs every one."
        )
    return " One rank runs the model alone; more ranks by --launch N." if facts.num_ranks == 1 else ""


def _unknown(verdict: Verdict, facts: ReproduceFacts) -> Verdict:
    """What kept the question from being answered."""
    stopped = facts.stopped
    if stopped is not None:
        who = "somebody ended the run" if stopped.by_user else "the run was ended"
        where = f" in {stopped.phase}" if stopped.phase else ""
        return replace(
            verdict, title=f"cannot tell: {who} early", summary=f"It was ended{where}: {stopped.reason}."
        )
    for each in facts.combinations:
        why = each.not_begun or next(
            (part.error for part in each.parts if part.outcome is Outcome.CANNOT_RUN), ""
        )
        if why:
            title = clip_title(f"cannot tell: {each.name}: {why}")
            return replace(verdict, title=title, summary=f"{about(facts)}. {each.name}: {why}.")
    return verdict


# "rank 1 (host-a) ran out of memory": where the rank stands already, it is not named again.
_NAME = re.compile(r"ranks? [\d,-]+(?: \([^)]*\))? ")


def _without_name(title: str) -> str:
    name = _NAME.match(title)
    return title[name.end() :] if name is not None else title


def _culprits(facts: ReproduceFacts, findings: tuple[Finding, ...]) -> tuple[Culprit, ...]:
    """Ranks that a critical finding names; what all ranks met alike is nobody's fault."""
    found: dict[int, Culprit] = {}
    for finding in findings:
        if finding.severity is not Severity.CRITICAL or finding.ignored is not None:
            continue
        if len(finding.scope.ranks) == facts.num_ranks > 1:
            continue
        for rank in finding.scope.ranks:
            place = facts.place_of(rank)
            found.setdefault(
                rank,
                Culprit(
                    rank=rank,
                    host=place.host if place is not None else None,
                    pod=place.pod if place is not None else None,
                    local_rank=place.local_rank if place is not None else None,
                    gpu=place.gpu if place is not None else None,
                    why=_without_name(finding.title),
                ),
            )
    return tuple(found.values())[:16]
