"""The whole report as text (`--verbose`, `.txt`): all findings, actions, skips, tables, checks and facts."""

from __future__ import annotations

from distdoctor.report.coverage import fold_skips, unsaid_coverage
from distdoctor.report.model import CheckState, Finding, Report
from distdoctor.report.names import count_hosts, scope_name
from distdoctor.report.reading import (
    TeamBlock,
    body_tables,
    count_by_severity,
    evidence_text,
    first_tables,
    how_sure,
    ignored,
    ranked,
    story,
    subject_phrases,
    team_blocks,
    verdict_sureness,
)
from distdoctor.report.render.labelled import INDENT, skip_lines, text_lines, with_label
from distdoctor.report.render.lines import (
    BLANK,
    Line,
    Span,
    command_lines,
    wrapped,
)
from distdoctor.report.render.tables import fact_lines, series_lines, table_lines


def whole_report(report: Report, width: int) -> list[Line]:
    """Everything that the report holds, in the order of reading."""
    verdict = report.verdict
    lines = with_label(verdict.status.value, text_lines(verdict.title, width, style="bold"))
    for text in (
        verdict.summary,
        verdict_sureness(report),
        unsaid_coverage(report, verdict.title + verdict.summary),
    ):
        lines += text_lines(text, width) if text else []
    if subject := subject_phrases(report.subject):
        lines += text_lines(", ".join(subject), width, style="dim")
    if verdict.cause_class:
        lines += text_lines(
            f"cause class {verdict.cause_class}, fault {verdict.fault.value}", width, style="dim"
        )
    last_label = ""
    for label, text in story(report):
        lines += with_label("" if label == last_label else label, text_lines(text, width))
        last_label = label
    for section in (
        _first_tables,
        _all_findings,
        _all_actions,
        _all_unseen,
        _all_timeline,
        _all_pictures,
        _all_checks,
        _all_facts,
        _about,
    ):
        more = section(report, width)
        lines += [BLANK, *more] if more else []
    return lines


def _first_tables(report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    for table in first_tables(report):
        lines += [*([BLANK] if lines else []), *table_lines(table, indent="  ", width=width, whole=True)]
    return lines


def _all_findings(report: Report, width: int) -> list[Line]:
    findings = ranked(report.findings)
    lines: list[Line] = []
    if len(findings) > 1:
        lines += [(Span(f"findings: {count_by_severity(findings)}", "bold"),)]
    for finding in findings:
        lines += [BLANK] if lines else []
        lines += _whole_finding(finding, width)
    accepted = ignored(report.findings)
    if accepted:
        lines += [
            *([BLANK] if lines else []),
            (Span(f"ignored, by a site's or the caller's decision: {len(accepted)}", "bold"),),
        ]
    for finding in accepted:
        decision = finding.ignored
        why = "; ".join(
            each
            for each in (
                decision and f"by {decision.by}",
                decision and decision.reason,
                decision and decision.expires and f"until {decision.expires}",
            )
            if each
        )
        lines += with_label(
            finding.severity.value, text_lines(f"{finding.title} [{finding.id}] ({why})", width)
        )
    return lines


def _whole_finding(finding: Finding, width: int) -> list[Line]:
    lines = with_label(
        finding.severity.value, text_lines(f"{finding.title} [{finding.id}]", width, style="bold")
    )
    about = "; ".join(each for each in (scope_name(finding.scope), how_sure(finding.confidence)) if each)
    lines += text_lines(about, width, style="dim") if about else []
    for evidence in finding.evidence:
        source = f"; read from {evidence.source}" if evidence.source else ""
        lines += wrapped(
            evidence_text(evidence) + source,
            width=width,
            indent=INDENT + "  ",
            first=(Span(INDENT + "- "),),
        )
    lines += text_lines(finding.explanation, width) if finding.explanation else []
    return lines


def _all_actions(report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    for block in team_blocks(report):
        lines += [BLANK] if lines else []
        lines.append((Span(f"next, for {block.team.value}", "bold"),))
        lines += _whole_block(block, width)
    return lines


def _whole_block(block: TeamBlock, width: int) -> list[Line]:
    lines: list[Line] = []
    for action in block.actions:
        lines += wrapped(action.text, width=width, indent=INDENT + "  ", first=(Span(INDENT + "- "),))
        if action.command:
            lines += command_lines(action.command, indent=INDENT + "  ")
    return lines


def _all_unseen(report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    for fold in fold_skips(report):
        lines += skip_lines(fold, width)
        for skip in fold.skips:
            where = (
                f" ({count_hosts(skip.hosts)})" if skip.hosts and skip.hosts != report.subject.hosts else ""
            )
            essential = "; the verdict hangs on it" if skip.essential else ""
            text = f"{skip.what}{where}: {skip.reason}{essential}"
            lines += wrapped(text, width=width, indent=INDENT + "  ", first=(Span(INDENT + "- "),))
    for missing in report.missing_evidence:
        text = f"{missing.what}: {missing.why}" + (f"; get it: {missing.how}" if missing.how else "")
        lines += text_lines(text, width)
    lines = with_label("not seen", lines)
    for excluded in report.ruled_out:
        lines += with_label("ruled out", text_lines(f"{excluded.what}: {excluded.why}", width))
    return lines


def _all_timeline(report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    for event in report.timeline:
        source = f" [{event.source}]" if event.source else ""
        lines += text_lines(f"{event.utc or '(order only)'}  {event.text}{source}", width)
    return with_label("timeline", lines)


def _all_pictures(report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    for table in body_tables(report):
        lines += [*([BLANK] if lines else []), *table_lines(table, indent="  ", width=width, whole=True)]
    for series in report.series:
        lines += [*([BLANK] if lines else []), *series_lines(series, indent="  ")]
    return lines


def _all_checks(report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    for state in (CheckState.PASSED, CheckState.NOT_APPLICABLE):
        checks = [check for check in report.checks if check.state is state]
        if checks:
            lines.append((Span(f"{state.value}: {len(checks)}", "bold"),))
        for check in checks:
            text = f"{check.title}: {check.detail}" if check.detail else check.title
            lines += wrapped(text, width=width, indent=INDENT + "  ", first=(Span(INDENT + "- "),))
    return lines


def _all_facts(report: Report, width: int) -> list[Line]:
    lines = fact_lines(report, width=width, indent="  ")
    return [(Span("facts", "bold"),), *lines] if lines else []


def _about(report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    for given in report.inputs:
        size = "" if given.bytes is None else f", {given.bytes:,} bytes"
        state = f": not read, {given.why_not or 'no reason given'}" if not given.read else ""
        digest = f", sha256 {given.sha256}" if given.sha256 else ""
        lines += text_lines(f"{given.path} ({given.kind}{size}{digest}){state}", width)
    lines = with_label("inputs", lines)
    tool = report.tool
    took = "" if report.duration_s is None else f", {report.duration_s:.1f} s"
    lines += text_lines(
        f"{tool.name} {tool.version} {tool.command}, {report.started_utc or 'time unknown'}{took}",
        width,
        style="dim",
    )
    masked = report.redaction
    if masked.secrets_masked:
        lines += text_lines(
            f"masked: {masked.secrets_masked} secrets, e-mail addresses or home paths", width, style="dim"
        )
    if masked.pseudonyms:
        lines += text_lines(f"names replaced by pseudonyms (key {masked.key_id})", width, style="dim")
    return lines
