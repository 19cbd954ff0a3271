"""Stacked areas over time: where they stand, what is told about spans, the peak and the limit, and odd series."""

from __future__ import annotations

import itertools
import re

import pytest
from msgspec.structs import replace

from distdoctor.report.codec import decode, encode
from distdoctor.report.model import Report, Series
from distdoctor.report.reading import hot_rows, series_note, series_rows
from distdoctor.report.render import areas as areas_module
from distdoctor.report.render.charts import chart_of
from distdoctor.report.render.html import render_html
from distdoctor.report.render.markdown import render_markdown
from distdoctor.report.render.shapes import Area, Chart, Label
from distdoctor.report.render.text import render_text
from distdoctor.report.seal import seal
from distdoctor.report.spans import highest, span_peaks
from report.builders import HOSTILE, memory_plan

TIMELINE = memory_plan().series[1]
# Pixels that one character of a label takes at most.
CHARACTER = 6.0


def drawn(series: Series) -> Chart:
    chart = chart_of(series)
    assert chart is not None
    return chart


def areas_of(
    *parts: tuple[float | None, ...], x: tuple[float, ...] = (), limit: float | None = None
) -> Series:
    """Parts over x, or over 0, 1, 2 …"""
    return Series(
        name="s", title="s", kind="areas", y_label="GiB", x=x or tuple(range(len(parts[0]))),
        names=tuple(f"part {number}" for number in range(len(parts))), values=parts, limit=limit,
    )  # fmt: skip


def corners(area: Area) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (each.split(",") for each in area.outline.split())]


def heights_at(area: Area, x: float) -> tuple[float, float]:
    """The upper and the lower edge of an outline."""
    found = corners(area)
    turn = next(index for index in range(1, len(found)) if found[index][0] <= found[index - 1][0])
    return between(found[:turn], x), between(found[: turn - 1 : -1], x)


def between(edge: list[tuple[float, float]], x: float) -> float:
    (x0, y0), (x1, y1) = next(pair for pair in itertools.pairwise(edge) if pair[0][0] <= x <= pair[1][0])
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def extent(label: Label) -> tuple[float, float]:
    width = len(label.text) * CHARACTER
    begin = {"start": label.x, "middle": label.x - width / 2, "end": label.x - width}[label.anchor]
    return begin, begin + width


def report_of(*series: Series) -> Report:
    return seal(replace(memory_plan(), series=series))


# --- where they stand ---


def test_the_parts_stand_on_one_another_and_add_up_to_the_total() -> None:
    chart = drawn(areas_of((1.0, 3.0, 2.0), (2.0, 1.0, 4.0), (1.0, 2.0, 1.0)))
    zero, top = chart.grid[0], chart.grid[-1]
    scale = (zero - top) / 8  # the axis ends at 8
    xs = sorted({x for x, _ in corners(chart.areas[0])})
    assert len(xs) == 3
    for x, total in zip(xs, (4.0, 6.0, 7.0), strict=True):
        sides = [heights_at(area, x) for area in chart.areas]
        assert sides[0][1] == zero
        for (upper, _), (_, lower) in itertools.pairwise(sides):
            assert lower == pytest.approx(upper)
        assert zero - sides[-1][0] == pytest.approx(total * scale, abs=0.11)


def test_a_part_that_is_never_there_is_neither_drawn_nor_in_the_legend() -> None:
    chart = drawn(areas_of((1.0, 1.0), (0.0, 0.0), (2.0, 1.0)))
    assert [area.part for area in chart.areas] == [0, 2]
    assert [key.name for key in chart.legend] == ["part 0", "part 2"]


def test_level_stretches_need_no_corners() -> None:
    (area,) = drawn(areas_of((5.0,) * 200)).areas
    assert len(corners(area)) == 4


def test_everything_stays_within_the_picture() -> None:
    chart = drawn(TIMELINE)
    for area in chart.areas:
        assert all(0 <= x <= chart.width and 0 <= y <= chart.height for x, y in corners(area))
    for label in chart.labels:
        begin, end = extent(label)
        assert 0 <= begin <= end <= chart.width
        assert 0 <= label.y <= chart.height


def test_places_follow_the_numbers_where_no_span_is_short() -> None:
    chart = drawn(areas_of((1.0, 2.0, 1.0, 3.0), x=(0, 10, 20, 100)))
    xs = sorted({x for x, _ in corners(chart.areas[0])})
    assert (xs[1] - xs[0]) / (xs[-1] - xs[0]) == pytest.approx(0.1, abs=0.001)
    assert {"0", "20", "100"} <= {label.text for label in chart.labels}
    assert chart.note == ""


@pytest.mark.parametrize("x", [("a", "b", "c"), (3, 2, 1), (1, None, 2), (1, 2)])
def test_where_x_does_not_grow_the_points_are_counted(x: tuple[object, ...]) -> None:
    series = replace(areas_of((1.0, 2.0, 3.0)), x=x)
    assert drawn(series).areas == drawn(areas_of((1.0, 2.0, 3.0))).areas


