"""What a cause of a failed import consists of, and what every such finding shows."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCause:
    """What made `import torch` fail, in the parts of a finding."""

    title: str
    explanation: str
    actions: tuple[Action, ...]
    evidence: tuple[Evidence, ...] = ()
    cause_class: str = "env:torch_import"
    fault: Fault = Fault.SOFTWARE
    confidence: Confidence = Confidence.HIGH


def library_path_evidence(facts: EnvFacts) -> tuple[Evidence, ...]:
    """The variables that send the loader elsewhere."""
    found: list[Evidence] = []
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        value = facts.variables.environment.get(name) if facts.variables is not None else None
        if value:
            found.append(
                Evidence(
                    text=f"{name}={value[:300]}",
                    source=f"environment of {facts.variables.whose or 'the process'}"
                    if facts.variables
                    else None,
                )
            )
    return tuple(found)


def without_paths(facts: EnvFacts) -> str:
    """The command that tries the import without them."""
    executable = facts.python.executable if facts.python is not None else None
    return f"env -u LD_LIBRARY_PATH -u LD_PRELOAD {shlex.quote(executable or 'python')} -c 'import torch; print(torch.__version__)'"
