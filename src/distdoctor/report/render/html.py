"""A report as one self-contained HTML page: no script, no remote resource, light and dark, printable."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from distdoctor.report.coverage import fold_skips, unsaid_coverage
from distdoctor.report.model import CheckState, Report
from distdoctor.report.names import count_hosts, fact_value, scalar_text, scope_name
from distdoctor.report.reading import (
    body_tables,
    count_by_severity,
    evidence_text,
    facts_by_group,
    facts_differ,
    first_tables,
    hot_rows,
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
from distdoctor.report.render.charts import chart_of
from distdoctor.report.render.tables import fact_place, header_of

# A page with more of these opens slowly and nobody reads it; the rest is counted, and is in the JSON.
MAX_FINDINGS = 200
MAX_ROWS = 500
MAX_FACTS = 2_000
MAX_COLUMNS = 64

# Cells of tables up to so many characters stay on one line on narrow screens; what is wider scrolls.
MAX_UNBROKEN = 24
# Tables up to this length are open.
OPEN_ROWS = 12

_CODE = re.compile(r"`([^`\n]+)`")


def render_html(report: Report) -> str:
    """`report`, sealed by the caller, as an HTML page. Everything from the report is escaped."""
    findings = ranked(report.findings)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            status=report.verdict.status.value,
            findings=findings[:MAX_FINDINGS],
            hidden_findings=max(len(findings) - MAX_FINDINGS, 0),
            counted=count_by_severity(findings),
            accepted=ignored(report.findings),
            coverage=unsaid_coverage(report, report.verdict.title + report.verdict.summary),
            sure=verdict_sureness(report),
            story=story(report),
            subject=subject_phrases(report.subject),
            blocks=team_blocks(report),
            skips=fold_skips(report),
            first_tables=first_tables(report),
            body_tables=body_tables(report),
            charts=[
                (series, chart_of(series), *series_rows(series), hot_rows(series), series_note(series))
                for series in report.series
            ],
            quiet_checks=[
                check
                for check in report.checks
                if check.state in (CheckState.PASSED, CheckState.NOT_APPLICABLE)
            ],
            fact_groups=_fact_groups(report),
            differ=facts_differ(report),
            MAX_FINDINGS=MAX_FINDINGS,
            MAX_ROWS=MAX_ROWS,
            MAX_UNBROKEN=MAX_UNBROKEN,
            MAX_COLUMNS=MAX_COLUMNS,
            OPEN_ROWS=OPEN_ROWS,
        )
    )


def _fact_groups(report: Report) -> list[tuple[str, list[object], int]]:
    groups: list[tuple[str, list[object], int]] = []
    room = MAX_FACTS
    for name, facts in facts_by_group(report).items():
        groups.append((name, list(facts[:room]), len(facts)))
        room = max(room - len(facts), 0)
    return groups


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        prose=_prose, scope=scope_name, cell=scalar_text, fact=fact_value, evidence=evidence_text, hosts=count_hosts,
        header=header_of, place=fact_place, sure=how_sure,
    )  # fmt: skip
    return environment


def _template(name: str) -> str:
    return files("distdoctor.report.render").joinpath("templates").joinpath(name).read_text(encoding="utf-8")


def _prose(text: str) -> Markup:
    """Text with pairs of backticks as code and line breaks kept; everything escaped."""
    parts: list[Markup] = []
    position = 0
    for match in _CODE.finditer(text):
        parts += (escape(text[position : match.start()]), Markup("<code>{}</code>").format(match[1]))
        position = match.end()
    parts.append(escape(text[position:]))
    return Markup("<br>").join(Markup("").join(parts).split("\n"))