# --- spans ---


def test_bands_follow_one_another_and_every_second_one_is_shaded() -> None:
    chart = drawn(TIMELINE)
    assert len(chart.bands) == 9
    for left, right in itertools.pairwise(chart.bands):
        assert right.x == pytest.approx(left.x + left.width, abs=0.11)
        assert left.shade != right.shade
    assert chart.bands[0].x == chart.left
    assert chart.bands[-1].x + chart.bands[-1].width == pytest.approx(chart.right)


def test_names_of_spans_do_not_touch_and_stay_inside_of_their_bands() -> None:
    chart = drawn(TIMELINE)
    (row,) = {label.y for label in chart.labels if label.text == "backward"}
    names = [label for label in chart.labels if label.y == row]
    assert [label.text for label in names if label.text.endswith("…")] == ["init…", "opti…", "opti…"]
    assert [label.title for label in names if label.text == "opti…"] == [
        "step 1: optimizer step",
        "step 2: optimizer step",
    ]
    for left, right in itertools.pairwise(names):
        assert extent(left)[1] < extent(right)[0]
    for label in names:
        assert any(b.x <= extent(label)[0] and extent(label)[1] <= b.x + b.width for b in chart.bands)


def test_what_neighbours_share_is_told_once_above_them() -> None:
    chart = drawn(TIMELINE)
    steps = [label for label in chart.labels if label.text in ("step 1", "step 2")]
    assert len(steps) == 2
    assert steps[0].y == steps[1].y < min(label.y for label in chart.labels if label.text == "loss")


def test_a_short_span_is_wide_enough_to_be_seen_and_that_is_said() -> None:
    chart = drawn(TIMELINE)
    loss = next(
        band for band in chart.bands if band.title.startswith("peak 58.4 GiB") or "loss" in band.title
    )
    assert loss.width >= areas_module.MIN_SPAN
    assert "short spans are drawn wider than they are" in chart.note
    assert "10,000" not in {label.text for label in chart.labels}


def test_names_that_find_no_room_are_left_out_and_their_bands_tell_them() -> None:
    marks = tuple((index, f"step {index}: a phase") for index in range(100))
    chart = drawn(replace(areas_of((1.0,) * 100), marks=marks))
    assert len(chart.bands) == 100
    assert chart.bands[57].title == "peak 1 GiB, step 57: a phase: part 0 1"
    assert not [label for label in chart.labels if "phase" in label.text and "peak" not in label.text]


def test_marks_out_of_order_or_outside_do_no_harm() -> None:
    series = replace(areas_of((1.0, 2.0, 3.0)), marks=((2, "c"), (-5, "no"), (9, "no"), (1, "a"), (1, "b")))
    assert [(span.words, span.first, span.end) for span in span_peaks(series)] == [
        ("", 0, 1),
        ("b", 1, 2),
        ("c", 2, 3),
    ]
    assert len(drawn(series).bands) == 3


# --- the peak and the limit ---


def test_the_peak_has_a_dot_and_is_told_with_its_span() -> None:
    chart = drawn(TIMELINE)
    top = highest(span_peaks(TIMELINE))
    assert top is not None
    assert (top.at, top.words, top.peak.total) == (14, "step 2: backward", pytest.approx(69.932))
    assert chart.peak is not None
    assert chart.peak.title == "peak 69.93 GiB, step 2: backward"
    assert min(y for area in chart.areas for _, y in corners(area)) == chart.peak.y
    assert any(label.text == chart.peak.title for label in chart.labels)


def test_the_line_of_the_limit_stands_at_its_height_and_strikes_nothing_through() -> None:
    for peak in range(40, 160):
        for first in (True, False):
            values = (float(peak), 1.0, 1.0) if first else (1.0, 1.0, float(peak))
            series = replace(areas_of(values, limit=80.0), limit_label="a GPU with a long name: 80.0 GiB")
            chart = drawn(series)
            (caption,) = [label for label in chart.labels if label.text.startswith("a GPU")]
            (told,) = [label for label in chart.labels if label.text.startswith("peak")]
            assert chart.level is not None
            assert not told.y - 10 < chart.level < told.y + 1
            assert caption.y < chart.level
            overlap = extent(told)[0] < extent(caption)[1] and extent(caption)[0] < extent(told)[1]
            assert not (overlap and abs(told.y - caption.y) < 12)
            assert chart.is_hot == told.hot == (peak > 80)


def test_spans_beyond_the_limit_stand_out() -> None:
    series = replace(areas_of((1.0, 9.0, 2.0), limit=5.0), marks=((0, "a"), (1, "b"), (2, "c")))
    assert hot_rows(series) == {1}
    assert series_note(series) == "limit 5 GiB, the peak is 4 beyond it; 3 points in the JSON report"


def test_a_limit_far_above_does_not_press_the_areas_flat() -> None:
    chart = drawn(areas_of((1.0, 2.0), limit=80.0))
    assert chart.level is None
    assert chart.note == "limit 80 GiB, far above the picture"
    assert chart.peak is not None
    assert chart.peak.y < chart.height / 2


