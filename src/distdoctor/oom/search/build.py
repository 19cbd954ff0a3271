"""From a search to the report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.oom.checks.fit.all import FIT_CHECKS
from distdoctor.oom.checks.fit.base import card_words, gib
from distdoctor.oom.estimate_facts import estimate_facts
from distdoctor.oom.estimate_tables import estimate_tables
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.fit import left_words, need_words
from distdoctor.oom.search.limits import Limit, Limited
from distdoctor.oom.search.proposal import Outcome
from distdoctor.oom.search.tables import fit_tables
from distdoctor.oom.settings_record import settings_table
from distdoctor.report.assemble import MAX_TITLE, build_report
from distdoctor.report.checking import run_checks
from distdoctor.report.model import (
    Confidence,
    InputFile,
    MissingEvidence,
    Report,
    Severity,
    Status,
    Subject,
    Table,
    Verdict,
)
from distdoctor.report.request import ReportRequest
from distdoctor.report.site import apply_site
from distdoctor.units import GIB

# More of them are a list of their own: `oom config` shows it.
_MAX_DOUBTS = 2

# Two rows of a screen; all of them stand in the table of the job. Our own choice.
_MAX_ASSUMED = 110

# A limit that was asked for is another question than what makes the job fit.
_OF_LIMITS = ("oom-fit-limit", "oom-fit-card", "oom-fit-measured")


def fit_report(request: ReportRequest, facts: FitFacts, *, inputs: Sequence[InputFile] = ()) -> Report:
    """The report over one search, or over a failure that was not enough for one."""
    wanted = [check for check in FIT_CHECKS if not request.only or check.id in request.only]
    if facts.limited is not None:
        wanted = [check for check in wanted if check.id in _OF_LIMITS]
    findings, skipped, results = run_checks(wanted, facts)
    report = build_report(
        command=request.command,
        argv=request.argv,
        about=_about(facts),
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=results,
        skipped=skipped,
        subject=_subject(facts),
        facts=estimate_facts(estimated) if (estimated := _estimated(facts)) is not None else (),
        tables=(*fit_tables(facts), *_estimate_tables(facts)),
        inputs=inputs,
        missing_evidence=_missing(facts),
        started=request.started,
        answered=_is_answered(facts),
    )
    return replace(report, verdict=_verdict(report, facts))


def _estimated(facts: FitFacts) -> EstimateFacts | None:
    if facts.job is None or facts.outcome is None:
        return None
    return EstimateFacts(job=facts.job, estimate=facts.outcome.start.estimate, cluster=facts.cluster)


def _estimate_tables(facts: FitFacts) -> tuple[Table, ...]:
    """Today's estimate below the proposals, and the settings for programs."""
    estimated = _estimated(facts)
    if estimated is None or facts.job is None:
        return ()
    tables = [
        replace(each, place="body") if each.place == "first" else each for each in estimate_tables(estimated)
    ]
    return (*tables, settings_table(facts.job.said, facts.cluster))


def _subject(facts: FitFacts) -> Subject:
    return Subject(
        world_size=facts.job.mesh.num_ranks if facts.job is not None else None,
        # A size that a message told is no model.
        gpu_models=(facts.cluster.type.name,)
        if facts.cluster is not None and facts.cluster.type.architecture is not None
        else (),
    )


def _about(facts: FitFacts) -> str:
    if facts.job is None or facts.outcome is None:
        return "a failure whose job is not known"
    return f"{facts.job.model.name}, {facts.outcome.start.estimate.title}; by formula, the worst rank"


def _missing(facts: FitFacts) -> tuple[MissingEvidence, ...]:
    if facts.outcome is not None or facts.failure is None:
        return ()
    return (
        MissingEvidence(
            what="the job's settings",
            why="a message tells what was allocated, not the model, the strategy or the batch",
            how="distdoctor oom fit --model NAME --on 8xTYPE (or --config FILE), with what else is known (--micro-batch, "
            f"--seq-len, --mesh), {shlex.quote(facts.failure.path)}",
        ),
    )


