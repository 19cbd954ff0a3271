"""Variables with a name that nobody reads: slips of the pen, and names that we do not know."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.catalog.variables import read_by_nobody
from distdoctor.env.checks.base import Check, Found, Outcome, Passed, missing
from distdoctor.env.checks.nccl_view import NcclView, setting_evidence, view_of
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.variables import Setting
from distdoctor.env.near_names import NearName, in_closed_family, is_known, near_name
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# A report names each unknown variable once; more than these are a dump, not a set-up.
_MAX_SHOWN = 20


def check_typos(facts: EnvFacts) -> Sequence[Outcome]:
    """An unknown name close to a known one is a warning; a lead only where our catalog may be too old."""
    if facts.variables is None:
        return [missing(facts, "variables.environment")]
    view = view_of(facts)
    found: list[Outcome] = []
    for name, setting in view.settings.items():
        near = near_name(name)
        if near is None or (not in_closed_family(name) and near.name in view.settings):
            continue
        found.append(_typo(view, setting, near))
    if found:
        return found
    return [Passed(detail=f"{len(view.settings)} variables, no name close to a known one")]


def check_unknown(facts: EnvFacts) -> Sequence[Outcome]:
    """Names of NCCL's and torch's own families that nobody is known to read, together as one info."""
    if facts.variables is None:
        return [missing(facts, "variables.environment")]
    view = view_of(facts)
    unknown = [
        setting
        for name, setting in view.settings.items()
        if in_closed_family(name) and not is_known(name) and near_name(name) is None
    ]
    if not unknown:
        return [
            Passed(
                detail="no NCCL_, TORCH_NCCL_, TORCH_FR_ or GLOO_ name without a known reader, but for slips"
            )
        ]
    return [_unknown(view, unknown)]


def _typo(view: NcclView, setting: Setting, near: NearName) -> Found:
    name = setting.name
    is_nccl = name.upper().startswith("NCCL_")
    covered = not (is_nccl and view.catalog_is_older)
    also_set = near.name in view.settings
    if also_set:
        effect = f"{near.name} is set as well, so the slip changes nothing."
    else:
        effect = "Unknown names are passed over without a word, so the default is in force."
    notes = [effect, f"Nobody that we know reads `{name.strip()}`; `{near.name}` exists: {near.why}."]
    if is_nccl and view.catalog_is_older:
        notes.append(f"It may still be a real name: {view.why_catalog_is_older}.")
    return Found(
        key=name.strip(),
        title=_title(name.strip(), near.name),
        severity=Severity.INFO if also_set else Severity.WARNING,
        confidence=_confidence(near, covered=covered),
        evidence=(
            setting_evidence(setting, expected=near.name, source="catalog of NCCL's and torch's variables"),
        ),
        explanation=" ".join(notes),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text=f"Correct the name where it is set ({setting.origin})",
                command=f"unset {name}; export {near.name}=…" if name.isidentifier() else None,
            ),
        ),
        cause_class="config:variable_typo",
        fault=Fault.CONFIG,
    )


def _title(name: str, meant: str) -> str:
    for text in (f"{name} has no effect; {meant} was probably meant", f"{name} has no effect: misspelt?"):
        if len(text) <= 80:
            return text
    return f"{name[:60]}… has no effect"


def _confidence(near: NearName, *, covered: bool) -> Confidence:
    """Two letters off, or a name that our catalog may lack, is one step less sure each."""
    steps = (not near.is_close) + (not covered)
    return (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)[steps]


def _unknown(view: NcclView, unknown: Sequence[Setting]) -> Found:
    names = ", ".join(each.name for each in unknown[:3]) + (" …" if len(unknown) > 3 else "")
    plural = "variables are" if len(unknown) > 1 else "variable is"
    notes = ["Nobody that we know reads " + ("these names." if len(unknown) > 1 else "this name.")]
    if any(each.name.upper().startswith("NCCL_") for each in unknown) and view.catalog_is_older:
        notes.append(f"That may be our gap: {view.why_catalog_is_older}.")
    notes += [note for each in unknown if (note := read_by_nobody(each.name))]
    return Found(
        key=",".join(sorted(each.name for each in unknown))[:200],
        title=f"{len(unknown)} {plural} unknown to us: {names}"[:80],
        severity=Severity.INFO,
        confidence=Confidence.LOW if view.catalog_is_older else Confidence.MEDIUM,
        evidence=(
            *(setting_evidence(each) for each in unknown[:_MAX_SHOWN]),
            *((Evidence(text=f"and {len(unknown) - _MAX_SHOWN} more"),) if len(unknown) > _MAX_SHOWN else ()),
        ),
        explanation=" ".join(notes),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="See whether NCCL takes note of it: it prints each variable that it reads",
                command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ENV … 2>&1 | grep 'set by environment'",
            ),
        ),
        cause_class="config:variable_unknown",
        fault=Fault.CONFIG,
    )


TYPO = Check(id="nccl-variable-typo", title="spelling of variable names", run=check_typos, preflight=True)
UNKNOWN = Check(
    id="nccl-variable-unknown", title="names that nobody reads", run=check_unknown, preflight=True
)
