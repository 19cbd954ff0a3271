"""Variables of another version: gone from the NCCL at hand, not in it yet, or renamed by torch."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.catalog.variables import (
    NCCL_CONF_SOURCE,
    NcclVariable,
    TorchVariable,
    last_torch_version,
    nccl_release_after,
    nccl_variables,
    renamed_torch_variables,
    torch_variables,
)
from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.nccl_view import NcclView, setting_evidence, unset_action, view_of
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.variables import Setting
from distdoctor.env.versions import at_least, below, parse_version
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team

_TORCH_SOURCE = "torch 2.13, c10d and allocator headers"


def check_stale(facts: EnvFacts) -> Sequence[Outcome]:
    """A name that the version at hand does not read is a warning; an old one that it still reads, an info."""
    if facts.variables is None:
        return [missing(facts, "variables.environment")]
    view = view_of(facts)
    outcomes: list[Outcome] = []
    blind = False
    for name, setting in view.settings.items():
        variable = nccl_variables().get(name)
        if variable is not None and not view.is_rocm:
            if view.nccl is None:
                blind = blind or bool(variable.last or variable.first)
            else:
                outcomes += _nccl_version(view, setting, variable)
        if name in renamed_torch_variables():
            outcomes.append(_renamed(view, setting, renamed_torch_variables()[name]))
        elif name in torch_variables():
            outcomes += _too_new(view, setting, torch_variables()[name])
    if blind:
        seen = missing(facts, "nccl.loaded_version", what="variables of another NCCL version")
        outcomes.append(NotSeen(unread=seen.unread, what=seen.what))
    return outcomes or [Passed(detail="every variable is read by the versions at hand")]


def _nccl_version(view: NcclView, setting: Setting, variable: NcclVariable) -> list[Outcome]:
    gone_in = nccl_release_after(variable.last) if variable.last else None
    if variable.last and gone_in and at_least(view.nccl, gone_in):
        instead = f"; use {variable.replaced_by}" if variable.replaced_by else ""
        return [
            _without_effect(
                setting,
                title=f"{setting.name} is gone: NCCL {view.nccl_text} does not read it",
                why=f"The last release that reads it is {variable.last}{instead}. It has no effect here.",
                source=NCCL_CONF_SOURCE,
            )
        ]
    if variable.first and below(view.nccl, variable.first):
        return [
            _without_effect(
                setting,
                title=f"{setting.name} is too new for NCCL {view.nccl_text}",
                why=f"The first release that reads it is {variable.first}. It has no effect here.",
                source=NCCL_CONF_SOURCE,
            )
        ]
    return []


def _too_new(view: NcclView, setting: Setting, variable: TorchVariable) -> list[Outcome]:
    if not variable.first or not below(view.torch, variable.first):
        return []
    older = variable.old_names[0] if variable.old_names else None
    use = f" This torch reads {older}." if older else ""
    return [
        _without_effect(
            setting,
            title=f"{setting.name} is too new for torch {view.torch_text}"[:80],
            why=f"torch reads this name from {variable.first} on; here it has no effect.{use}",
            source=_TORCH_SOURCE,
            rename_to=older,
            confidence=Confidence.MEDIUM,
        )
    ]


def _renamed(view: NcclView, setting: Setting, variable: TorchVariable) -> Outcome:
    """The old name: fine before the renaming, an alias after it, unknown beyond what was read."""
    if variable.first and below(view.torch, variable.first):
        return Passed(detail=f"{setting.name} is the name that torch {view.torch_text} reads")
    other = view.settings.get(variable.name)
    if view.torch_text is None:
        works = (
            f"torch up to {last_torch_version()} still takes the old name; which torch this is was not seen."
        )
    elif at_least(last_torch_version(), ".".join(map(str, (parse_version(view.torch_text) or ())[:2]))):
        works = f"torch {view.torch_text} still takes the old name, with a warning."
    else:
        works = f"torch up to {last_torch_version()} took the old name; {view.torch_text} was not checked."
    clash = (
        f" {variable.name}={other.value} is set as well and wins."
        if other is not None and other.value != setting.value
        else ""
    )
    return Found(
        key=setting.name,
        title=f"{setting.name} is an old name of {variable.name}"[:80],
        # Where the two differ, the check of contradictions warns.
        severity=Severity.INFO,
        confidence=Confidence.HIGH if view.torch_text else Confidence.MEDIUM,
        evidence=(
            setting_evidence(
                setting,
                expected=f"{variable.name} (torch {variable.first} and newer)"
                if variable.first
                else variable.name,
                source=_TORCH_SOURCE,
            ),
        ),
        explanation=f"{works}{clash} torch reads it, not NCCL."
        if setting.name.startswith("NCCL_")
        else works + clash,
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Remove the old name" if clash else "Use the new name",
                command=f"unset {setting.name}"
                + ("" if clash else f"; export {variable.name}={_plain(setting.value)}"),
            ),
        ),
        cause_class="config:variable_stale",
        fault=Fault.CONFIG,
    )


def _without_effect(
    setting: Setting,
    *,
    title: str,
    why: str,
    source: str,
    rename_to: str | None = None,
    confidence: Confidence = Confidence.HIGH,
) -> Found:
    action = unset_action(setting)
    if rename_to:
        action = Action(
            team=Team.JOB_OWNER,
            text="Use the name that this version reads",
            command=f"export {rename_to}={_plain(setting.value)}",
        )
    return Found(
        key=setting.name,
        title=title[:80],
        severity=Severity.WARNING,
        confidence=confidence,
        evidence=(setting_evidence(setting, expected="a name that this version reads", source=source),),
        explanation=why,
        actions=(action,),
        cause_class="config:variable_stale",
        fault=Fault.CONFIG,
    )


def _plain(value: str) -> str:
    """The value when a shell takes it as it is; else a place to fill in."""
    return value if value and all(each.isalnum() or each in "_.,:/=@%+-" for each in value) else "…"


CHECK = Check(
    id="nccl-variable-stale",
    title="variables of another version",
    run=check_stale,
    preflight=True,
)