def test_what_is_not_known_is_never_said_to_be_within_the_limit() -> None:
    series = areas_of((1.0, 2.0), (None, 1.0), limit=5.0)
    assert (
        series_note(series)
        == "limit 5 GiB, the peak is not known to be beyond it; 2 points in the JSON report"
    )
    assert "not known are drawn as zero" in drawn(series).note
    assert series_rows(areas_of((1.0,), (None,)))[1] == [("", "≥ 1", "part 0 1")]


# --- few, many, large ---


def test_a_series_without_points_or_numbers_has_no_picture() -> None:
    for series in (Series(name="s", title="s", kind="areas"), areas_of((None, None)), areas_of(())):
        assert chart_of(series) is None
        assert series_note(series).endswith("in the JSON report")
        render_text(report_of(series))
        render_markdown(report_of(series))


@pytest.mark.parametrize("x", [(7.0,), (7.0, 7.0)])
def test_a_single_moment_is_as_wide_as_the_picture(x: tuple[float, ...]) -> None:
    chart = drawn(areas_of((2.0,) * len(x), (1.0,) * len(x), x=x))
    for area in chart.areas:
        assert {place for place, _ in corners(area)} == {chart.left, chart.right}
    assert chart.description.startswith("peak 3 GiB: part 0 2")


@pytest.mark.parametrize("value", [5e-324, 0.0, -1.0, 1.7e308])
def test_a_number_of_any_size_is_drawn_within_the_picture(value: float) -> None:
    chart = drawn(areas_of((value, value), (value, 1.0), x=(-1.7e308, 1.7e308)))
    for area in chart.areas:
        assert all(0 <= x <= chart.width and 0 <= y <= chart.height for x, y in corners(area))


@pytest.mark.once
def test_very_many_points_are_thinned_and_keep_the_peak() -> None:
    values = tuple(50.0 if index == 77_777 else float(index % 7) for index in range(100_000))
    chart = drawn(areas_of(values))
    assert len(chart.areas[0].outline.split()) < 2_500
    assert chart.peak is not None
    assert (chart.peak.x, chart.peak.y) in corners(chart.areas[0])


# --- forms ---


def test_the_page_draws_it_describes_it_and_shows_a_row_a_span() -> None:
    page = render_html(report_of(TIMELINE))
    assert page.count("<polygon ") == 5
    assert page.count('class="limit"') == 1
    assert page.count('class="peak"') == 1
    assert '<svg class="wide" viewBox="0 0 800 312" role="img" aria-label="Allocated over two steps">' in page
    assert "<desc>peak 69.93 GiB, step 2: backward: activations 31.31; NVIDIA H100" in page
    assert "as a table, 9 rows" in page
    assert '<td>step 2: loss</td><td class="number">62.13</td>' in page
    assert "18 points in the JSON report" in page


def test_the_page_of_a_full_timeline_stays_small() -> None:
    values = tuple(tuple(float((index * part) % 17 + 1) for index in range(240)) for part in range(1, 10))
    full, empty = render_html(report_of(areas_of(*values))), render_html(report_of())
    assert len(full) - len(empty) < 64_000


def test_the_text_has_a_row_a_span_of_at_most_80_cells() -> None:
    lines = render_text(report_of(TIMELINE)).splitlines()
    start = next(index for index, line in enumerate(lines) if "Allocated over two steps (GiB)" in line)
    table = lines[start : start + 12]
    assert max(map(len, table)) <= 80
    assert re.fullmatch(r"  step 2: backward +69\.93  activations 31\.31 +█+", table[9])
    assert (
        table[11]
        .strip()
        .startswith("NVIDIA H100 80GB HBM3: 79.1 GiB, 9.168 above the peak; 18 points in the")
    )


def test_markdown_has_a_row_a_span() -> None:
    text = render_markdown(report_of(TIMELINE))
    assert "| span | peak | largest part |" in text
    assert "| step 1: optimizer step | 14.96 | optimizer states 7.479 |" in text
    assert text.count("| step ") == 8


def test_hostile_words_are_shown_and_not_obeyed() -> None:
    series = replace(
        areas_of((1.0, 2.0), limit=1.5), title=HOSTILE, names=(HOSTILE,), y_label=HOSTILE, x_label=HOSTILE,
        limit_label=HOSTILE, marks=((0, HOSTILE), (1, f"{HOSTILE}: {HOSTILE}")),
    )  # fmt: skip
    for render in (render_html, render_markdown, render_text):
        text = render(report_of(series))
        assert "\x1b" not in text
        assert render is render_text or "<script" not in text.lower()


def test_secrets_in_names_of_spans_are_masked() -> None:
    report = report_of(replace(TIMELINE, marks=((0, "token=hf_abcdefghijklmnopqrstuvwxyz0123"),)))
    assert "hf_abcdefghij" not in encode(report).decode()


def test_marks_survive_the_json() -> None:
    report = report_of(TIMELINE)
    assert decode(encode(report), "r.json").series == report.series
