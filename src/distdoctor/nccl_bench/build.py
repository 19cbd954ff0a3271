"""From the facts of one run, or of several files, to the report. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.nccl_bench.analysis.culprits import culprits_of
from distdoctor.nccl_bench.checks.all import BENCH_CHECKS
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.pictures import bench_series
from distdoctor.nccl_bench.tables import bench_tables, moving_rows
from distdoctor.nccl_bench.verdict import bench_verdict, pairs_left_out
from distdoctor.report.assemble import build_report
from distdoctor.report.checking import run_checks
from distdoctor.report.model import CheckResult, Finding, InputFile, Report, SkipCause, Skipped, Subject
from distdoctor.report.request import ReportRequest
from distdoctor.report.site import apply_site


def bench_report(
    request: ReportRequest,
    all_facts: Sequence[BenchFacts],
    *,
    beside: Report | None = None,
    inputs: Sequence[InputFile] = (),
    timings: dict[str, float] | None = None,
) -> Report:
    """The report over a run, or over the tables and logs of files.

    `beside`: what another command found on the same hosts; its findings count, its skips do not decide.
    """
    findings: list[Finding] = list(beside.findings) if beside is not None else []
    checks: list[CheckResult] = list(beside.checks) if beside is not None else []
    skipped: list[Skipped] = [replace(each, essential=False) for each in beside.skipped] if beside else []
    wanted = [check for check in BENCH_CHECKS if not request.only or check.id in request.only]
    for facts in all_facts:
        asked = [check for check in wanted if _can_tell(check.id, facts)]
        found, skips, results = run_checks(asked, facts, hosts=_only_host(facts), is_live=facts.is_live)
        findings += found
        skipped += skips
        if facts.nccl_log is None and not facts.is_live and not request.only:
            skipped.append(_NO_LOG)
        checks += results
    if request.only:
        findings = [each for each in findings if each.id in request.only]
    subject = _subject(all_facts, beside)
    several = len(all_facts) > 1
    labels = [facts.label if several else "" for facts in all_facts]
    culprits = tuple(
        culprit for facts in all_facts for culprit in culprits_of(facts, tuple(findings)) if facts.is_live
    )
    accused = tuple(
        rank for each in findings if each.id.startswith("bench-slow-") for rank in each.scope.ranks
    )
    report = build_report(
        command=request.command,
        argv=request.argv,
        about=_about(all_facts, subject),
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=checks,
        skipped=skipped,
        subject=subject,
        facts=beside.facts if beside is not None else (),
        tables=tuple(
            table
            for facts, label in zip(all_facts, labels, strict=True)
            for table in bench_tables(facts, label=label)
        ),
        inputs=inputs,
        timings=timings,
        started=request.started,
        answered=bool(all_facts) and all(each.read for each in inputs) and _complete(all_facts),
    )
    series = tuple(
        each
        for facts, label in zip(all_facts, labels, strict=True)
        for each in bench_series(facts, label=label, accused=accused)
    )
    return replace(
        report,
        verdict=bench_verdict(report, all_facts),
        culprits=culprits,
        series=series,
    )


# What a table does not show, in one line rather than in one for each check of a log.
_NO_LOG = Skipped(
    id="nccl-log",
    what="NCCL's own log",
    cause=SkipCause.NOT_IN_EVIDENCE,
    reason="transports, NICs and settings stand in a log, not in a table",
    how="run it with NCCL_DEBUG=INFO and give both",
)

# Needs times of single ranks, which no table and no log holds.
_OF_RUNS = frozenset(
    (
        "bench-stopped",
        "bench-late-rank",
        "bench-skew",
        "bench-slow-host",
        "bench-slow-link",
        "bench-slow-group",
    )
)


def _can_tell(check_id: str, facts: BenchFacts) -> bool:
    """Whether this kind of evidence can hold what the check looks at."""
    if check_id.startswith("nccl-log-"):
        return facts.nccl_log is not None or facts.is_live
    return facts.is_live or (facts.origin is not Origin.LOG and check_id not in _OF_RUNS)


def _complete(all_facts: Sequence[BenchFacts]) -> bool:
    """Runs that came to their end, and measured something."""
    return all(
        facts.stopped is None
        and not pairs_left_out(facts)
        and (not facts.is_live or bool(moving_rows(facts.rows)))
        for facts in all_facts
    )


def _only_host(facts: BenchFacts) -> tuple[str, ...]:
    """The host of a run on one host; findings of several hosts name theirs."""
    hosts = dict.fromkeys(place.host for place in facts.places)
    return tuple(hosts) if len(hosts) == 1 else ()


def _subject(all_facts: Sequence[BenchFacts], beside: Report | None) -> Subject:
    known = beside.subject if beside is not None else Subject()
    hosts = tuple(dict.fromkeys(place.host for facts in all_facts for place in facts.places))
    models = tuple(
        dict.fromkeys(
            model
            for facts in all_facts
            for model in (
                *(place.gpu_model for place in facts.places),
                *(model for host in facts.hardware for model in host.gpu_models or ()),
            )
            if model
        )
    )
    live = next((facts for facts in all_facts if facts.is_live), None)
    first = live or next(iter(all_facts), None)
    versions = first.versions if first is not None else None
    return replace(
        known,
        hosts=hosts or known.hosts,
        world_size=(first.num_ranks if first is not None else None) or known.world_size,
        gpu_models=models or known.gpu_models,
        torch=(versions and versions.torch) or known.torch,
        nccl=(versions and versions.nccl) or known.nccl,
        cuda=(versions and versions.cuda) or known.cuda,
        driver=(versions and versions.driver) or known.driver,
        missing_ranks=tuple(lost.rank for lost in live.stopped.lost) if live and live.stopped else (),
    )


def _about(all_facts: Sequence[BenchFacts], subject: Subject) -> str:
    if len(all_facts) == 1 and all_facts[0].is_live:
        num_ranks, num_hosts = all_facts[0].num_ranks or 1, len(subject.hosts)
        ranks = f"{num_ranks} rank{'s' if num_ranks != 1 else ''}"
        backend = {"nccl": "NCCL", "gloo": "Gloo"}.get(all_facts[0].backend or "", "")
        over = f" over {backend}" if backend else ""
        # Of a run that broke off before ranks told their hosts, nothing is said of hosts.
        where = f" on {num_hosts} host{'s' if num_hosts != 1 else ''}" if num_hosts else ""
        return f"{ranks}{where}{over}"
    if len(all_facts) == 1:
        return all_facts[0].label
    return f"{len(all_facts)} tables and logs"
