"""Checks of launch configurations: outcomes over `ConfigFacts`, made of the defects that readers saw.

A check looks at some kinds of defect. It finds what there is; else it says what was compared, and where the files do
not say enough for that, it says so instead of passing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.oom.facts.launch import ConfigDefect, ConfigFacts, ConfigKey, Defect, LaunchConfig
from distdoctor.report import checking
from distdoctor.report.checking import Found, NotSeen, Outcome, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

ConfigCheck = checking.Check[ConfigFacts]

# Findings of one check; a file that is wrong throughout is told by its first ones.
MAX_FOUND = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """Kinds of defect that one check looks at, and how bad one is that does not stop the job."""

    kinds: tuple[Defect, ...]
    cause_class: str
    severity: Severity = Severity.WARNING
    unsure: Severity = Severity.WARNING
    """Of a defect that may be on purpose."""
    team: Team = Team.JOB_OWNER


def findings(facts: ConfigFacts, looks: Looks) -> list[Outcome]:
    """One finding for each defect of these kinds, those that stop the job first."""
    defects = [each for each in facts.defects if each.kind in looks.kinds]
    defects.sort(key=lambda each: (not each.stops_job, not each.is_certain))
    return [_found(facts, each, looks) for each in _distinct(defects)[:MAX_FOUND]]


def no_configuration(facts: ConfigFacts) -> list[Outcome]:
    """The outcome when no file could be read; empty otherwise."""
    return (
        []
        if facts.configs
        else [not_said("no configuration was read", how="give the launch configuration: `--config FILE`")]
    )


def not_said(reason: str, *, how: str | None = None, what: str = "") -> NotSeen:
    """The files do not say it."""
    return NotSeen(unread=Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason=reason, how=how), what=what)


def _distinct(defects: Sequence[ConfigDefect]) -> list[ConfigDefect]:
    """Each title once: pods of two roles, or two files, often have the same defect."""
    return list({each.title: each for each in reversed(defects)}.values())[::-1]


def _found(facts: ConfigFacts, defect: ConfigDefect, looks: Looks) -> Found:
    if defect.stops_job:
        severity = Severity.CRITICAL if defect.is_certain else Severity.WARNING
    else:
        severity = looks.severity if defect.is_certain else looks.unsure
    return Found(
        key=_key(defect),
        title=defect.title[:80],
        severity=severity,
        confidence=Confidence.HIGH if defect.is_certain else Confidence.MEDIUM,
        evidence=_evidence(facts, defect),
        explanation=defect.why,
        actions=(Action(team=looks.team, text=defect.fix),),
        cause_class=looks.cause_class,
        fault=Fault.CONFIG,
    )


def _key(defect: ConfigDefect) -> str:
    name = defect.keys[0].name.rsplit(": ", 1)[-1] if defect.keys else defect.title
    return f"{defect.kind.name.lower()}:{name}"[:120]


def _evidence(facts: ConfigFacts, defect: ConfigDefect) -> tuple[Evidence, ...]:
    config = next((each for each in facts.configs if defect in each.defects), None)
    if not defect.keys:
        names = ", ".join(_file(each) for each in ((config,) if config else facts.configs))
        return (Evidence(text=f"in {names}", source=names),)
    return tuple(_of_key(key, config) for key in defect.keys[:8])


def _of_key(key: ConfigKey, config: LaunchConfig | None) -> Evidence:
    """`main_process_ip: 1234`, with file and line as its source."""
    file, _, name = key.name.rpartition(": ")
    where = _file(config) if config is not None else file
    at = f"{where}:{key.line}" if where and key.line is not None else where or None
    return Evidence(
        text=f"{name or key.name}: {key.value}" if key.value else name or key.name, value=key.value, source=at
    )


def _file(config: LaunchConfig) -> str:
    return config.path.rsplit("/", 1)[-1]