def _is_answered(facts: FitFacts) -> bool:
    if facts.limited is not None:
        return bool(facts.limits)
    outcome = facts.outcome
    return outcome is not None and not (outcome.fits_already and not outcome.start.estimate.is_whole)


def _verdict(report: Report, facts: FitFacts) -> Verdict:
    """Findings speak first; else that it fits, or the limit that was asked for."""
    verdict = report.verdict
    if facts.outcome is None:
        return _of_failure(verdict, facts)
    serious = [
        each for each in report.findings if each.ignored is None and each.severity is not Severity.INFO
    ]
    if serious:
        rest = f"{_about(facts)}. {_doubts(facts)}{_assumed(facts)}"
        return replace(verdict, summary=f"{serious[0].explanation} {rest}".strip())
    if facts.limited is not None and facts.limits:
        title = limit_words(facts.limits[0], facts)
    elif verdict.status is Status.UNKNOWN:
        return verdict
    else:
        title = _fits_words(facts, facts.outcome)
    summary = f"{_about(facts)}. {_doubts(facts)}{_assumed(facts)}"
    return replace(verdict, title=title[:MAX_TITLE], summary=summary, confidence=Confidence.MEDIUM)


def _of_failure(verdict: Verdict, facts: FitFacts) -> Verdict:
    failure = facts.failure
    if failure is None or verdict.status is not Status.UNKNOWN:
        return verdict
    short = ""
    if failure.free_bytes is not None and failure.requested_bytes > failure.free_bytes:
        short = f"; {gib(failure.requested_bytes - failure.free_bytes)} were missing"
    return replace(
        verdict,
        title=f"cannot search: the job's settings are not known{short}"[:MAX_TITLE],
        summary=f"The message tells that {gib(failure.allocated_bytes)} were allocated and "
        f"{gib(failure.requested_bytes)} asked for ({failure.phase}), and nothing in it says that something else than "
        "the job itself is in the way. What makes the job fit depends on its settings.",
    )


def limit_words(limit: Limit, facts: FitFacts) -> str:
    """`micro-batch 7 is the largest that fits h100-80gb, by estimate (now 1)`."""
    if limit.largest is None:
        return f"even {limit.what.value} {limit.beyond} does not surely fit {card_words(facts)}"
    which = "longest" if limit.what is Limited.SEQ_LEN else "largest"
    name = "sequence" if limit.what is Limited.SEQ_LEN else "micro-batch"
    tokens = " tokens" if limit.what is Limited.SEQ_LEN else ""
    now = f"now {limit.now}" if limit.now != limit.largest else "as now"
    return f"the {which} {name} that fits {card_words(facts)} is {limit.largest}{tokens} ({now})"


def _fits_words(facts: FitFacts, outcome: Outcome) -> str:
    fit = outcome.start.fit
    needs = need_words(fit.need_low, fit.need_high)
    return f"fits {card_words(facts)} already: needs {needs} of {fit.capacity / GIB:.1f} GiB, {left_words(fit)} left"


def _assumed(facts: FitFacts) -> str:
    assumptions = facts.job.assumptions if facts.job is not None else ()
    said: list[str] = []
    for number, each in enumerate(assumptions):
        if len("; ".join([*said, each])) > _MAX_ASSUMED:
            return f"Assumed: {'; '.join(said)}; and {len(assumptions) - number} more."
        said.append(each)
    return f"Assumed: {'; '.join(said)}." if said else ""


def _doubts(facts: FitFacts) -> str:
    if not facts.doubts:
        return ""
    more = len(facts.doubts) - _MAX_DOUBTS
    said = "; ".join(facts.doubts[:_MAX_DOUBTS])
    return f"Not settled by the configuration: {said}{f'; and {more} more' if more > 0 else ''}. "
