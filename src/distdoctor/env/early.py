"""The first lines of a verdict, from facts that need no torch: said while torch is still being imported."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, run_checks
from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.assemble import fold_findings
from distdoctor.report.model import Severity


def early_lines(checks: Sequence[Check], facts: EnvFacts, *, awaits_torch: bool) -> list[str]:
    """One line on what was found so far, one more when torch is still awaited."""
    findings, _, _ = run_checks(checks, facts)
    serious = [each for each in fold_findings(findings) if each.severity is not Severity.INFO]
    if serious:
        more = f" (and {len(serious) - 1} more)" if len(serious) > 1 else ""
        first = f"so far    {serious[0].severity.value}: {serious[0].title}{more}"
    else:
        first = "so far    no fault found without torch"
    if not awaits_torch or facts.python is None or facts.python.executable is None:
        return [first]
    version = facts.torch.version if facts.torch else None
    return [first, f"waiting   for a child that imports torch {version or ''}".rstrip()]
