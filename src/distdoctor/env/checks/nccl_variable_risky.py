"""Settings that slow a job down, break it, or turn a fault into a hang."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdoctor.env.checks.base import Check, Found, Outcome, Passed, missing
from distdoctor.env.checks.nccl_risk import Risk
from distdoctor.env.checks.nccl_risk_local import LOCAL_RULES
from distdoctor.env.checks.nccl_risk_network import NETWORK_RULES
from distdoctor.env.checks.nccl_risk_torch import TORCH_RULES
from distdoctor.env.checks.nccl_value import misread
from distdoctor.env.checks.nccl_view import setting_evidence, unset_action, view_of
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.variables import Setting
from distdoctor.report.model import Action, Fault, Severity, Team

_ORDER = list(Severity)

RULES = (*NETWORK_RULES, *LOCAL_RULES, *TORCH_RULES)


def check_risky(facts: EnvFacts) -> Sequence[Outcome]:
    """Each setting by its rule; of two findings about one value the worse is told, and both explanations."""
    if facts.variables is None:
        return [missing(facts, "variables.environment")]
    view = view_of(facts)
    wrong = {name: misread(view, setting) for name, setting in view.settings.items()}
    found: list[Outcome] = []
    for rule in RULES:
        for name in rule.names:
            setting = view.settings.get(name)
            risk = rule.judge(view, setting.value) if setting is not None else None
            if setting is None or risk is None:
                continue
            mistake = wrong[name]
            if mistake is None:
                found.append(_finding(setting, risk, "risk"))
            elif _ORDER.index(risk.severity) >= _ORDER.index(mistake.severity):
                # What NCCL makes of the value is the worse for a slip in writing it: one cause, one finding.
                wrong[name] = None
                found.append(_finding(setting, replace(risk, why=f"{mistake.why} {risk.why}"), "risk"))
    found[:0] = [
        _finding(view.settings[name], mistake, "value")
        for name, mistake in wrong.items()
        if mistake is not None
    ]
    found += [
        _finding(view.settings[name], _unreadable(name, error), "path")
        for name, error in facts.variables.path_errors.items()
        if error and name in view.settings
    ]
    return found or [Passed(detail=f"no risky value among {len(view.settings)} variables")]


def _unreadable(name: str, error: str) -> Risk:
    is_topology = name == "NCCL_TOPO_FILE"
    return Risk(
        severity=Severity.CRITICAL if is_topology else Severity.WARNING,
        title=f"The file that {name} names cannot be read"[:80],
        why=f"{error}. "
        + (
            "NCCL then does not see which NIC is near which GPU, as virtual machines need; often the path is not "
            "mounted in the container."
            if is_topology
            else "The settings in it are not in force."
        ),
        source="opened from here",
        advice="Mount the file into the container, or correct the path",
    )


def _finding(setting: Setting, risk: Risk, kind: str) -> Found:
    action = (
        Action(team=Team.JOB_OWNER, text=risk.advice, command=risk.command)
        if risk.advice
        else unset_action(setting)
    )
    return Found(
        key=f"{setting.name}:{kind}",
        title=risk.title[:80],
        severity=risk.severity,
        confidence=risk.confidence,
        evidence=(setting_evidence(setting, source=risk.source),),
        explanation=risk.why,
        actions=(action,),
        cause_class="config:variable_risky",
        fault=Fault.CONFIG,
    )


CHECK = Check(
    id="nccl-variable-risky",
    title="settings that slow or break a job",
    run=check_risky,
    preflight=True,
)
