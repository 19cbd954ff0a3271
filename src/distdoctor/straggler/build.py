"""From analysed evidence to the report. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.report.assemble import build_report
from distdoctor.report.checking import run_checks
from distdoctor.report.model import (
    Culprit,
    Drain,
    Impact,
    MissingEvidence,
    Report,
    Since,
    Subject,
)
from distdoctor.report.request import ReportRequest
from distdoctor.report.site import apply_site
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.causes import Cause, explain_suspect
from distdoctor.straggler.analysis.ranks.judgement import Pattern, Suspect
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.aside import ASIDE
from distdoctor.straggler.checks.all import STRAGGLER_CHECKS
from distdoctor.straggler.checks.own_work import is_own_work_of_first_rank
from distdoctor.straggler.checks.slow_rank import effect_words, late_words
from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.pictures import straggler_series
from distdoctor.straggler.tables import straggler_tables
from distdoctor.straggler.verdict import inconclusive_reason, straggler_verdict
from distdoctor.straggler.words import gpu_of, ms, percent, utc_of, when

# Culprits and victims that a report lists one by one; beyond it they are in findings and tables.
MAX_CULPRITS = 16
MAX_VICTIMS = 100_000


def straggler_report(
    request: ReportRequest, facts: Analysed, *, timings: dict[str, float] | None = None
) -> Report:
    """The report over everything that was read."""
    wanted = [check for check in STRAGGLER_CHECKS if not request.only or check.id in request.only]
    findings, skipped, checks = run_checks(wanted, facts, is_live=False)
    report = build_report(
        command=request.command,
        argv=request.argv,
        about=_about(facts),
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=checks,
        skipped=skipped,
        subject=_subject(facts),
        tables=straggler_tables(facts),
        inputs=facts.reading.inputs,
        missing_evidence=_missing(facts),
        timings=timings,
        started=request.started,
        answered=inconclusive_reason(facts) is None,
    )
    accused = [(judged, each) for judged in facts.judged for each in _accused(judged)]
    return replace(
        report,
        verdict=straggler_verdict(report, facts),
        culprits=_culprits(facts, accused),
        since=_since(facts, accused),
        impact=_impact(facts),
        drain=_drain(facts, accused),
        series=straggler_series(facts),
    )


def _accused(judged: Judged) -> list[Suspect]:
    return [each for each in judged.judgement.accused if not is_own_work_of_first_rank(each)]


def _about(facts: Analysed) -> str:
    if facts.judged:
        first = facts.judged[0]
        ranks = first.timings.num_ranks
        hosts = {place.host for place in first.timings.places if place.host is not None}
        where = f" on {len(hosts)} host{'s' if len(hosts) != 1 else ''}" if hosts else ""
        runs = f"{len(facts.judged)} runs, the first of " if len(facts.judged) > 1 else ""
        return f"{runs}{ranks:,} rank{'s' if ranks != 1 else ''}{where}, {first.units}"
    kinds = list(
        dict.fromkeys(each.kind for each in facts.reading.inputs if each.read and each.kind != ASIDE)
    )
    return ", ".join(kinds[:3]) or "the evidence"


def _subject(facts: Analysed) -> Subject:
    places = [place for each in facts.judged for place in each.timings.places]
    hosts = tuple(dict.fromkeys(place.host for place in places if place.host is not None))
    world = max((each.timings.world_size or each.timings.num_ranks for each in facts.judged), default=None)
    models = tuple(
        dict.fromkeys(place.gpu.model for place in places if place.gpu is not None and place.gpu.model)
    )
    return Subject(hosts=hosts, world_size=world, gpu_models=models, num_gpus=facts.num_gpus)


def _missing(facts: Analysed) -> tuple[MissingEvidence, ...]:
    found = [
        MissingEvidence(what=note.text, why=note.kind.value, how=note.how)
        for note in dict.fromkeys(facts.reading.notes)
        if note.kind in (NoteKind.LIMITED, NoteKind.MISSING_RANKS, NoteKind.NOT_COLLECTIVE)
    ]
    reason = inconclusive_reason(facts)
    if reason is not None:
        found.insert(0, MissingEvidence(what="who is slow", why=reason[0], how=reason[1]))
    return tuple(found[:16])


def _culprits(facts: Analysed, accused: Sequence[tuple[Judged, Suspect]]) -> tuple[Culprit, ...]:
    found = []
    for judged, suspect in accused[:MAX_CULPRITS]:
        place = judged.timings.places[suspect.row]
        gpus = gpu_of(place)
        found.append(
            Culprit(
                rank=place.rank,
                host=place.host,
                pod=place.pod,
                local_rank=place.local_rank,
                gpu=gpus[0] if gpus else None,
                why=_why(judged, suspect),
            )
        )
    for judged in facts.judged:
        for host in judged.judgement.hosts[: MAX_CULPRITS - len(found)]:
            found.append(
                Culprit(
                    host=host.host,
                    ranks=tuple(judged.timings.places[row].rank for row in host.rows),
                    why="its ranks come later than their peers"
                    if judged.judgement.basis is Basis.WAIT_ONLY
                    else f"its ranks work {percent(host.effect)} longer than their peers",
                )
            )
    if not found:
        return ()
    return (*found, *_victims(facts, found))


def _why(judged: Judged, suspect: Suspect) -> str:
    if suspect.pattern is Pattern.INTERMITTENT:
        return f"loses {ms(suspect.excess_ms)} at a time, {when(judged, suspect)}"
    if judged.judgement.basis is Basis.WAIT_ONLY:
        return f"{late_words(judged, suspect)}, {when(judged, suspect)}"
    return f"works {effect_words(judged, suspect)} longer than its peers, {when(judged, suspect)}"


def _victims(facts: Analysed, culprits: Sequence[Culprit]) -> tuple[Culprit, ...]:
    blamed = {each.rank for each in culprits if each.rank is not None}
    blamed |= {rank for each in culprits for rank in each.ranks}
    waiting = sorted({rank for each in facts.judged for rank in each.timings.ranks if rank not in blamed})
    if not waiting:
        return ()
    return (
        Culprit(role="victim", ranks=tuple(waiting[:MAX_VICTIMS]), why=f"{len(waiting)} ranks wait for them"),
    )


def _since(facts: Analysed, accused: Sequence[tuple[Judged, Suspect]]) -> Since | None:
    """Of the first culprit that was not slow now and then, or only up to a step."""
    for judged, suspect in accused:
        if suspect.pattern not in (Pattern.INTERMITTENT, Pattern.UNTIL):
            return _began(judged, suspect.stretch.start)
    for judged in facts.judged:
        for host in judged.judgement.hosts:
            if host.start > 0 or host.end == judged.judgement.num_steps:
                return _began(judged, host.start)
    return None


def _began(judged: Judged, column: int) -> Since:
    return Since(
        utc=utc_of(judged, column),
        step=int(judged.judgement.steps[column]),
        exactness="within 10 steps for changes of 10 % and more"
        if column
        else "at or before the first step judged",
    )


def _impact(facts: Analysed) -> Impact | None:
    costs = [each for each in facts.judged if each.judgement.cost is not None]
    if not costs:
        return None
    judged = max(costs, key=lambda each: each.judgement.cost.together if each.judgement.cost else 0.0)
    cost = judged.judgement.cost
    if cost is None:
        return None
    gpus = facts.num_gpus or judged.timings.world_size or judged.timings.num_ranks
    # Of each day that the job's GPUs are held, this share is waiting for the accused; without them the job would take
    # less by it, so that it is slower now by more.
    return Impact(
        gpus_held=gpus,
        slowdown_pct=_digits(100 * cost.together / max(1 - cost.together, 0.01)),
        gpu_hours_per_day=_digits(24.0 * gpus * cost.together),
        basis="estimated",
    )


def _digits(value: float) -> float:
    """Two digits, or whole numbers: an estimate is not better than that."""
    return round(value) if value >= 10 else round(value, 1)


def _drain(facts: Analysed, accused: Sequence[tuple[Judged, Suspect]]) -> tuple[Drain, ...]:
    """Timing shows that a host is slow, not why; so nobody is drained by timing alone."""
    found: dict[str, Drain] = {}
    for judged in facts.judged:
        for host in judged.judgement.hosts:
            found[host.host] = Drain(
                host=host.host,
                answer="not enough evidence",
                why="all of its ranks are slow; look at what they share before it leaves the pool",
            )
    for judged, suspect in accused:
        place = judged.timings.places[suspect.row]
        if place.host is None or place.host in found:
            continue
        cause = explain_suspect(suspect).cause
        machine = cause in (Cause.COMPUTE, Cause.MIXED, Cause.UNKNOWN, Cause.H2D, Cause.HOST)
        found[place.host] = Drain(
            host=place.host,
            answer="not enough evidence" if machine else "no",
            why="its clocks and throttle reasons decide, see the next steps"
            if machine
            else "the time is lost in the job's own work, not in the machine",
        )
    return tuple(found.values())
