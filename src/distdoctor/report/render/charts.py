"""Where the bars, points and cells of a chart stand. The HTML template draws them; nothing here knows HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distdoctor.report.model import Scalar, Series
from distdoctor.report.names import scalar_text
from distdoctor.report.render.areas import areas_chart
from distdoctor.report.render.axes import CHARACTER, MAX_LABEL, axis, rounded, short, thinned
from distdoctor.report.render.shapes import WIDTH, Bar, Chart, Curve, Key, Label, Point
from distdoctor.report.render.stacked import stacked_chart
from distdoctor.units import format_bytes

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 40
_PLOT = WIDTH - _LEFT - _RIGHT
_BARS_HEIGHT = 220
_LINES_HEIGHT = 260

# One bar takes at least a pixel or two; more are joined by their largest value.
MAX_BARS = 320
MAX_HEAT_ROWS = 96
MAX_HEAT_COLUMNS = 256
NUM_COLOURS = 6
NUM_SHADES = 7
# A range wider than this is drawn on a logarithmic axis.
_LOG_RATIO = 100


def chart_of(series: Series) -> Chart | None:
    """The picture of `series`; None when it holds no number."""
    if not any(value is not None for row in series.values for value in row):
        return None
    if series.kind == "stacked":
        return stacked_chart(series)
    if series.kind == "areas":
        return areas_chart(series)
    if series.kind == "bars":
        return _bars(series) if any(value is not None for value in series.values[0]) else None
    return _lines(series) if series.kind == "lines" else _heat(series)


# --- bars ---------------------------------------------------------------------------------------------------


def _bars(series: Series) -> Chart:
    values = list(series.values[0])
    labels = [scalar_text(each) for each in series.x[: len(values)]] + [""] * (len(values) - len(series.x))
    groups = _grouped(values, labels, set(series.hot))
    top, ticks = axis(max((value for value, _, _ in groups if value is not None), default=0.0))
    height = _BARS_HEIGHT - _TOP - _BOTTOM
    step = _PLOT / len(groups)
    bars = tuple(
        Bar(
            x=rounded(_LEFT + index * step + step * 0.08),
            y=rounded(_TOP + height * (1 - max(value, 0) / top)),
            width=rounded(max(step * 0.84, 0.6)),
            height=rounded(height * max(value, 0) / top),
            title=f"{series.x_label} {label}: {scalar_text(value)} {series.y_label}".strip(),
            hot=hot,
        )
        for index, (value, label, hot) in enumerate(groups)
        if value is not None
    )
    joined = len(groups) < len(values)
    return Chart(
        kind="bars",
        left=_LEFT,
        right=WIDTH - _RIGHT,
        width=WIDTH,
        height=_BARS_HEIGHT,
        bars=bars,
        grid=tuple(rounded(_TOP + height * (1 - tick / top)) for tick in ticks),
        labels=(
            *_y_labels(ticks, top, height),
            *_x_labels([(label, hot) for _, label, hot in groups], step, _BARS_HEIGHT - _BOTTOM + 16),
            *_axis_names(series, _BARS_HEIGHT),
        ),
        note=f"each bar is the largest of up to {-(-len(values) // MAX_BARS)} neighbours" if joined else "",
    )


def _grouped(
    values: Sequence[float | None], labels: Sequence[str], hot: set[int]
) -> list[tuple[float | None, str, bool]]:
    """At most MAX_BARS bars; neighbours are joined by the accused, else by the largest."""
    size = max(-(-len(values) // MAX_BARS), 1)
    groups = []
    for start in range(0, len(values), size):
        indexes = range(start, min(start + size, len(values)))
        chosen = max(indexes, key=lambda i: (i in hot, -math.inf if (v := values[i]) is None else v))
        groups.append((values[chosen], labels[chosen], chosen in hot))
    return groups


# --- lines --------------------------------------------------------------------------------------------------


def _lines(series: Series) -> Chart:
    places, is_log = _x_places(series.x)
    top, ticks = axis(max((v for row in series.values for v in row if v is not None), default=0.0))
    height = _LINES_HEIGHT - _TOP - _BOTTOM
    curves = tuple(_curve(series, index, places, top, height) for index in range(len(series.values)))
    spacing = _PLOT / max(len(places), 1)
    labels = thinned(
        [(place, _x_text(series, value)) for place, value in zip(places, series.x, strict=False)]
    )
    return Chart(
        kind="lines",
        left=_LEFT,
        right=WIDTH - _RIGHT,
        width=WIDTH,
        height=_LINES_HEIGHT,
        curves=curves,
        grid=tuple(rounded(_TOP + height * (1 - tick / top)) for tick in ticks),
        labels=(
            *_y_labels(ticks, top, height),
            *(Label(x=rounded(x), y=_LINES_HEIGHT - _BOTTOM + 16, text=text) for x, text in labels),
            *_axis_names(series, _LINES_HEIGHT),
        ),
        legend=tuple(Key(name=curve.name, style=curve.colour) for curve in curves) if len(curves) > 1 else (),
        note="logarithmic horizontal axis" if is_log and spacing else "",
    )


def _curve(series: Series, index: int, places: Sequence[float], top: float, height: float) -> Curve:
    name = series.names[index] if index < len(series.names) else f"{series.y_label or 'value'} {index + 1}"
    stretches: list[list[Point]] = [[]]
    for place, x, value in zip(places, series.x, series.values[index], strict=False):
        if value is None:
            stretches.append([])
            continue
        title = f"{name}, {_x_text(series, x)}: {scalar_text(value)} {series.y_label}"
        stretches[-1].append(
            Point(x=rounded(place), y=rounded(_TOP + height * (1 - max(value, 0) / top)), title=title)
        )
    return Curve(
        name=name,
        colour=index % NUM_COLOURS,
        stretches=tuple(" ".join(f"{point.x},{point.y}" for point in each) for each in stretches if each),
        points=tuple(point for each in stretches for point in each),
    )


def _x_places(xs: Sequence[Scalar]) -> tuple[list[float], bool]:
    numbers = [float(x) for x in xs if isinstance(x, int | float) and not isinstance(x, bool)]
    if len(numbers) != len(xs) or len(set(numbers)) < 2:
        step = _PLOT / max(len(xs), 1)
        return [_LEFT + step * (index + 0.5) for index in range(len(xs))], False
    is_log = min(numbers) > 0 and max(numbers) / min(numbers) > _LOG_RATIO
    scaled = [math.log2(number) for number in numbers] if is_log else numbers
    low, high = min(scaled), max(scaled)
    return [_LEFT + 10 + (_PLOT - 20) * (value - low) / (high - low) for value in scaled], is_log


def _x_text(series: Series, value: Scalar) -> str:
    if "bytes" in series.x_label.lower() and isinstance(value, int | float) and not isinstance(value, bool):
        return format_bytes(value)
    return short(scalar_text(value))


# --- heat ---------------------------------------------------------------------------------------------------


def _heat(series: Series) -> Chart:
    rows = [list(row[:MAX_HEAT_COLUMNS]) for row in series.values[:MAX_HEAT_ROWS]]
    columns = max(len(row) for row in rows)
    names = [series.names[index] if index < len(series.names) else str(index) for index in range(len(rows))]
    left = min(max((len(short(name)) for name in names), default=1), MAX_LABEL) * CHARACTER + 16
    step_x = (WIDTH - left - _RIGHT) / max(columns, 1)
    step_y = min(max(16.0, step_x * 0.5), 32.0)
    present = [value for row in rows for value in row if value is not None]
    low, high = min(present), max(present)
    hot = set(series.hot)
    cells = tuple(
        Bar(
            x=rounded(left + column * step_x),
            y=rounded(_TOP + 14 + index * step_y),
            width=rounded(max(step_x - 1, 0.6)),
            height=rounded(step_y - 1),
            title=f"{names[index]}, {_label_at(series.x, column)}: {scalar_text(value)}",
            shade=None if value is None else _shade(value, low, high),
            hot=index in hot,
        )
        for index, row in enumerate(rows)
        for column, value in enumerate(row)
    )
    height = round(_TOP + 14 + len(rows) * step_y + 8)
    heads = thinned(
        [(left + (column + 0.5) * step_x, short(_label_at(series.x, column))) for column in range(columns)]
    )
    cut = len(series.values) > MAX_HEAT_ROWS or max(map(len, series.values)) > MAX_HEAT_COLUMNS
    return Chart(
        kind="heat",
        width=WIDTH,
        height=height,
        bars=cells,
        labels=(
            *(Label(x=rounded(x), y=_TOP + 6, text=text) for x, text in heads),
            *(
                Label(
                    x=rounded(left - 6),
                    y=rounded(_TOP + 14 + (index + 0.5) * step_y + 4),
                    text=short(name),
                    anchor="end",
                    hot=index in hot,
                )
                for index, name in enumerate(names)
            ),
        ),
        left=left,
        scale=(scalar_text(low), scalar_text(high)),
        note=f"the first {len(rows)} rows and {columns} columns of {len(series.values)} by {max(map(len, series.values))}"
        if cut
        else "",
    )


def _shade(value: float, low: float, high: float) -> int:
    if high <= low:
        return NUM_SHADES // 2
    return min(int((value - low) / (high - low) * NUM_SHADES), NUM_SHADES - 1)


def _label_at(xs: Sequence[Scalar], index: int) -> str:
    return scalar_text(xs[index]) if index < len(xs) else str(index)


# --- axes ---------------------------------------------------------------------------------------------------


def _y_labels(ticks: Sequence[float], top: float, height: float) -> list[Label]:
    return [
        Label(
            x=_LEFT - 6, y=rounded(_TOP + height * (1 - tick / top) + 4), text=scalar_text(tick), anchor="end"
        )
        for tick in ticks
    ]


def _x_labels(labels: Sequence[tuple[str, bool]], step: float, y: float) -> list[Label]:
    """Labels of the accused first, then as many others as fit between them."""
    centres = [(_LEFT + (index + 0.5) * step, short(text), hot) for index, (text, hot) in enumerate(labels)]
    placed: list[Label] = []
    for wanted in (True, False):
        for x, text, hot in centres:
            if hot is not wanted or not text:
                continue
            half = len(text) * CHARACTER / 2 + 4
            if all(abs(x - each.x) > half + len(each.text) * CHARACTER / 2 for each in placed):
                placed.append(Label(x=rounded(x), y=y, text=text, hot=hot))
    return sorted(placed, key=lambda each: each.x)


def _axis_names(series: Series, height: int) -> list[Label]:
    return [
        Label(x=_LEFT, y=height - 6, text=short(series.y_label, 40), anchor="start"),
        Label(x=WIDTH - _RIGHT, y=height - 6, text=short(series.x_label, 40), anchor="end"),
    ]
