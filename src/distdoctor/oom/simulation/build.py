"""From a simulation to the report."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.oom.checks.estimate.base import gib
from distdoctor.oom.checks.simulate.all import SIMULATION_CHECKS
from distdoctor.oom.checks.simulate.base import place_words
from distdoctor.oom.estimate_facts import job_values
from distdoctor.oom.fit import Fits, left_words, need_words
from distdoctor.oom.settings_record import settings_table
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.oom.simulation.pictures import simulation_series
from distdoctor.oom.simulation.tables import simulation_tables
from distdoctor.report.assemble import build_report, clip_title
from distdoctor.report.checking import run_checks
from distdoctor.report.model import (
    Confidence,
    Fact,
    InputFile,
    Report,
    Scalar,
    Severity,
    Status,
    Subject,
    Table,
    Verdict,
)
from distdoctor.report.request import ReportRequest
from distdoctor.report.site import apply_site
from distdoctor.units import GIB

_SOURCE = "oom simulate"


def simulation_report(
    request: ReportRequest,
    facts: SimulationFacts,
    *,
    inputs: Sequence[InputFile] = (),
    more_tables: Sequence[Table] = (),
) -> Report:
    """The report over one simulation; `more_tables` stand behind its own."""
    wanted = [check for check in SIMULATION_CHECKS if not request.only or check.id in request.only]
    findings, skipped, results = run_checks(wanted, facts)
    record = (settings_table(facts.job.said, facts.cluster),) if facts.job is not None else ()
    report = build_report(
        command=request.command,
        argv=request.argv,
        about=facts.title,
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=results,
        skipped=skipped,
        subject=Subject(
            world_size=facts.job.mesh.num_ranks if facts.job is not None else _ranks_of(facts),
            gpu_models=(facts.cluster.type.name,) if facts.cluster else (),
        ),
        facts=simulation_facts(facts),
        tables=(*simulation_tables(facts), *more_tables, *record),
        inputs=inputs,
        started=request.started,
        answered=bool(facts.simulation.roles),
    )
    return replace(report, verdict=_verdict(report, facts), series=simulation_series(facts))


def _ranks_of(facts: SimulationFacts) -> int | None:
    """Of a user's own module; None where it could not be simulated."""
    return sum(role.num_ranks for role in facts.simulation.roles) or None


def _verdict(report: Report, facts: SimulationFacts) -> Verdict:
    """What does not fit speaks first; else what it needs, simulated, with the formula's figure beside it."""
    worst = facts.simulation.worst
    about = f"{facts.model}, {facts.title}"
    if worst is None:
        title = f"cannot tell by simulation: {_why(facts)}"
        instead = ""
        if facts.estimate is not None:
            instead = f" By formula the worst rank needs {need_words(*facts.estimate.need_bytes)} GiB."
        return replace(
            report.verdict, status=Status.UNKNOWN, title=clip_title(title), summary=f"{about}.{instead}"
        )
    summary = f"{about}; simulated, {worst.role}: {place_words(worst.peak)}.{_by_formula(facts)}"
    serious = [
        each for each in report.findings if each.ignored is None and each.severity is not Severity.INFO
    ]
    if serious:
        return replace(report.verdict, summary=f"{serious[0].explanation} {summary}")
    reserved = facts.reserved_bytes(worst)
    fit = facts.fit
    title = f"allocates {gib(worst.peak.num_bytes)} and reserves {gib(reserved)} on the worst rank"
    if fit is not None and fit.answer is Fits.YES:
        title = (
            f"fits: needs {need_words(fit.need_low, fit.need_high)} of {fit.capacity / GIB:.1f} GiB, "
            f"{left_words(fit)} are left"
        )
    return replace(
        report.verdict,
        title=clip_title(title),
        summary=summary,
        confidence=Confidence.HIGH if _is_checked(facts) else Confidence.MEDIUM,
    )


def _why(facts: SimulationFacts) -> str:
    """The op that stood in the way, or the reason in words."""
    if not facts.simulation.failures:
        return "nothing was asked"
    first = facts.simulation.failures[0]
    return f"{first.op.removesuffix('.default')} cannot run under fake tensors" if first.op else first.reason


def _is_checked(facts: SimulationFacts) -> bool:
    check = facts.simulation.self_check
    return check is not None and check.agrees is True


def _by_formula(facts: SimulationFacts) -> str:
    if facts.estimate is None:
        return ""
    peak = facts.estimate.worst.peak.num_bytes
    return f" By formula {gib(peak)} are allocated there."


def simulation_facts(facts: SimulationFacts) -> tuple[Fact, ...]:
    """The job and the figures, for `compare`."""
    worst = facts.simulation.worst
    if worst is None:
        return ()
    values: dict[str, Scalar] = {
        "oom.job.model": facts.model,
        "oom.simulated.peak_gib": round(worst.peak.num_bytes / GIB, 2),
        "oom.simulated.peak_at": place_words(worst.peak),
        "oom.simulated.worst_rank": worst.role,
    }
    if facts.job is not None:
        values |= {f"oom.{key}": value for key, value in job_values(facts.job).items()}
    for each in worst.reserved:
        kind = "expandable" if each.expandable_segments else "fixed"
        values[f"oom.simulated.reserved_{kind}_segments_gib"] = round(each.peak_bytes / GIB, 2)
    values |= {
        f"oom.simulated.{category.name.lower()}_gib": round(num_bytes / GIB, 2)
        for category, num_bytes in worst.peak.by_category.items()
    }
    return tuple(Fact(key=key, value=value, source=_SOURCE) for key, value in values.items())
