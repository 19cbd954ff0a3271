"""What does NCCL itself warn of?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.nccl_warnings import MetWarning, classify, tells_of_failure
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, Outcome, Passed
from distdoctor.nccl_bench.checks.log_view import log_or_reason
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import LoggedWarning, NcclLog
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team

_MAX_SHOWN = 5

_NIC = re.compile(r"\bhca (\S+)")
_PORT_EVENT = re.compile(r"NET/IB ?: ([\w.\-]+:\d+)")


def check_warnings(facts: BenchFacts) -> Sequence[Outcome]:
    """One finding for each kind of failure that is known; of the others, failures and mere remarks apart."""
    log = log_or_reason(facts)
    if not isinstance(log, NcclLog):
        return [log]
    lines = log.warned or tuple(LoggedWarning(text=text) for text in log.warnings)
    if not lines:
        return [Passed(detail="NCCL warns of nothing in the lines that are there")]
    met, others = classify(lines)
    has_cause = any(
        not each.rule.is_consequence and each.rule.severity is Severity.CRITICAL and not each.only_retries
        for each in met
    )
    outcomes: list[Outcome] = [_found(log, each, has_cause=has_cause) for each in met]
    failures = [each for each in others if tells_of_failure(each)]
    remarks = [each for each in others if each not in failures]
    if failures:
        outcomes.append(_unknown_failure(log, failures, explained=has_cause))
    if remarks:
        outcomes.append(_others(log, remarks))
    return outcomes or [Passed(detail="NCCL warns of nothing but NVLS")]


def _found(log: NcclLog, met: MetWarning, *, has_cause: bool) -> Found:
    rule = met.rule
    lesser = (rule.is_consequence and has_cause) or met.only_retries
    return Found(
        key=rule.key,
        title=rule.title,
        severity=Severity.INFO if lesser else rule.severity,
        confidence=Confidence.LOW if met.only_retries else rule.confidence,
        evidence=_evidence(log, met.lines),
        explanation=f"{rule.meaning} NCCL tried again; at the start of a job that is usual."
        if met.only_retries
        else rule.meaning,
        actions=(Action(team=rule.team, text=rule.action, command=rule.command),),
        scope=_scope(met.lines),
        cause_class=rule.cause_class,
        fault=rule.fault,
    )


def _evidence(log: NcclLog, lines: Sequence[LoggedWarning]) -> tuple[Evidence, ...]:
    shown = [
        Evidence(
            text=f"{each.text[:300]}{f' ({each.count} times)' if each.count > 1 else ''}",
            value=each.count,
            unit="lines",
            source=each.where or log.origin,
        )
        for each in lines[:_MAX_SHOWN]
    ]
    if len(lines) > _MAX_SHOWN:
        shown.append(Evidence(text=f"{len(lines) - _MAX_SHOWN} more kinds of line", source=log.origin))
    return tuple(shown)


def _scope(lines: Sequence[LoggedWarning]) -> Scope:
    """Who wrote the lines, and which port they name."""
    hosts = tuple(dict.fromkeys(each.host for each in lines if each.host))
    links: dict[str, None] = {}
    for each in lines:
        port = _NIC.search(each.text) or _PORT_EVENT.search(each.text)
        if port:
            links.setdefault(f"{each.host} {port[1]}" if each.host else port[1])
    return Scope(hosts=hosts[:20], links=tuple(links)[:20])


def _unknown_failure(log: NcclLog, lines: Sequence[LoggedWarning], *, explained: bool) -> Found:
    """Calls that failed in words that no rule knows: a lead, and a surer one where NCCL gave up because of it."""
    gave_up = log.returned_errors > 0
    return Found(
        key="failure",
        title="NCCL tells of a failure that no rule here knows",
        severity=Severity.INFO if explained else Severity.WARNING,
        confidence=Confidence.MEDIUM if gave_up else Confidence.LOW,
        evidence=(
            *_evidence(log, lines),
            *(
                [
                    Evidence(
                        text=f"a call of NCCL came back with an error ({log.returned_errors} lines)",
                        value=log.returned_errors,
                        unit="lines",
                        source=log.place_of("returned error"),
                    )
                ]
                if gave_up
                else []
            ),
        ),
        explanation=(
            "The words are NCCL's own, or those of its network plugin. "
            + (
                "The call that met it was given up, which ends most jobs."
                if gave_up
                else "Whether the job went on is not in these lines."
            )
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Look the line up as it stands, and read what precedes it on this rank",
                command="grep -n -B5 -m1 'NCCL WARN' <log of this rank>",
            ),
        ),
        scope=_scope(lines),
        fault=Fault.UNKNOWN,
    )


def _others(log: NcclLog, lines: Sequence[LoggedWarning]) -> Found:
    plural = "s" if len(lines) > 1 else ""
    return Found(
        key="other",
        title=f"NCCL warns of {len(lines)} other thing{plural}",
        severity=Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=_evidence(log, lines),
        explanation="No rule here knows these lines; they may matter.",
        actions=(),
        scope=_scope(lines),
        fault=Fault.UNKNOWN,
    )


CHECK = BenchCheck(id="nccl-log-warn", title="warnings of NCCL", run=check_warnings)
