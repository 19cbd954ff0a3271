"""A report as GitHub Markdown for a ticket: complete in its first 4 kB, details folded, under 60,000 characters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from distdoctor.report.coverage import fold_skips, unsaid_coverage
from distdoctor.report.escape import markdown_block, markdown_code, markdown_summary, markdown_text
from distdoctor.report.model import CheckState, Finding, Report, Table
from distdoctor.report.names import fact_value, scalar_text, scope_name
from distdoctor.report.reading import (
    TeamBlock,
    body_tables,
    count_by_severity,
    evidence_text,
    facts_by_group,
    facts_differ,
    first_tables,
    how_sure,
    ignored,
    ranked,
    series_note,
    series_rows,
    story,
    subject_phrases,
    team_blocks,
    verdict_sureness,
)
from distdoctor.report.render.tables import fact_place, header_of

# GitHub takes 65,536 characters in a comment; a ticket adds its own.
MAX_CHARS = 60_000
# What a reader, a notification mail or a language model sees of a long comment.
HEAD_BYTES = 4_096

# Bytes of the head for each part, in the order of reading; together below HEAD_BYTES.
_LEAD_BYTES = 1_400
_TITLE_BYTES = 300
_SUMMARY_BYTES = 600
_FINDINGS_BYTES = 1_250
_NEXT_BYTES = 1_250
# A table below the verdict takes its room from the two above.
_FIRST_BYTES = 900
_GIVEN_UP_BYTES = _FIRST_BYTES // 2
_MAX_STEPS_EACH = 3

# Characters of the details for each part; together below MAX_CHARS less the head.
_BUDGETS = {
    "findings": 20_000, "teams": 11_000, "unseen": 5_000, "timeline": 3_000, "tables": 7_000,
    "series": 4_000, "checks": 2_000, "facts": 3_000, "inputs": 1_000,
}  # fmt: skip

_MAX_TITLE_CHARS = 200
_MAX_EVIDENCE_IN_TEAM = 3


def render_markdown(report: Report) -> str:
    """`report`, sealed by the caller, as GitHub Markdown; nothing in it becomes a link, a mention or HTML."""
    parts = [_head(report)]
    for name, section in _SECTIONS:
        text = section(report, _BUDGETS[name])
        if text:
            parts.append(text)
    parts.append(_footer(report))
    return "\n".join(parts)


# --- the first 4 kB -----------------------------------------------------------------------------------------


def _head(report: Report) -> str:
    lead = _lead(report)
    findings = _short_findings(report)
    return "\n".join(part for part in (lead, _first_tables(report), findings, _short_next(report)) if part)


def _lead(report: Report) -> str:
    verdict = report.verdict
    summary = verdict.summary.replace("\n", " ")
    told = _fitting(summary, _SUMMARY_BYTES)
    lines = [f"# {verdict.status.value}: {_fitting(verdict.title, _TITLE_BYTES)}", "", told, ""]
    seen = unsaid_coverage(report, verdict.title + told)
    told = "; ".join(each for each in (seen, verdict_sureness(report)) if each)
    rows = [*story(report), ("subject", ", ".join(subject_phrases(report.subject))), ("seen", told)]
    rows += [("class", verdict.cause_class or "")]
    rows = [(label, text) for label, text in rows if text]
    if rows:
        table = [
            "| | |",
            "|---|---|",
            *(f"| {label} | {markdown_text(_clip(text, 240))} |" for label, text in rows),
        ]
        lines += _within(table, _LEAD_BYTES - _size(lines), "| | … and {} more lines, in the JSON report |")
    return "\n".join([*lines, ""])


def _first_tables(report: Report) -> str:
    lines: list[str] = []
    room = _FIRST_BYTES
    # The parts below that are empty leave theirs.
    if not ranked(report.findings) and not ignored(report.findings):
        room += _FINDINGS_BYTES - _GIVEN_UP_BYTES
    if not team_blocks(report):
        room += _NEXT_BYTES - _GIVEN_UP_BYTES
    for table in first_tables(report):
        rows = _table_rows(table)
        head = [f"**{markdown_text(_clip(table.title, 200))}**", "", *_table_head(table)]
        note = ["", markdown_text(_clip(table.note, 300))] if table.note else []
        shown = _within(rows, room - _size([*head, *note]), "| … and {} more rows, in the JSON report |")
        lines += [*head, *shown, *note, ""]
    return "\n".join(lines)


def _given_up(report: Report) -> int:
    return _GIVEN_UP_BYTES if first_tables(report) else 0


def _short_findings(report: Report) -> str:
    findings = ranked(report.findings)
    accepted = len(ignored(report.findings))
    if not findings and not accepted:
        return ""
    counted = count_by_severity(findings) or "none that count"
    told = f"{counted}, {accepted} ignored" if accepted else counted
    lines = []
    for finding in findings:
        scope = scope_name(finding.scope)
        where = f" ({markdown_text(_clip(scope, 120))})" if scope else ""
        evidence = (
            f": {markdown_text(_clip(evidence_text(finding.evidence[0]), 200))}" if finding.evidence else ""
        )
        lines.append(f"- **{finding.severity.value}** {_title(finding.title)}{where}{evidence}")
    more = "- … and {} more, below"
    return "\n".join(
        [f"## Findings: {told}", "", *_within(lines, _FINDINGS_BYTES - _given_up(report), more), ""]
    )


def _short_next(report: Report) -> str:
    blocks = team_blocks(report)
    if not blocks:
        return ""
    # The first step of each team comes before the second of any.
    steps = [
        (block, action)
        for index in range(_MAX_STEPS_EACH)
        for block in blocks
        for action in block.actions[index : index + 1]
    ]
    lines = []
    for block, action in steps:
        command = f": {markdown_code(_clip(action.command, 200))}" if action.command else ""
        lines.append(f"- **{block.team.value}**: {markdown_text(_clip(action.text, 200))}{command}")
    shown = _within(lines, _NEXT_BYTES - _given_up(report), "- … and {} more, below")
    rest = sum(len(block.actions) for block in blocks) - len(steps)
    if rest and len(shown) == len(lines):
        shown.append(f"- … and {rest} more, below")
    return "\n".join(["## Next", "", *shown, ""])


# --- details ------------------------------------------------------------------------------------------------


def _findings(report: Report, budget: int) -> str:
    findings = ranked(report.findings)
    items = [_finding(finding) for finding in findings]
    items += [
        f"- ignored: {_title(each.title)} ({markdown_text(_decision(each))})\n"
        for each in ignored(report.findings)
    ]
    return _details("Findings in full", items, budget, "finding")


def _finding(finding: Finding) -> str:
    lines = [f"**{finding.severity.value}: {_title(finding.title)}** {markdown_code(finding.id)}", ""]
    about = "; ".join(each for each in (scope_name(finding.scope), how_sure(finding.confidence)) if each)
    lines += [markdown_text(about), ""] if about else []
    for evidence in finding.evidence:
        source = f" [{markdown_text(evidence.source)}]" if evidence.source else ""
        lines.append(f"- {markdown_text(evidence_text(evidence))}{source}")
    lines += [""] if finding.evidence else []
    lines += (
        [*(markdown_text(line) for line in finding.explanation.split("\n")), ""]
        if finding.explanation
        else []
    )
    return "\n".join(lines)


def _decision(finding: Finding) -> str:
    decision = finding.ignored
    if decision is None:
        return ""
    until = f"until {decision.expires}" if decision.expires else ""
    return "; ".join(each for each in (f"by {decision.by}", decision.reason or "", until) if each)


def _teams(report: Report, budget: int) -> str:
    blocks = team_blocks(report)
    if not blocks:
        return ""
    share = budget // len(blocks)
    return "\n".join(_team(report, block, share) for block in blocks)


def _team(report: Report, block: TeamBlock, budget: int) -> str:
    """One team's block, fit to be pasted alone: what, where, the evidence, the commands."""
    subject = ", ".join(subject_phrases(report.subject))
    lines = [f"{markdown_text(_clip(report.verdict.title, _MAX_TITLE_CHARS))}", ""]
    lines += [markdown_text(_clip(subject, 400)), ""] if subject else []
    facts: list[str] = []
    for finding in block.findings:
        scope = scope_name(finding.scope)
        where = f" ({markdown_text(scope)})" if scope else ""
        evidence = "".join(
            f"\n  - {markdown_text(evidence_text(each))}" for each in finding.evidence[:_MAX_EVIDENCE_IN_TEAM]
        )
        facts.append(f"- {_title(finding.title)}{where}{evidence}")
    steps = [
        f"- {markdown_text(action.text)}\n"
        + ("\n" + markdown_block(action.command) if action.command else "")
        for action in block.actions
    ]
    lines += _within(facts, budget // 2, "- … and {} more findings")
    lines += ["", "To do:", "", *_within(steps, budget - _size(lines) - 200, "- … and {} more")]
    return _folded(f"For {block.team.value}", "\n".join(lines))


def _unseen(report: Report, budget: int) -> str:
    items = []
    for fold in fold_skips(report):
        names = ", ".join(fold.names[:20]) + (
            f" and {len(fold.names) - 20} more" if len(fold.names) > 20 else ""
        )
        how = f"; get it: {markdown_text('; '.join(fold.hows[:3]))}" if fold.hows else ""
        reasons = "; ".join(dict.fromkeys(skip.reason for skip in fold.skips))
        items.append(f"- {fold.phrase}: {markdown_text(names)} ({markdown_text(_clip(reasons, 300))}){how}")
    for missing in report.missing_evidence:
        how = f"; get it: {markdown_text(missing.how)}" if missing.how else ""
        items.append(f"- {markdown_text(missing.what)}: {markdown_text(missing.why)}{how}")
    items += [
        f"- ruled out: {markdown_text(each.what)}: {markdown_text(each.why)}" for each in report.ruled_out
    ]
    return _details("Not seen, and ruled out", items, budget, "line")


def _timeline(report: Report, budget: int) -> str:
    items = [
        f"| {markdown_text(event.utc or '')} | {markdown_text(event.text)} | {markdown_text(event.source or '')} |"
        for event in report.timeline
    ]
    return _details("Timeline", items, budget, "event", head=["| UTC | what | source |", "|---|---|---|"])


def _tables(report: Report, budget: int) -> str:
    tables = body_tables(report)
    share = budget // max(len(tables), 1)
    return "\n".join(_table(table, share) for table in tables)


def _table(table: Table, budget: int) -> str:
    note = [markdown_text(table.note), ""] if table.note else []
    head = [*note, *_table_head(table)]
    return _details(_plain_title(table.title), _table_rows(table), budget, "row", head=head)


def _table_head(table: Table) -> list[str]:
    names = " | ".join(markdown_text(header_of(column)) for column in table.columns)
    align = "|".join("---:" if column.align == "right" else "---" for column in table.columns)
    return [f"| {names} |", f"|{align}|"]


def _table_rows(table: Table) -> list[str]:
    return [
        "| " + " | ".join(markdown_text(_clip(scalar_text(cell), 200)) for cell in row) + " |"
        for row in table.rows
    ]


def _series(report: Report, budget: int) -> str:
    share = budget // max(len(report.series), 1)
    parts = []
    for series in report.series:
        header, rows = series_rows(series)
        shown = header[:24]
        note = series_note(series)
        head = [markdown_text(note), ""] if note else []
        head += ["| " + " | ".join(map(markdown_text, shown)) + " |", "|" + "---|" * len(shown)]
        lines = ["| " + " | ".join(markdown_text(cell) for cell in row[:24]) + " |" for row in rows]
        unit = f" ({series.y_label})" if series.y_label and series.kind != "heat" else ""
        parts.append(_details(_plain_title(series.title + unit), lines, share, "row", head=head))
    return "\n".join(parts)


def _checks(report: Report, budget: int) -> str:
    states = (CheckState.PASSED, CheckState.NOT_APPLICABLE)
    items = [
        f"- {check.state.value}: {markdown_text(check.title)}"
        + (f": {markdown_text(check.detail)}" if check.detail else "")
        for state in states
        for check in report.checks
        if check.state is state
    ]
    return _details("Checks that found nothing", items, budget, "check")


def _facts(report: Report, budget: int) -> str:
    differ = facts_differ(report)
    items = []
    for facts in facts_by_group(report).values():
        for fact in facts:
            place = markdown_text(fact_place(fact)) if fact.key in differ else ""
            cells = (
                markdown_text(fact.key),
                markdown_text(_clip(fact_value(fact), 200)),
                place,
                markdown_text(fact.source or ""),
            )
            items.append(f"| {' | '.join(cells)} |")
    return _details(
        "Facts", items, budget, "fact", head=["| fact | value | where | source |", "|---|---|---|---|"]
    )


def _inputs(report: Report, budget: int) -> str:
    items = []
    for given in report.inputs:
        size = "" if given.bytes is None else f", {given.bytes:,} bytes"
        state = "" if given.read else f": not read, {markdown_text(given.why_not or 'no reason given')}"
        digest = f", sha256 {markdown_code(given.sha256)}" if given.sha256 else ""
        items.append(f"- {markdown_code(given.path)} ({markdown_text(given.kind)}{size}{digest}){state}")
    return _details("Inputs", items, budget, "file")


_SECTIONS: tuple[tuple[str, Callable[[Report, int], str]], ...] = (
    ("teams", _teams),
    ("findings", _findings),
    ("unseen", _unseen),
    ("timeline", _timeline),
    ("tables", _tables),
    ("series", _series),
    ("checks", _checks),
    ("facts", _facts),
    ("inputs", _inputs),
)


def _footer(report: Report) -> str:
    tool, redaction = report.tool, report.redaction
    took = "" if report.duration_s is None else f", {report.duration_s:.1f} s"
    masked = (
        f"; {redaction.secrets_masked} secrets, addresses or home paths masked"
        if redaction.secrets_masked
        else ""
    )
    renamed = "; names replaced by pseudonyms" if redaction.pseudonyms else ""
    told = f"{tool.name} {_clip(tool.version, 40)} {_clip(tool.command, 40)}, {_clip(report.started_utc, 40)}{took}{masked}{renamed}"
    return f"---\n{markdown_text(told)}\n"


# --- pieces -------------------------------------------------------------------------------------------------


def _fitting(text: str, max_bytes: int) -> str:
    """`text` as Markdown of at most `max_bytes`; escapes and other scripts take more bytes than characters."""
    clipped = _clip(text, max_bytes)
    while len((escaped := markdown_text(clipped)).encode()) > max_bytes:
        clipped = _clip(clipped, len(clipped) * 3 // 4)
    return escaped


def _title(text: str) -> str:
    return markdown_text(_clip(text, _MAX_TITLE_CHARS))


def _plain_title(text: str) -> str:
    """A title for `<summary>`, where Markdown is not read."""
    return _clip(text, _MAX_TITLE_CHARS)


def _details(title: str, items: Sequence[str], budget: int, kind: str, *, head: Sequence[str] = ()) -> str:
    if not items:
        return ""
    is_table = bool(head)
    shown = _within(items, budget - _size(head) - 200, "" if is_table else f"- … and {{}} more {kind}s")
    body = [*head, *shown]
    hidden = len(items) - len(shown) if is_table else 0
    if hidden:
        body += ["", f"… and {hidden} more {kind}s; all are in the JSON report"]
    return _folded(f"{title} ({len(items)})", "\n".join(body))


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{markdown_summary(title)}</summary>\n\n{body.rstrip()}\n\n</details>\n"


def _within(lines: Sequence[str], budget: int, more: str) -> list[str]:
    """As many of `lines` as fit in `budget` bytes, and a last line that counts the rest (`more` with `{}`)."""
    shown: list[str] = []
    used = len(more) + 8
    for line in lines:
        used += len(line.encode()) + 1
        if used > budget:
            break
        shown.append(line)
    rest = len(lines) - len(shown)
    return [*shown, more.format(rest)] if rest and more else shown


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
