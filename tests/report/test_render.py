"""How reports look: golden files for prose, limits for size, and nothing of the evidence acts as markup.

`python tests/report/test_render.py` writes the golden files anew; review their diff as prose.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent))

import builders

from distdoctor.report.model import Column, Finding, Report, Severity, Table
from distdoctor.report.render.html import render_html
from distdoctor.report.render.json import render_json
from distdoctor.report.render.markdown import render_markdown
from distdoctor.report.render.one_line import render_one_line
from distdoctor.report.render.terminal import render_terminal
from distdoctor.report.render.text import render_text
from distdoctor.report.seal import seal

GOLDEN = Path(__file__).parent / "golden"

RENDERERS: dict[str, Callable[[Report], str]] = {
    "terminal.txt": lambda report: render_terminal(report, width=80),
    "verbose.txt": render_text,
    "md": render_markdown,
    "line": render_one_line,
    "html": render_html,
    "json": render_json,
}
REPORTS: dict[str, Callable[[], Report]] = {
    "all_clear": builders.all_clear,
    "slow_gpu": builders.slow_gpu,
    "many_hosts": lambda: builders.many_hosts(24, 8),
    "memory_plan": builders.memory_plan,
    "hostile": builders.hostile,
}

EVERY = RENDERERS

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("form", RENDERERS)
def test_reports_look_as_reviewed(report: str, form: str) -> None:
    assert (
        RENDERERS[form](builders.sealed(REPORTS[report])) + "\n" == (GOLDEN / f"{report}.{form}").read_text()
    )


def with_places(*places: Literal["first", "body", "data"]) -> Report:
    report = builders.slow_gpu()
    (table,) = report.tables
    tables = tuple(replace(table, title=f"table {place}", place=place, note=None) for place in places)
    return seal(replace(report, tables=tables))


@pytest.mark.parametrize("form", ["terminal.txt", "verbose.txt", "md", "html"])
def test_a_first_table_stands_between_the_verdict_and_the_findings(form: str) -> None:
    report = with_places("first", "body")
    text = RENDERERS[form](report)
    evidence = report.findings[0].evidence[0].text[:20]
    assert text.index(report.verdict.title[:20]) < text.index("table first") < text.index("314.2")
    assert text.index("314.2") < text.index(evidence)


def test_without_a_fault_a_first_table_is_the_answer_and_what_is_to_be_known_gives_way() -> None:
    report = builders.slow_gpu()
    rows = tuple((f"row {number}", number) for number in range(13))
    table = Table(name="t", title="the answer", columns=(Column(name="what"), Column(name="GiB")), rows=rows, place="first")  # fmt: skip
    only_infos = tuple(replace(each, severity=Severity.INFO) for each in report.findings)
    text = render_terminal(seal(replace(report, tables=(table,), findings=only_infos)))
    assert all(f"row {number}" in text for number in range(13))
    faulty = render_terminal(seal(replace(report, tables=(table,))))
    assert "row 12" not in faulty
    assert report.findings[0].evidence[0].text[:20] in faulty


@pytest.mark.parametrize("form", ["terminal.txt", "verbose.txt", "md", "html"])
def test_a_table_for_programs_is_in_the_json_alone(form: str) -> None:
    report = with_places("data")
    assert "table data" in render_json(report)
    assert "table data" not in RENDERERS[form](report)


def test_a_first_table_leaves_the_head_of_the_markdown_short() -> None:
    report = builders.many_hosts(24, 8)
    table = replace(report.tables[0], place="first")
    text = render_markdown(seal(replace(report, tables=(table,))))
    assert len(text[: text.index("<details>")].encode()) <= 4096


@pytest.mark.parametrize(
    "make", [builders.all_clear, builders.slow_gpu, builders.hostile, builders.many_hosts]
)
def test_a_report_fits_one_screen_without_colour(make: Callable[[], Report]) -> None:
    lines = render_terminal(builders.sealed(make), width=80).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    "make", [builders.all_clear, builders.slow_gpu, builders.hostile, builders.many_hosts]
)
def test_one_line_is_one_line_of_80(make: Callable[[], Report]) -> None:
    line = render_one_line(builders.sealed(make))
    assert len(line) <= 80
    assert "\n" not in line.strip()


def test_markdown_fits_a_ticket_and_says_it_all_in_its_beginning() -> None:
    for make in (builders.slow_gpu, builders.many_hosts):
        report = builders.sealed(make)
        text = render_markdown(report)
        assert len(text) < 60_000
        head = text.encode()[:4096].decode("utf-8", "ignore")
        assert report.verdict.title in head
        assert "Next" in head or "next" in head


@pytest.mark.parametrize("form", EVERY)
@pytest.mark.parametrize("make", [builders.hostile, builders.slow_gpu])
def test_no_control_character_survives(form: str, make: Callable[[], Report]) -> None:
    assert not CONTROL.search(EVERY[form](seal(make())).replace("\n", "").replace("\t", ""))


class Tags(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


@pytest.mark.parametrize("make", [builders.hostile, builders.slow_gpu, builders.all_clear])
def test_the_page_runs_nothing_loads_nothing_and_links_nowhere(make: Callable[[], Report]) -> None:
    page = render_html(seal(make()))
    tags = Tags(page)
    assert not {"script", "a", "img", "iframe", "link", "object", "form", "base"} & set(tags.tags)
    names = {name for name, _ in tags.attributes}
    assert not {"href", "src", "xlink:href"} & names
    assert not any(name.startswith("on") for name in names)
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


def test_the_page_works_in_light_dark_and_print() -> None:
    page = render_html(seal(builders.slow_gpu()))
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "<svg" in page


def test_markdown_of_hostile_text_holds_no_live_markup() -> None:
    """Parsed as GitHub does at its base; what GitHub links on its own is looked for in the text that is left."""
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    html = []
    words = []
    in_code = False  # GitHub links nothing inside <code>
    for token in markdown.parse(render_markdown(seal(builders.hostile()))):
        for each in [token, *(token.children or [])]:
            assert each.type not in ("link_open", "image")
            if each.type.startswith("html"):
                html.append(each.content)
                in_code = "<code>" in each.content or (in_code and "</code>" not in each.content)
            if each.type == "text" and not in_code:
                words.append(each.content)
    assert set(re.findall(r"</?(\w+)", " ".join(html))) <= {"details", "summary", "br", "b", "code", "pre"}
    text = "\n".join(words)
    assert not re.search(r"https?://[a-z]|(?<![\w])www\.[a-z]|(?<![\w])@[a-z]|GH-\d", text)


TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from(list("<>&\"'`|[]()*_~#@!\\\x1b\x07\x9b\u202e\u200b\n\r\t{}%$")),
        st.characters(codec="utf-8"),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_any_text_is_harmless_everywhere(text: str) -> None:
    base = builders.slow_gpu()
    finding = Finding(
        id="x",
        severity=base.findings[0].severity,
        confidence=base.findings[0].confidence,
        title=text,
        fingerprint="x",
        explanation=text,
    )
    report = seal(Report(tool=base.tool, verdict=base.verdict, findings=(finding,)))
    for render in EVERY.values():
        assert not CONTROL.search(render(report).replace("\n", "").replace("\t", ""))
    assert "script" not in Tags(render_html(report)).tags


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, make in REPORTS.items():
        for form, render in RENDERERS.items():
            (GOLDEN / f"{name}.{form}").write_text(render(seal(make())) + "\n")
