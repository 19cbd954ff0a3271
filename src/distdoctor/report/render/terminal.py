"""A report for a terminal: verdict, evidence, next step on one screen; everything with `verbose`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from distdoctor.report.coverage import SkipFold, coverage_line, coverage_phrase, fold_skips
from distdoctor.report.model import CheckState, Finding, Report, Status
from distdoctor.report.names import count_hosts, scope_name
from distdoctor.report.reading import (
    TeamBlock,
    count_by_severity,
    evidence_text,
    how_sure,
    ignored,
    ranked,
    story,
    subject_phrases,
    team_blocks,
)
from distdoctor.report.render.lines import (
    BLANK,
    Line,
    Span,
    clipped,
    command_lines,
    draw,
    physical_rows,
    plain,
    wrapped,
)
from distdoctor.report.render.tables import fact_lines, series_lines, table_lines

# One screen of an 80x24 terminal, its prompt not counted.
SCREEN_ROWS = 24
MAX_SUMMARY_ROWS = 4
MAX_ROWS_EACH = 2
# More findings than this never fit; they are counted without being laid out.
MAX_CANDIDATES = 12
_NEVER = 10_000

_COLUMN = 10
_INDENT = " " * _COLUMN

_STYLES = {
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "bold blue",
    "ok": "bold green",
    "unknown": "bold magenta",
}

# Sections in the order of reading.
_HEAD, _STORY, _FINDINGS, _SKIPS, _PICTURES, _NEXT = range(6)
_LABELS = {_SKIPS: "not seen", _NEXT: "next"}


@dataclass(slots=True, kw_only=True)
class _Block:
    """Lines that are shown together or not at all, in the screen that has room for some."""

    section: int
    lines: list[Line]
    priority: int
    """Lower is shown first; 0 is always shown."""
    label: str = ""
    kind: str = ""
    """What it counts as when hidden: `finding`, `action`, …"""
    needs: _Block | None = None
    shown: bool = field(default=False, compare=False)


def render_terminal(report: Report, *, width: int = 80, color: bool = False, verbose: bool = False) -> str:
    """`report` as text for a terminal `width` cells wide.

    Without `verbose` at most 24 rows at 80 columns; what is left out is counted in the last line. `report` is
    sealed by the caller.
    """
    width = max(width, 40)
    if verbose:
        return draw(_everything(report, width), color=color)
    blocks = list(_blocks(report, width))
    return draw(_fitted(report, blocks, width), color=color)


# --- one screen ---------------------------------------------------------------------------------------------


def _blocks(report: Report, width: int) -> Iterator[_Block]:
    yield from _head(report, width)
    for index, (label, text) in enumerate(story(report)):
        yield _Block(section=_STORY, lines=_short(text, width), label=label, priority=20 + index, kind="line")
    yield from _finding_blocks(report, width)
    for index, fold in enumerate(fold_skips(report)):
        yield _Block(
            section=_SKIPS, lines=_skip_lines(fold, width), priority=60 + index, kind="reason for skips"
        )
    for index, missing in enumerate(report.missing_evidence):
        text = f"{missing.what}: {missing.why}"
        lines = _short(text, width) + (_short(f"get it: {missing.how}", width) if missing.how else [])
        yield _Block(
            section=_SKIPS,
            lines=lines,
            priority=(24 if _is_unknown(report) else 58) + index,
            kind="missing evidence",
        )
    for index, table in enumerate(report.tables):
        yield _Block(
            section=_PICTURES, lines=table_lines(table, indent="  "), priority=90 + index, kind="table"
        )
    yield from _action_blocks(report, width)


def _head(report: Report, width: int) -> Iterator[_Block]:
    verdict = report.verdict
    status = verdict.status.value
    sure = how_sure(verdict.confidence) if verdict.status is not Status.OK else ""
    title = _short(verdict.title, width, style="bold")
    yield _Block(section=_HEAD, lines=title, priority=0, label=status)
    summary = clipped(_text(verdict.summary, width), MAX_SUMMARY_ROWS) if verdict.summary else []
    yield _Block(section=_HEAD, lines=summary, priority=0)
    shown = verdict.title + " ".join(plain(line) for line in summary)
    seen = "" if coverage_phrase(report) and coverage_phrase(report) in shown else coverage_line(report)
    told = "; ".join(each for each in (seen, sure) if each)
    if told:
        yield _Block(section=_HEAD, lines=_short(told, width, style="dim"), priority=0)
    subject = subject_phrases(report.subject)
    if subject:
        yield _Block(section=_HEAD, lines=_short(", ".join(subject), width, style="dim"), priority=70)


def _finding_blocks(report: Report, width: int) -> Iterator[_Block]:
    for index, finding in enumerate(ranked(report.findings)):
        if index >= MAX_CANDIDATES:
            yield _Block(section=_FINDINGS, lines=[BLANK], priority=_NEVER, kind="finding")
            continue
        base = 10 if index == 0 else 26 if index == 1 else 36 + index
        head = _Block(
            section=_FINDINGS,
            lines=_finding_head(report, finding, width),
            label=finding.severity.value,
            priority=base,
            kind="finding",
        )
        yield head
        for number, evidence in enumerate(finding.evidence):
            lines = _short(evidence_text(evidence), width)
            yield _Block(
                section=_FINDINGS,
                lines=lines,
                priority=base + 1 if number == 0 else 30 + number if index == 0 else 54 + number,
                kind="line of evidence",
                needs=head,
            )


def _finding_head(report: Report, finding: Finding, width: int) -> list[Line]:
    scope = scope_name(finding.scope)
    sure = how_sure(finding.confidence)
    if finding.title == report.verdict.title:
        # The verdict has said it; here stands whom it is about.
        return _short(
            "; ".join(each for each in (scope or "the whole subject", sure) if each), width, style="bold"
        )
    lines = _short(finding.title, width, style="bold")
    about = "; ".join(each for each in (scope, sure) if each)
    one_host = (
        report.subject.hosts == finding.scope.hosts and not finding.scope.gpus and not finding.scope.links
    )
    return lines + (_short(about, width, style="dim") if about and not (one_host and not sure) else [])


def _action_blocks(report: Report, width: int) -> Iterator[_Block]:
    for order, block in enumerate(team_blocks(report)):
        for index, action in enumerate(block.actions):
            lines = _short(f"{block.team.value}: {action.text}", width)
            if action.command:
                lines += command_lines(action.command, indent=_INDENT)
            priority = 12 if order == index == 0 else 28 + order if index == 0 else 50 + index
            yield _Block(section=_NEXT, lines=lines, priority=priority, kind="action")


def _fitted(report: Report, blocks: Sequence[_Block], width: int) -> list[Line]:
    for block in blocks:
        block.shown = block.priority == 0
    rows = 0
    for block in sorted(blocks, key=lambda each: each.priority):
        if block.priority == _NEVER or rows == SCREEN_ROWS:
            break
        if block.shown or (block.needs is not None and not block.needs.shown):
            continue
        block.shown = True
        tried = physical_rows(_screen(report, blocks), width)
        if tried > SCREEN_ROWS:
            block.shown = False
        else:
            rows = tried
    return _screen(report, blocks)


def _screen(report: Report, blocks: Sequence[_Block]) -> list[Line]:
    lines: list[Line] = []
    last_section = last_label = None
    for block in blocks:
        if not block.shown or not block.lines:
            continue
        label = block.label
        if block.section != last_section:
            if last_section is not None and not (last_section == _HEAD and block.section == _STORY):
                lines.append(BLANK)
            label = label or _LABELS.get(block.section, "")
        elif block.section == _STORY and label == last_label:
            label = ""
        lines += _with_label(label, block.lines)
        last_section, last_label = block.section, block.label or last_label
    return [*lines, *_footer(report, blocks)]


def _footer(report: Report, blocks: Sequence[_Block]) -> list[Line]:
    counts: dict[str, int] = {}
    for block in blocks:
        if not block.shown and block.lines and block.kind:
            counts[block.kind] = counts.get(block.kind, 0) + 1
    passed = sum(check.state is CheckState.PASSED for check in report.checks)
    for kind, count in (
        ("ignored finding", len(ignored(report.findings))),
        ("passed check", passed),
        ("fact", len(report.facts)),
        ("chart", len(report.series)),
    ):
        if count:
            counts[kind] = count
    if not counts:
        return []
    hidden = ", ".join(f"{count} {_plural(kind, count)}" for kind, count in counts.items())
    if len(hidden) > 58:
        hidden = (
            ", ".join(f"{count} {_plural(kind, count)}" for kind, count in [*counts.items()][:2])
            + " and more"
        )
    return [BLANK, (Span(f"hidden: {hidden}; see -v or -o report.html", "dim"),)]


def _plural(kind: str, count: int) -> str:
    if count == 1 or kind == "missing evidence":
        return kind
    return (
        kind.replace("line of", "lines of").replace("reason for", "reasons for")
        if " of " in kind or " for " in kind
        else f"{kind}s"
    )


# --- everything ---------------------------------------------------------------------------------------------


def _everything(report: Report, width: int) -> list[Line]:
    verdict = report.verdict
    lines = _with_label(verdict.status.value, _text(verdict.title, width, style="bold"))
    for text in (verdict.summary, how_sure(verdict.confidence), coverage_line(report)):
        lines += _text(text, width) if text else []
    if subject := subject_phrases(report.subject):
        lines += _text(", ".join(subject), width, style="dim")
    if verdict.cause_class:
        lines += _text(f"cause class {verdict.cause_class}, fault {verdict.fault.value}", width, style="dim")
    last_label = ""
    for label, text in story(report):
        lines += _with_label("" if label == last_label else label, _text(text, width))
        last_label = label
    for section in (
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
        lines += _with_label(finding.severity.value, _text(f"{finding.title} [{finding.id}] ({why})", width))
    return lines


def _whole_finding(finding: Finding, width: int) -> list[Line]:
    lines = _with_label(finding.severity.value, _text(f"{finding.title} [{finding.id}]", width, style="bold"))
    about = "; ".join(each for each in (scope_name(finding.scope), how_sure(finding.confidence)) if each)
    lines += _text(about, width, style="dim") if about else []
    for evidence in finding.evidence:
        source = f"; read from {evidence.source}" if evidence.source else ""
        lines += wrapped(
            evidence_text(evidence) + source,
            width=width,
            indent=_INDENT + "  ",
            first=(Span(_INDENT + "- "),),
        )
    lines += _text(finding.explanation, width) if finding.explanation else []
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
        lines += wrapped(action.text, width=width, indent=_INDENT + "  ", first=(Span(_INDENT + "- "),))
        if action.command:
            lines += command_lines(action.command, indent=_INDENT + "  ")
    return lines


def _all_unseen(report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    for fold in fold_skips(report):
        lines += _skip_lines(fold, width)
        for skip in fold.skips:
            where = (
                f" ({count_hosts(skip.hosts)})" if skip.hosts and skip.hosts != report.subject.hosts else ""
            )
            essential = "; the verdict hangs on it" if skip.essential else ""
            text = f"{skip.what}{where}: {skip.reason}{essential}"
            lines += wrapped(text, width=width, indent=_INDENT + "  ", first=(Span(_INDENT + "- "),))
    for missing in report.missing_evidence:
        text = f"{missing.what}: {missing.why}" + (f"; get it: {missing.how}" if missing.how else "")
        lines += _text(text, width)
    lines = _with_label("not seen", lines)
    for excluded in report.ruled_out:
        lines += _with_label("ruled out", _text(f"{excluded.what}: {excluded.why}", width))
    return lines


def _all_timeline(report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    for event in report.timeline:
        source = f" [{event.source}]" if event.source else ""
        lines += _text(f"{event.utc or '(order only)'}  {event.text}{source}", width)
    return _with_label("timeline", lines)


def _all_pictures(report: Report, width: int) -> list[Line]:
    del width
    lines: list[Line] = []
    for table in report.tables:
        lines += [*([BLANK] if lines else []), *table_lines(table, indent="  ")]
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
            lines += wrapped(text, width=width, indent=_INDENT + "  ", first=(Span(_INDENT + "- "),))
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
        lines += _text(f"{given.path} ({given.kind}{size}{digest}){state}", width)
    lines = _with_label("inputs", lines)
    tool = report.tool
    took = "" if report.duration_s is None else f", {report.duration_s:.1f} s"
    lines += _text(
        f"{tool.name} {tool.version} {tool.command}, {report.started_utc or 'time unknown'}{took}",
        width,
        style="dim",
    )
    masked = report.redaction
    if masked.secrets_masked:
        lines += _text(
            f"masked: {masked.secrets_masked} secrets, e-mail addresses or home paths", width, style="dim"
        )
    if masked.pseudonyms:
        lines += _text(f"names replaced by pseudonyms (key {masked.key_id})", width, style="dim")
    return lines


# --- pieces -------------------------------------------------------------------------------------------------


def _text(text: str, width: int, *, style: str = "") -> list[Line]:
    return wrapped(text, width=width, indent=_INDENT, first=(Span(_INDENT),), style=style)


def _short(text: str, width: int, *, style: str = "") -> list[Line]:
    return clipped(_text(text, width, style=style), MAX_ROWS_EACH)


def _with_label(label: str, lines: list[Line]) -> list[Line]:
    if not label or not lines:
        return lines
    _, *rest = lines[0]
    style = _STYLES.get(label, "dim")
    gap = " " * max(_COLUMN - len(label), 1)
    return [(Span(label, style), Span(gap), *rest), *lines[1:]]


def _skip_lines(fold: SkipFold, width: int) -> list[Line]:
    # Also in full reports: every skip follows by name there.
    count = len(fold.names)
    cause = fold.cause.value.replace("need ", "needs ", 1) if count == 1 else fold.cause.value
    named = ", ".join(fold.names[:4]) + (f" and {count - 4} more" if count > 4 else "")
    lines = _short(f"{count} {cause}: {named}", width)
    if fold.hows:
        lines += _short(f"get it: {fold.hows[0]}", width, style="dim")
    return lines


def _is_unknown(report: Report) -> bool:
    return report.verdict.status is Status.UNKNOWN
