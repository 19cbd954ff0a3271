"""What another tool's log says of slow ranks, told as its claim and not as ours."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.report.assemble import clip_title
from distdoctor.report.model import Confidence, Evidence, Fault, Scope, Severity
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.base import Found, NotApplicable, Outcome, StragglerCheck
from distdoctor.straggler.facts.series import ToolClaim
from distdoctor.straggler.words import ranks_words

_MAX_TOOLS = 4
_MAX_LINES = 4


def check_claims(facts: Analysed) -> Sequence[Outcome]:
    """One note for each tool that names ranks."""
    by_tool: dict[str, list[ToolClaim]] = {}
    for claim in facts.reading.claims:
        by_tool.setdefault(claim.tool, []).append(claim)
    if not by_tool:
        return [NotApplicable(detail="no other tool's claim in the evidence")]
    return [_found(tool, claims) for tool, claims in list(by_tool.items())[:_MAX_TOOLS]]


def _found(tool: str, claims: Sequence[ToolClaim]) -> Found:
    ranks = tuple(sorted({rank for claim in claims for rank in claim.ranks}))
    hosts = tuple(dict.fromkeys(host for claim in claims for host in claim.hosts))
    who = ranks_words(ranks, max_characters=24) if ranks else "nobody"
    times = f" {len(claims)} times" if len(claims) > 1 else ""
    rule = next((claim.rule for claim in claims if claim.rule), "")
    return Found(
        key=tool,
        title=clip_title(f"{tool} itself names {who}{times}"),
        severity=Severity.INFO,
        confidence=Confidence.LOW,
        evidence=tuple(
            Evidence(
                text=claim.text, source=claim.path if claim.line is None else f"{claim.path}:{claim.line}"
            )
            for claim in claims[:_MAX_LINES]
        ),
        explanation=f"This is what {tool} says; the times behind it are not in the evidence. {rule}".strip(),
        actions=(),
        scope=Scope(ranks=ranks, hosts=hosts),
        fault=Fault.UNKNOWN,
    )


CHECK = StragglerCheck(id="straggler-claim", title="what other tools say of ranks", run=check_claims)
