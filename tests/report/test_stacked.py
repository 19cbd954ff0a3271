"""Bars made of parts: where they stand, what stands out, how they read as text, and whether colours can be told apart."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from distdoctor.report.codec import decode, encode
from distdoctor.report.model import Report, Series
from distdoctor.report.reading import hot_rows, series_rows
from distdoctor.report.render import html as html_module
from distdoctor.report.render.charts import chart_of
from distdoctor.report.render.html import render_html
from distdoctor.report.render.markdown import render_markdown
from distdoctor.report.render.shapes import Bar, Chart
from distdoctor.report.render.stacked import MAX_STACKS
from distdoctor.report.render.stacked_text import part_letters
from distdoctor.report.render.text import render_text
from distdoctor.report.seal import seal
from distdoctor.report.stacks import limit_note, stacks
from report.builders import memory_plan

PLAN = memory_plan().series[0]


def drawn(series: Series) -> Chart:
    chart = chart_of(series)
    assert chart is not None
    return chart


def parts(chart: Chart) -> list[list[Bar]]:
    """The parts that are drawn, bar by bar from the top."""
    rows: dict[float, list[Bar]] = {}
    for bar in chart.bars:
        if bar.part is not None:
            rows.setdefault(bar.y, []).append(bar)
    return [rows[y] for y in sorted(rows)]


def frames(chart: Chart) -> list[Bar]:
    return [bar for bar in chart.bars if bar.hot]


def with_bars(*bars: tuple[float | None, ...], limit: float | None = None) -> Series:
    """Bars called a, b, …, each given by its parts."""
    names = tuple(f"part {number}" for number in range(len(bars[0])))
    return Series(
        name="s", title="s", kind="stacked", y_label="GiB", x=tuple("abcdefghijklmnopqrstuvwxyz"[: len(bars)]),
        names=names, values=tuple(zip(*bars, strict=True)), limit=limit,
    )  # fmt: skip


# --- where they stand ---


def test_parts_follow_one_another_and_add_up_to_the_bar() -> None:
    chart = drawn(PLAN)
    for row, stack in zip(parts(chart), stacks(PLAN), strict=True):
        for left, right in itertools.pairwise(row):
            assert right.x == pytest.approx(left.x + left.width)
        assert stack.total is not None
        scale = sum(bar.width for bar in parts(chart)[0]) / 159.628
        assert sum(bar.width for bar in row) == pytest.approx(stack.total * scale, abs=0.2)


def test_the_bars_and_their_words_stay_within_the_picture() -> None:
    chart = drawn(PLAN)
    assert all(bar.x >= 0 and bar.x + bar.width <= chart.width for bar in chart.bars)
    assert all(bar.y >= 0 and bar.y + bar.height <= chart.height for bar in chart.bars)
    for label in chart.labels:
        half = len(label.text) * 6.0
        begin = {"start": label.x, "middle": label.x - half / 2, "end": label.x - half}[label.anchor]
        assert begin >= 0
        assert begin + half <= chart.width


def test_the_total_stands_at_the_end_of_each_bar_and_the_label_before_it() -> None:
    chart = drawn(PLAN)
    for row, stack in zip(parts(chart), stacks(PLAN), strict=True):
        beside = [label for label in chart.labels if abs(label.y - row[0].y - 13) < 2]
        label, total = sorted(beside, key=lambda each: each.x)
        assert stack.label.startswith(label.text.rstrip("…"))
        assert (label.anchor, total.anchor) == ("end", "start")
        assert label.x < row[0].x
        if stack.label != "ZeRO-1":
            assert total.x == pytest.approx(row[-1].x + row[-1].width + 6, abs=0.2)


def test_the_line_of_the_limit_strikes_no_number_through() -> None:
    for share in range(60, 100):
        chart = drawn(with_bars((10.0,), (share / 10,), limit=10.0))
        (line,) = [each.x for each in chart.uprights if each.is_limit]
        (total,) = [label for label in chart.labels if label.anchor == "start" and label.text != "10"]
        assert not total.x <= line <= total.x + 6.0 * len(total.text)


def test_the_line_of_the_limit_stands_where_a_bar_of_that_length_ends() -> None:
    chart = drawn(with_bars((30.0, 10.0), (50.0, 30.0), limit=40.0))
    (line,) = [each for each in chart.uprights if each.is_limit]
    end = parts(chart)[0][-1]
    assert line.x == pytest.approx(end.x + end.width)
    assert line.top < end.y
    assert line.bottom > parts(chart)[1][0].y


def test_a_limit_far_beyond_the_bars_is_still_in_the_picture() -> None:
    chart = drawn(with_bars((1.0, 2.0), limit=141.0))
    (line,) = [each for each in chart.uprights if each.is_limit]
    assert parts(chart)[0][-1].x < line.x <= chart.width
    assert any(label.text == "limit 141 GiB" for label in chart.labels)


def test_without_a_limit_there_is_no_line_and_nothing_is_hot() -> None:
    chart = drawn(replace(PLAN, limit=None, limit_label=""))
    assert not any(each.is_limit for each in chart.uprights)
    assert not frames(chart)
    assert limit_note(replace(PLAN, limit=None)) == ""


# --- what stands out ---


def test_a_bar_beyond_the_limit_is_framed_and_says_by_how_much() -> None:
    chart = drawn(PLAN)
    (frame,) = frames(chart)
    row = parts(chart)[0]
    assert frame.x < row[0].x
    assert frame.x + frame.width > row[-1].x + row[-1].width
    assert {label.text for label in chart.labels if label.hot} == {"DDP", "159.6, 80.53 over"}
    assert hot_rows(PLAN) == {0}
    assert limit_note(PLAN) == "NVIDIA H100 80GB HBM3: 79.1 GiB; beyond it: DDP (by 80.53)"


def test_a_bar_that_just_fills_the_limit_is_not_beyond_it() -> None:
    series = with_bars((0.1, 0.2), limit=0.3)  # 0.1 + 0.2 is a little more than 0.3
    assert hot_rows(series) == frozenset()
    assert limit_note(series) == "limit 0.3 GiB; no bar is beyond it"


def test_an_accused_bar_stands_out_without_a_limit() -> None:
    series = replace(with_bars((1.0,), (2.0,)), hot=(1,))
    assert [label.text for label in drawn(series).labels if label.hot] == ["b", "2"]
    assert hot_rows(series) == {1}


def test_what_is_not_known_in_part_is_at_least_the_rest_and_never_within_the_limit() -> None:
    series = with_bars((4.0, None), (1.0, 2.0), (None, None), limit=5.0)
    assert [row[1] for row in series_rows(series)[1]] == ["≥ 4", "3", "-"]
    assert limit_note(series) == "limit 5 GiB; no bar is known to be beyond it"
    chart = drawn(series)
    assert {"≥ 4", "not known"} <= {label.text for label in chart.labels}
    assert "not known" in chart.note


def test_what_is_known_alone_can_be_beyond_the_limit() -> None:
    assert hot_rows(with_bars((6.0, None), limit=5.0)) == {0}


# --- many, few, small ---


def test_zeros_have_no_parts_and_are_told_as_zero() -> None:
    chart = drawn(with_bars((0.0, 0.0), (0.0, 0.0)))
    assert not chart.bars
    assert not chart.legend
    assert [label.text for label in chart.labels if label.anchor == "start"] == ["0", "0"]


def test_very_small_parts_do_not_move_the_others() -> None:
    chart = drawn(with_bars((40.0, 1e-9, 1e-9, 40.0)))
    (row,) = parts(chart)
    assert [bar.part for bar in row] == [0, 3]
    assert row[0].width == pytest.approx(row[1].width, abs=0.11)
    assert [key.name for key in chart.legend] == ["part 0", "part 1", "part 2", "part 3"]


def test_twenty_bars_of_ten_parts_are_all_drawn() -> None:
    series = with_bars(*[tuple(float(1 + (bar + part) % 5) for part in range(10)) for bar in range(20)])
    assert [len(row) for row in parts(drawn(series))] == [10] * 20
    assert [key.style for key in drawn(series).legend] == list(range(10))


def test_of_very_many_bars_those_beyond_the_limit_are_drawn() -> None:
    values = tuple(90.0 if bar == 150 else 1.0 for bar in range(200))
    series = Series(name="s", title="s", kind="stacked", x=tuple(range(200)), values=(values,), limit=80.0)
    chart = drawn(series)
    assert len(parts(chart)) == MAX_STACKS
    assert len(frames(chart)) == 1
    assert f"{MAX_STACKS} of 200 bars" in chart.note


def test_labels_and_parts_that_are_missing_are_named_or_left_empty() -> None:
    series = Series(name="s", title="s", kind="stacked", x=("a",), values=((1.0, 2.0), (3.0,)))
    assert series_rows(series) == (
        ["bar", "total", "part 1", "part 2"],
        [("a", "4", "1", "3"), ("", "≥ 2", "2", "-")],
    )
    assert len(parts(drawn(series))) == 2


def test_a_series_without_numbers_has_no_picture() -> None:
    assert chart_of(with_bars((None, None), limit=3.0)) is None
    assert chart_of(Series(name="s", title="s", kind="stacked")) is None


# --- forms ---


def report_of(*series: Series) -> Report:
    return seal(replace(memory_plan(), series=series))


def test_the_page_draws_it_and_shows_the_table() -> None:
    page = render_html(report_of(PLAN))
    assert page.count('class="frame"') == 1
    assert page.count('class="limit"') == 1
    assert page.count('<svg class="key"') == 9
    assert '<tr class="hot"><td>DDP</td><td class="number">159.6</td>' in page
    assert "<title>DDP, activations: 31.2 GiB</title>" in page


def test_the_text_draws_letters_and_a_bar_of_at_most_40_cells() -> None:
    lines = render_text(report_of(PLAN)).splitlines()
    start = next(index for index, line in enumerate(lines) if "Where the memory" in line)
    picture = lines[start + 1 : start + 5]
    assert len({line.index("|") for line in picture}) == 1
    for line in picture:
        assert len(line) <= 80
        assert len(line.split("  ")[-1].strip()) <= 40
    assert re.fullmatch(r"  DDP +159\.6  P+G+O+\|O+A+L+", picture[0])
    text = "\n".join(lines[start:])
    assert "| NVIDIA H100 80GB HBM3: 79.1 GiB; beyond it: DDP (by 80.53)" in text
    assert "P parameters   G gradients   O optimizer states" in text


def test_every_part_has_a_letter_of_its_own() -> None:
    assert part_letters(["parameters", "gathered parameters", "gradients", "2x", ""]) == list("PGRXA")
    many = part_letters([f"part {number}" for number in range(50)])
    assert len(set(many)) == 50


def test_markdown_tells_the_limit_above_the_table() -> None:
    text = render_markdown(report_of(PLAN))
    assert "beyond it: DDP (by 80.53)\n\n| strategy | total | parameters |" in text
    assert "| HSDP 8 x 8, selective checkpointing | ≥ 29.87 | 1.87 |" in text


def test_reports_without_the_fields_of_limits_are_read() -> None:
    report = replace(memory_plan(), series=(replace(PLAN, kind="bars", limit=None, limit_label=""),))
    data = encode(report)
    assert b'"limit' not in data
    assert decode(data, "old.json").series[0].limit is None


# --- colours ---

# What protanopes and deuteranopes see of linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
SIGHT = {
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}  # fmt: skip
Rgb = tuple[float, float, float]


def themes() -> dict[str, dict[str, Rgb]]:
    """The colours of the style sheet in linear RGB, light and dark."""
    css = (Path(html_module.__file__).parent / "templates" / "style.css").read_text()
    light, dark = css.split("@media (prefers-color-scheme: dark)")
    return {"light": colours(light), "dark": colours(dark)}


def colours(css: str) -> dict[str, Rgb]:
    found = {}
    for name, digits in re.findall(r"--(card|p\d): #([0-9a-f]{3}(?:[0-9a-f]{3})?);", css):
        pairs = re.findall("..", digits) if len(digits) == 6 else [each * 2 for each in digits]
        red, green, blue = (linear(int(pair, 16) / 255) for pair in pairs)
        found[name] = (red, green, blue)
    return found


def linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def times(matrix: tuple[Rgb, Rgb, Rgb], colour: Rgb) -> Rgb:
    a, b, c = (sum(x * y for x, y in zip(row, colour, strict=True)) for row in matrix)
    return (a, b, c)


def luminance(colour: Rgb) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def oklab(colour: Rgb) -> Rgb:
    """Coordinates in which distances are as they look; 0.02 is just seen (Ottosson 2020)."""
    cones = times(
        ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566), (0.0883024619, 0.2817188376, 0.6299787005)),
        colour,
    )  # fmt: skip
    roots = tuple(max(each, 0.0) ** (1 / 3) for each in cones)
    return times(
        ((0.2104542553, 0.793617785, -0.0040720468), (1.9779984951, -2.428592205, 0.4505937099), (0.0259040371, 0.7827717662, -0.808675766)),
        (roots[0], roots[1], roots[2]),
    )  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_parts_stand_out_from_the_card(theme: str) -> None:
    found = themes()[theme]
    for number in range(8):
        low, high = sorted((luminance(found[f"p{number}"]), luminance(found["card"])))
        assert (high + 0.05) / (low + 0.05) >= 3, f"p{number}"  # WCAG 2.2, 1.4.11: parts of graphics


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_parts_can_be_told_apart(theme: str, sight: str) -> None:
    found = themes()[theme]
    seen = [oklab(times(SIGHT[sight], found[f"p{number}"])) for number in range(8)]
    for first in range(8):
        for second in range(first):
            distance = sum((a - b) ** 2 for a, b in zip(seen[first], seen[second], strict=True)) ** 0.5
            # Neighbours touch and need more.
            assert distance >= (0.16 if first - second == 1 else 0.08), (first, second)
