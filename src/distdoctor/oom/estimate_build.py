"""From an estimate to the report."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.oom.checks.estimate.all import ESTIMATE_CHECKS
from distdoctor.oom.estimate_facts import estimate_facts
from distdoctor.oom.estimate_tables import (
    answer_of,
    assumption_words,
    estimate_tables,
    fit_words,
    is_answered,
    need_of,
)
from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.oom.fit import Fits, gpu_words, left_words
from distdoctor.oom.settings_record import settings_table
from distdoctor.report.assemble import MAX_TITLE, build_report
from distdoctor.report.checking import run_checks
from distdoctor.report.model import (
    Confidence,
    InputFile,
    Report,
    Series,
    Severity,
    Status,
    Subject,
    Verdict,
)
from distdoctor.report.request import ReportRequest
from distdoctor.report.site import apply_site
from distdoctor.units import GIB


def estimate_report(
    request: ReportRequest, facts: EstimateFacts, *, inputs: Sequence[InputFile] = ()
) -> Report:
    """The report over one estimate, and over its variants where they were asked for."""
    wanted = [check for check in ESTIMATE_CHECKS if not request.only or check.id in request.only]
    if facts.variants:
        # Side by side the table answers, not the one that was named.
        wanted = []
    findings, skipped, results = run_checks(wanted, facts)
    report = build_report(
        command=request.command,
        argv=request.argv,
        about=facts.estimate.title,
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=results,
        skipped=skipped,
        subject=_subject(facts),
        facts=estimate_facts(facts),
        tables=(*estimate_tables(facts), settings_table(facts.job.said, facts.cluster)),
        inputs=inputs,
        started=request.started,
        answered=is_answered(facts),
    )
    return replace(report, verdict=_verdict(report, facts), series=estimate_series(facts))


def _subject(facts: EstimateFacts) -> Subject:
    """Side by side, the summary says it, and rows are dear."""
    if facts.variants:
        return Subject()
    return Subject(
        world_size=facts.job.mesh.num_ranks,
        gpu_models=(facts.cluster.type.name,) if facts.cluster else (),
    )


def _verdict(report: Report, facts: EstimateFacts) -> Verdict:
    """Findings speak first; else what it needs, or how much is left."""
    serious = [
        each for each in report.findings if each.ignored is None and each.severity is not Severity.INFO
    ]
    if facts.variants:
        return _compared_verdict(report.verdict, facts)
    about = f"{facts.job.model.name}, {facts.estimate.title}; by formula, the worst rank"
    summary = f"{about}. {_doubts(facts)}{assumption_words(facts)}"
    if serious:
        return replace(report.verdict, summary=f"{serious[0].explanation} {summary}")
    fit = facts.fit
    if fit is None:
        title = f"needs {fit_words(facts)} on each GPU at its peak; --on GPUS gives a verdict"
        if not facts.estimate.is_whole:
            title = f"needs {fit_words(facts)} on each GPU for model states alone"
    elif fit.answer is Fits.UNKNOWN and facts.estimate.not_covered:
        title = f"cannot tell: not covered by the formulas: {facts.estimate.not_covered[0]}"
    elif fit.answer is Fits.UNKNOWN:
        title = f"cannot tell: model states need {fit_words(facts)} GiB, activations are unknown"
    elif fit.answer is not Fits.YES:
        # The finding that says so was left out or ignored: `ok` is no answer to what was not asked.
        title = f"whether it fits is left out here: needs {fit_words(facts)} GiB"
    else:
        title = f"fits: needs {fit_words(facts)} GiB, {left_words(fit)} are left"
    return replace(report.verdict, title=title[:MAX_TITLE], summary=summary, confidence=Confidence.MEDIUM)


# More of them are a list of their own: `oom config` shows it.
_MAX_DOUBTS = 3


def _doubts(facts: EstimateFacts) -> str:
    """What the configurations did not settle, with a space behind it; nothing where they settle all."""
    if not facts.doubts:
        return ""
    said = "; ".join(facts.doubts[:_MAX_DOUBTS])
    more = len(facts.doubts) - _MAX_DOUBTS
    return f"Not settled by the configuration: {said}{f'; and {more} more' if more > 0 else ''}. "


def _compared_verdict(verdict: Verdict, facts: EstimateFacts) -> Verdict:
    """How many strategies fit, and which one with most room."""
    possible = [each for each in facts.variants if each.estimate is not None]
    about = f"{facts.job.model.name} on {facts.job.mesh.num_ranks} GPUs"
    summary = f"{about}. {_doubts(facts)}{assumption_words(facts)}"
    if facts.cluster is None:
        smallest = min(possible, key=need_of, default=None)
        title = f"{len(possible)} strategies side by side"
        if smallest is not None:
            title += f"; least memory: {smallest.label}"
        return replace(verdict, title=title[:MAX_TITLE], summary=summary, confidence=Confidence.MEDIUM)
    answers = [answer_of(each, facts) for each in possible]
    fitting = [each for each, answer in zip(possible, answers, strict=True) if answer is Fits.YES]
    title = f"{len(fitting)} of {len(possible)} strategies fit {gpu_words(facts.cluster.type)}"
    if fitting:
        title += f"; most room: {min(fitting, key=need_of).label}"
    status = (
        Status.OK
        if fitting
        else Status.UNKNOWN
        if Fits.UNKNOWN in answers
        else Status.WARNING
        if Fits.TIGHT in answers
        else Status.CRITICAL
    )
    return replace(
        verdict, status=status, title=title[:MAX_TITLE], summary=summary, confidence=Confidence.MEDIUM
    )


def estimate_series(facts: EstimateFacts) -> tuple[Series, ...]:
    """Stacked bars: of the strategies, or of the moments of the worst rank."""
    if facts.variants:
        bars = [
            (variant.label, variant.estimate.worst.peak)
            for variant in facts.variants
            if variant.estimate is not None
        ]
        title, name = "Allocated at the peak of the worst rank, by strategy (estimated)", "oom-strategies"
    else:
        worst = facts.estimate.worst
        bars = [
            (f"step {each.step}, {each.moment.value}" if each.step else "initialisation", each)
            for each in worst.moments
        ]
        title, name = f"Allocated, moment by moment: {worst.role} (estimated)", "oom-moments"
    categories = [each for each in Category if any(moment.of(each) for _, moment in bars)]
    return (
        Series(
            name=name,
            title=title,
            kind="stacked",
            x_label="",
            y_label="GiB",
            x=tuple(label for label, _ in bars),
            names=tuple(each.value for each in categories),
            values=tuple(tuple(round(moment.of(each) / GIB, 2) for _, moment in bars) for each in categories),
            limit=facts.cluster.type.total_bytes / GIB if facts.cluster else None,
            limit_label=_limit_words(facts),
        ),
    )


def _limit_words(facts: EstimateFacts) -> str:
    """`h100-80gb: 79.1 GiB`."""
    if facts.cluster is None:
        return ""
    return f"{gpu_words(facts.cluster.type)}: {facts.cluster.type.total_bytes / GIB:.1f} GiB"
