"""Are the CUDA libraries beside torch those that this torch was built and tested with?"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.torch_view import pip_command
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.torch import PythonFacts, TorchFacts
from distdoctor.env.readers.requirements import satisfies
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# More rows than this make the finding unreadable; the facts hold them all.
_MAX_ROWS = 8


def check_torch_pins(facts: EnvFacts) -> Sequence[Outcome]:
    """Another version, or none, of a pinned nvidia-* distribution; torch's metadata more than once in one folder."""
    files, python = facts.torch, facts.python
    if files is None or python is None:
        return [missing(facts, "torch.required_nvidia")]
    if files.found is False:
        return [NotApplicable(detail="no torch in this Python")]
    twice = _metadata_twice(facts, files)
    outcomes: list[Outcome] = [twice] if twice is not None else []
    if not files.required_nvidia:
        if "required_nvidia" in files.unread or "required_nvidia" not in files.sources:
            outcomes.append(missing(facts, "torch.required_nvidia"))
        else:
            outcomes.append(
                NotApplicable(detail="this torch pins no NVIDIA libraries (CPU, ROCm, conda or vendor build)")
            )
        return outcomes
    differing, absent = _compare(files, python)
    if differing or absent:
        outcomes.append(_differs(facts, files, python, differing, absent))
    else:
        outcomes.append(
            Passed(detail=f"all {len(files.required_nvidia)} pinned NVIDIA libraries are the ones installed")
        )
    return outcomes


def _compare(
    files: TorchFacts, python: PythonFacts
) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """((name, installed, pin) that differ, (name, pin) that are absent)."""
    differing, absent = [], []
    for name, pin in files.required_nvidia.items():
        have = python.distributions.get(name)
        if have is None:
            absent.append((name, pin))
        elif not satisfies(have, pin):
            differing.append((name, have, pin))
    return differing, absent


def _differs(
    facts: EnvFacts,
    files: TorchFacts,
    python: PythonFacts,
    differing: list[tuple[str, str, str]],
    absent: list[tuple[str, str]],
) -> Found:
    source, pins = python.sources.get("distributions"), files.sources.get("required_nvidia")
    rows = [
        Evidence(
            text=f"{name} {have} is installed", value=have, expected=pin, expected_source=pins, source=source
        )
        for name, have, pin in differing
    ]
    rows += [
        Evidence(text=f"{name} is not installed", expected=pin, expected_source=pins, source=source)
        for name, pin in absent
    ]
    wanted = [f"{name}=={pin}" for name, _, pin in differing] + [f"{name}=={pin}" for name, pin in absent]
    title = (
        f"{len(differing)} CUDA libraries differ from those this torch was built with"
        if len(differing) > 1
        else f"{differing[0][0]} {differing[0][1]} differs from torch's pin {differing[0][2]}"
        if differing
        else f"{len(absent)} CUDA libraries that this torch pins are not installed"
    )
    return Found(
        key="libraries",
        title=title[:80],
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM if differing else Confidence.LOW,
        evidence=tuple(rows[:_MAX_ROWS]),
        explanation=(
            "torch's metadata pins exact versions, because it is compiled and tested with them. Another version of one library may "
            "work; it may also miss a function at import, be slower, or give the error that nobody else has. "
            + ("A library that is absent here may come from the system or the image. " if absent else "")
            + "As a rule another package, installed later, moved them."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Put the pinned versions back, or say which package wants the others",
                command=pip_command(
                    facts, f"install --no-deps {shlex.join(wanted[:_MAX_ROWS])}   # and: python -m pip check"
                ),
            ),
        ),
        cause_class="env:library_versions",
        fault=Fault.SOFTWARE,
    )


def _metadata_twice(facts: EnvFacts, files: TorchFacts) -> Found | None:
    """Two torch metadata folders in one place: pip could not remove the older version."""
    folders = Counter(path.rpartition("/")[0] for path in files.dist_infos)
    twice = [folder for folder, count in folders.items() if count > 1]
    several = len(set(files.dist_versions)) > 1
    if not twice and not (several and not files.dist_infos) and not files.leftovers:
        return None
    evidence = [
        Evidence(text=path, source=files.sources.get("dist_infos"))
        for path in files.dist_infos
        if path.rpartition("/")[0] in twice
    ]
    evidence += [Evidence(text=f"{path}: left behind by an interrupted pip") for path in files.leftovers]
    if not evidence:
        evidence = [
            Evidence(
                text=f"torch is listed as {' and '.join(files.dist_versions)}",
                source=files.sources.get("dist_versions"),
            )
        ]
    return Found(
        key="twice",
        title="Traces of more than one torch version lie in one environment",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH if twice else Confidence.MEDIUM,
        evidence=tuple(evidence[:_MAX_ROWS]),
        explanation="An upgrade ended half-way, or two installers (pip and conda) wrote into one folder. Files of both versions may be "
        "mixed, and what pip prints need not be what is imported.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Make the environment anew; or remove torch until pip says that it is not installed, then install it once",
                command=pip_command(facts, "uninstall -y torch"),
            ),
        ),
        cause_class="env:library_versions",
        fault=Fault.SOFTWARE,
    )


CHECK = Check(
    id="torch-dependency-pins",
    title="CUDA libraries against torch's pins",
    run=check_torch_pins,
    preflight=True,
)
