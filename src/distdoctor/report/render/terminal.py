"""A report for a terminal: verdict, evidence, next step on one screen; everything with `verbose`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from distdoctor.report.coverage import fold_skips, unsaid_coverage
from distdoctor.report.model import CheckState, Finding, Report, Severity, Status, Table
from distdoctor.report.names import scope_name
from distdoctor.report.reading import (
    body_tables,
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
from distdoctor.report.render.labelled import INDENT, short_lines, skip_lines, text_lines, with_label
from distdoctor.report.render.lines import (
    BLANK,
    Line,
    Span,
    clipped,
    command_lines,
    draw,
    physical_rows,
    plain,
)
from distdoctor.report.render.tables import table_lines
from distdoctor.report.render.whole import whole_report

# One screen of an 80x24 terminal, its prompt not counted.
SCREEN_ROWS = 24
MAX_SUMMARY_ROWS = 4
# More findings than this never fit; they are counted without being laid out.
MAX_CANDIDATES = 12
# A first table that is cut to a screen keeps so many rows, and this share of them.
MIN_TABLE_ROWS = 4
MIN_TABLE_SHARE = 0.6
_NEVER = 10_000
_FOOTER_CELLS = 80


# Sections in the order of reading.
_HEAD, _STORY, _FIGURES, _FINDINGS, _SKIPS, _PICTURES, _NEXT = range(7)
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
    shorter: Callable[[int], list[Line]] | None = None
    """The same in so many rows fewer; no lines where it cannot be."""


def render_terminal(
    report: Report,
    *,
    width: int = 80,
    color: bool = False,
    verbose: bool = False,
    screen_rows: int = SCREEN_ROWS,
) -> str:
    """`report` as text for a terminal `width` cells wide.

    Without `verbose` at most 24 rows at 80 columns; what is left out is counted in the last line. A table that is the
    answer may take a taller screen of `screen_rows`. `report` is sealed by the caller.
    """
    width = max(width, 40)
    if verbose:
        return draw(whole_report(report, width), color=color)
    blocks = list(_blocks(report, width))
    is_answered_by_table = not _has_fault(report) and bool(first_tables(report))
    limit = max(SCREEN_ROWS, screen_rows) if is_answered_by_table else SCREEN_ROWS
    return draw(_fitted(report, blocks, width, limit), color=color)


# --- one screen ---------------------------------------------------------------------------------------------


def _blocks(report: Report, width: int) -> Iterator[_Block]:
    yield from _head(report, width)
    for index, (label, text) in enumerate(story(report)):
        yield _Block(
            section=_STORY, lines=short_lines(text, width), label=label, priority=20 + index, kind="line"
        )
    # Beside a fault the table supports; without one it answers, and comes before what is only to be known.
    answers = not _has_fault(report)
    for index, table in enumerate(first_tables(report)):
        yield _Block(
            section=_FIGURES,
            lines=table_lines(table, indent="  ", width=width),
            priority=8 + index if answers else 16 + index,
            kind="table",
            shorter=_shorter_table(table, width) if index == 0 and answers else None,
        )
    yield from _finding_blocks(report, width)
    for index, fold in enumerate(fold_skips(report)):
        yield _Block(
            section=_SKIPS, lines=skip_lines(fold, width), priority=60 + index, kind="reason for skips"
        )
    for index, missing in enumerate(report.missing_evidence):
        text = f"{missing.what}: {missing.why}"
        lines = short_lines(text, width) + (
            short_lines(f"get it: {missing.how}", width) if missing.how else []
        )
        yield _Block(
            section=_SKIPS,
            lines=lines,
            priority=(24 if _is_unknown(report) else 58) + index,
            kind="gap in evidence",
        )
    for index, table in enumerate(body_tables(report)):
        yield _Block(
            section=_PICTURES,
            lines=table_lines(table, indent="  ", width=width),
            priority=90 + index,
            kind="table",
        )
    yield from _action_blocks(report, width)


def _head(report: Report, width: int) -> Iterator[_Block]:
    verdict = report.verdict
    status = verdict.status.value
    title = short_lines(verdict.title, width, style="bold")
    yield _Block(section=_HEAD, lines=title, priority=0, label=status)
    summary = (
        clipped(text_lines(verdict.summary, width), MAX_SUMMARY_ROWS, width=width) if verdict.summary else []
    )
    yield _Block(section=_HEAD, lines=summary, priority=0)
    shown = verdict.title + " ".join(plain(line) for line in summary)
    told = "; ".join(each for each in (unsaid_coverage(report, shown), verdict_sureness(report)) if each)
    if told:
        yield _Block(section=_HEAD, lines=short_lines(told, width, style="dim"), priority=0)
    subject = subject_phrases(report.subject)
    if subject:
        yield _Block(section=_HEAD, lines=short_lines(", ".join(subject), width, style="dim"), priority=70)


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
            lines = short_lines(evidence_text(evidence), width)
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
        # The verdict has said it; here stands whom it is about, else by which name the check is looked up.
        named = scope or f"evidence ({finding.id})"
        return short_lines("; ".join(each for each in (named, sure) if each), width, style="bold")
    lines = short_lines(finding.title, width, style="bold")
    about = "; ".join(each for each in (scope, sure) if each)
    one_host = (
        report.subject.hosts == finding.scope.hosts and not finding.scope.gpus and not finding.scope.links
    )
    return lines + (short_lines(about, width, style="dim") if about and not (one_host and not sure) else [])


def _action_blocks(report: Report, width: int) -> Iterator[_Block]:
    for order, block in enumerate(team_blocks(report)):
        for index, action in enumerate(block.actions):
            lines = short_lines(f"{block.team.value}: {action.text}", width)
            if action.command:
                lines += command_lines(action.command, indent=INDENT)
            priority = 12 if order == index == 0 else 28 + order if index == 0 else 50 + index
            yield _Block(section=_NEXT, lines=lines, priority=priority, kind="action")


def _fitted(report: Report, blocks: Sequence[_Block], width: int, limit: int) -> list[Line]:
    """What fits in `limit` rows, by priority."""
    for block in blocks:
        block.shown = block.priority == 0
    rows = 0
    for block in sorted(blocks, key=lambda each: each.priority):
        if block.priority == _NEVER or rows == limit:
            break
        if block.shown or (block.needs is not None and not block.needs.shown):
            continue
        block.shown = True
        tried = physical_rows(_screen(report, blocks), width)
        if tried > limit and block.shorter is not None:
            # The answer itself is a table: most of it is better than none.
            block.lines = block.shorter(tried - limit)
            tried = physical_rows(_screen(report, blocks), width) if block.lines else tried
        if tried > limit:
            block.shown = False
        else:
            rows = tried
    return _screen(report, blocks)


def _shorter_table(table: Table, width: int) -> Callable[[int], list[Line]]:
    """The table with so many rows fewer, and a line that counts them; nothing where little would be left."""

    def cut(too_many: int) -> list[Line]:
        left = len(table.rows) - too_many - 1
        if left < max(MIN_TABLE_ROWS, len(table.rows) * MIN_TABLE_SHARE):
            return []
        return table_lines(table, indent="  ", width=width, max_rows=left)

    return cut


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
        lines += with_label(label, block.lines)
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
    told = [f"{count} {_plural(kind, count)}" for kind, count in counts.items()]
    # One row: what does not fit is not spelt out.
    while len(line := _hidden_line(told, len(told) < len(counts))) > _FOOTER_CELLS and len(told) > 1:
        told.pop()
    return [BLANK, (Span(line, "dim"),)]


def _hidden_line(told: Sequence[str], is_cut: bool) -> str:
    more = " and more" if is_cut else ""
    return f"hidden: {', '.join(told)}{more}; see -v or -o report.html"


def _plural(kind: str, count: int) -> str:
    if count == 1:
        return kind
    return (
        kind.replace("line of", "lines of").replace("reason for", "reasons for").replace("gap in", "gaps in")
        if " of " in kind or " for " in kind or " in " in kind
        else f"{kind}s"
    )


# --- everything ---------------------------------------------------------------------------------------------


# --- pieces -------------------------------------------------------------------------------------------------


def _has_fault(report: Report) -> bool:
    return any(finding.severity is not Severity.INFO for finding in ranked(report.findings))


def _is_unknown(report: Report) -> bool:
    return report.verdict.status is Status.UNKNOWN
