"""How much reports show and leave out: order, one screen, budgets, charts; for any content."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace
from rich.cells import cell_len

from distdoctor.report.model import Column, Report, Status, Table
from distdoctor.report.render.charts import MAX_BARS, chart_of
from distdoctor.report.render.html import render_html
from distdoctor.report.render.json import render_json
from distdoctor.report.render.labelled import short_lines
from distdoctor.report.render.lines import plain
from distdoctor.report.render.markdown import HEAD_BYTES, MAX_CHARS, render_markdown
from distdoctor.report.render.one_line import render_one_line
from distdoctor.report.render.tables import table_lines
from distdoctor.report.render.terminal import SCREEN_ROWS, render_terminal
from distdoctor.report.render.text import render_text
from distdoctor.report.seal import seal
from report.builders import REPORTS, all_clear, hostile, many_hosts, sealed, slow_gpu
from report.generated import reports

fuzzy = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
PEOPLE = {"terminal": render_terminal, "text": render_text, "markdown": render_markdown, "html": render_html}


# --- one screen ---


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_screen_is_enough(name: str, width: int) -> None:
    lines = render_terminal(sealed(REPORTS[name]), width=width).splitlines()
    assert sum(max(1, -(-cell_len(line) // width)) for line in lines) <= SCREEN_ROWS


@pytest.mark.once
@fuzzy
@given(reports)
def test_a_screen_is_enough_for_any_report(report: Report) -> None:
    text = render_terminal(seal(report))
    assert sum(max(1, -(-cell_len(line) // 80)) for line in text.split("\n")[:-1]) <= SCREEN_ROWS + 20
    assert "\x1b" not in text


def test_the_screen_reads_verdict_evidence_next_step() -> None:
    text = render_terminal(seal(slow_gpu()))
    verdict, who, evidence, following = (
        text.index(each)
        for each in (
            "rank 19 is 31 %",
            "gpu 3 (0000:3B:00.0, NVIDIA H100)",
            "median step 412 ms",
            "$ nvidia-smi",
        )
    )
    assert verdict < who < evidence < following
    assert "expected at most 330 ms (the other ranks plus 5 %)" in " ".join(text.split())
    assert "ranks 8-15 (host-b)" in text
    assert text.rstrip().endswith("see -v or -o report.html")


def test_the_screen_says_how_much_was_seen_even_if_the_verdict_does_not() -> None:
    report = replace(all_clear(), verdict=replace(all_clear().verdict, title="nothing found", summary=""))
    assert "6 of 9 checks; kernel log, PCIe link and port counters not seen" in render_terminal(seal(report))


def test_everything_is_there_when_asked_for() -> None:
    text = " ".join(render_terminal(seal(slow_gpu()), verbose=True).split())
    for part in ("SM clock of host-c gpu 3", "thp-always", "agreed with the vendor", "data loading", "565.57.01 [host-b; NVML]",
                 "trace.json.gz", "not read, cut off", "scontrol update NodeName=host-c", "clock of host-c gpu 3 falls"):  # fmt: skip
        assert part in text, part


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_a_table_of_words_keeps_to_the_screen_and_its_numbers_whole(width: int) -> None:
    table = Table(
        name="t",
        title="what it is",
        columns=(Column(name="what"), Column(name="GiB", align="right"), Column(name="where it was read")),
        rows=(
            ("a long name of a thing that is kept " * 3, 12345.5, "in one file and in another " * 4),
            ("b", 1, "c"),
        ),
    )
    lines = [plain(line) for line in table_lines(table, indent="  ", width=width)]
    assert max(cell_len(line) for line in lines) <= width
    assert "12,346" in lines[2]
    assert "…" in lines[2]
    assert lines[3].split() == ["b", "1", "c"]


def test_equal_columns_give_way_alike() -> None:
    words = "words that go on and on, much longer than any screen is wide, until they end"
    table = Table(name="t", title="t", columns=(Column(name="a"), Column(name="b")), rows=((words, words),))
    line = plain(table_lines(table, indent="", width=60)[2])
    first, second = line.split("…")[:2]
    assert abs(len(first) - len(second.strip())) <= 3


def test_the_first_column_names_the_row_and_gives_way_last() -> None:
    name, remark = "selective checkpointing + tp", "words that go on and on until they end"
    table = Table(
        name="t",
        title="t",
        columns=(Column(name="change"), Column(name="GiB", align="right"), Column(name="costs")),
        rows=((name, 12, remark),),
    )
    line = plain(table_lines(table, indent="", width=50)[2])
    assert line.startswith(f"{name}   12  words that go")
    assert cell_len(line) <= 50
    narrow = plain(table_lines(table, indent="", width=36)[2])
    assert cell_len(narrow) <= 36
    assert narrow.startswith("selective")


@pytest.mark.parametrize("width", range(40, 61))
def test_a_cut_text_keeps_to_the_screen(width: int) -> None:
    lines = short_lines(
        "words of many lengths, some longer than others, in a sentence without an end " * 3, width
    )
    assert len(lines) == 2
    assert plain(lines[-1]).endswith(" …")
    assert max(cell_len(plain(line)) for line in lines) <= width


def test_a_fact_that_was_not_measured_says_why() -> None:
    assert "not measured: dmesg: Operation not permitted" in render_text(seal(all_clear()))


def test_colour_is_only_colour() -> None:
    report = seal(slow_gpu())
    coloured = render_terminal(report, color=True)
    assert "\x1b[1;31mcritical" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render_terminal(report)


def test_the_plain_renderer_needs_no_console_of_rich() -> None:
    import subprocess

    code = (
        "import sys; from report.builders import slow_gpu; from distdoctor.report.render.terminal import render_terminal\n"
        "render_terminal(slow_gpu()); print([m for m in sys.modules if m in ('rich.console', 'jinja2', 'torch', 'numpy')])"
    )
    path = [each for each in sys.path if each]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(path)},
        check=True,
    )
    assert done.stdout.strip() == "[]"


# --- every renderer ---


@pytest.mark.parametrize("form", PEOPLE)
@pytest.mark.parametrize("name", REPORTS)
def test_no_renderer_promises_health(form: str, name: str) -> None:
    assert "healthy" not in PEOPLE[form](sealed(REPORTS[name])).lower()


@pytest.mark.parametrize("form", PEOPLE)
def test_hostile_text_is_shown_and_not_obeyed(form: str) -> None:
    text = PEOPLE[form](seal(hostile()))
    for unseen in ("\x1b", "\u202e", "\u200b", "\x00"):
        assert unseen not in text
    if form in ("markdown", "html"):
        assert "<script" not in text.lower()
    assert "49" not in re.sub(r"[0-9a-f]{12,}", "", text) or "{{ 7" in text


@pytest.mark.once
@fuzzy
@given(reports)
def test_no_renderer_fails_or_lets_an_escape_through(report: Report) -> None:
    sealed = seal(report)
    for render in (*PEOPLE.values(), render_one_line, render_json):
        text = render(sealed)
        assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", text) is None
    assert "<script" not in render_html(sealed)


# --- markdown ---


def heading(markdown: str) -> str:
    return markdown[: markdown.index("<details>")] if "<details>" in markdown else markdown


@pytest.mark.parametrize("name", REPORTS)
def test_markdown_is_complete_in_its_first_4_kb_and_bounded(name: str) -> None:
    markdown = render_markdown(sealed(REPORTS[name]))
    assert len(markdown) < MAX_CHARS
    assert len(heading(markdown).encode()) < HEAD_BYTES
    assert markdown.count("<details>") == markdown.count("</details>")


@pytest.mark.once
@fuzzy
@given(reports)
def test_markdown_stays_bounded_for_any_report(report: Report) -> None:
    markdown = render_markdown(seal(report))
    assert len(markdown) < MAX_CHARS
    assert len(heading(markdown).encode()) < HEAD_BYTES


@pytest.mark.once
def test_markdown_of_ten_thousand_hosts_counts_what_it_leaves_out() -> None:
    markdown = render_markdown(sealed(many_hosts))
    assert "## Findings: 3 critical, 497 warning" in markdown
    assert re.search(r"- … and \d+ more, below", markdown)
    assert re.search(r"… and \d+ more rows", markdown)
    assert re.search(r"… and \d+ more findings", markdown)


def test_each_team_has_a_block_with_its_own_facts() -> None:
    markdown = render_markdown(seal(slow_gpu()))
    block = markdown[markdown.index("<summary>For hardware") :].partition("</details>")[0]
    for part in ("rank 19 is 31 % slower", "gpu 3 (0000:3B:00.0, NVIDIA H100)", "slurm job 4711", "1065 MHz", "expected 1755 MHz", "nvidia-smi -q"):  # fmt: skip
        assert part in block
    assert "565.57.01" not in block


def test_ignored_findings_are_counted_and_not_ranked() -> None:
    markdown = render_markdown(seal(slow_gpu()))
    assert "1 ignored" in heading(markdown)
    assert "transparent huge pages" not in heading(markdown)
    assert "agreed with the vendor" in markdown


# --- html ---


def test_every_series_is_drawn_and_tabled() -> None:
    page = render_html(seal(slow_gpu()))
    assert page.count("<svg ") == page.count("<figure>") == page.count("as a table, ") == 3
    assert page.count("<polyline ") == 3  # one curve is broken by a missing value
    assert page.count("<rect ") == 32 + 16


def test_the_accused_bar_stands_out_and_bars_start_at_zero() -> None:
    chart = chart_of(slow_gpu().series[0])
    assert chart is not None
    hot = [bar for bar in chart.bars if bar.hot]
    assert [bar.title for bar in hot] == ["rank 19: 412 ms"]
    assert hot[0].height / chart.bars[0].height == pytest.approx(412 / 310, rel=0.01)


def test_many_bars_are_joined_without_losing_the_accused() -> None:
    series = replace(many_hosts(num_findings=1).series[0], hot=(5_001,))
    chart = chart_of(series)
    assert chart is not None
    assert len(chart.bars) <= MAX_BARS
    assert [bar.title for bar in chart.bars if bar.hot] == ["host node05001: 48 GB/s"]
    assert "neighbours" in chart.note


def test_a_series_without_numbers_has_no_chart() -> None:
    assert chart_of(replace(slow_gpu().series[0], values=((None,) * 32,))) is None
    assert chart_of(replace(slow_gpu().series[0], values=())) is None


@pytest.mark.parametrize("value", [5e-324, 1e-310, 0.0, -1.0, 1e300])
def test_a_number_of_any_size_is_drawn_within_the_chart(value: float) -> None:
    for series in slow_gpu().series[:2]:
        chart = chart_of(replace(series, x=(1, 2), values=((value, value),)))
        assert chart is not None
        assert all(0 <= bar.y <= bar.y + bar.height <= chart.height for bar in chart.bars)


# --- one line ---


@pytest.mark.once
@fuzzy
@given(reports)
def test_one_line_is_one_short_line(report: Report) -> None:
    line = render_one_line(seal(report))
    assert len(line) <= 80
    assert "\n" not in line


def test_one_line_tells_state_host_what_drain_id() -> None:
    assert (
        render_one_line(seal(slow_gpu()))
        == "critical host-c rank 19 is 31 % slower than~ drain=yes straggler-clock"
    )


def test_equal_hosts_give_equal_lines_but_for_the_host() -> None:
    def line(host: str) -> str:
        report = all_clear()
        return render_one_line(replace(report, subject=replace(report.subject, hosts=(host,)))).replace(
            f" {host} ", " HOST "
        )

    assert line("b") == line("node0000000017") == line("gpu-17")


def test_one_line_of_a_fully_qualified_host_is_its_short_name() -> None:
    report = replace(all_clear(), subject=replace(all_clear().subject, hosts=("gpu-17.cluster.example.com",)))
    assert render_one_line(report).startswith("ok gpu-17 ")


def test_an_unanswered_report_does_not_say_that_a_host_may_stay() -> None:
    report = replace(all_clear(), verdict=replace(all_clear().verdict, status=Status.UNKNOWN))
    assert "drain=unknown" in render_one_line(report)
