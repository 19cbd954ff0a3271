"""Where the parts of stacked bars stand: bars from left to right, their labels on the left, totals at their ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdoctor.report.model import Series
from distdoctor.report.names import scalar_text
from distdoctor.report.render.axes import BOLD_CHARACTER, CHARACTER, axis, rounded, short, thinned
from distdoctor.report.render.shapes import WIDTH, Bar, Chart, Key, Label, Upright
from distdoctor.report.stacks import Stack, edges, length, limit_text, part_names, stacks, total_text

# More bars make a picture of several screens; the table has them all.
MAX_STACKS = 40
# Labels are words: "FSDP2, full checkpointing". Longer ones leave no room for the bars.
_MAX_LABEL = 36
_MAX_CAPTION = 80

_STEP, _THICKNESS = 26, 18
_GAP = 6
_FRAME = 2
_EDGE = 8
_TOP, _CAPTION, _BOTTOM = 8, 18, 40


def stacked_chart(series: Series) -> Chart:
    """The picture of a stacked series; bars are in the order of the series, parts in the order of its names."""
    every = stacks(series)
    first = sorted(range(len(every)), key=lambda index: not every[index].hot)[:MAX_STACKS]
    bars = [every[index] for index in sorted(first)]
    labels = [short(bar.label, _MAX_LABEL) for bar in bars]
    left = max(_width(text, bar) for text, bar in zip(labels, bars, strict=True)) + _EDGE + _GAP
    right = WIDTH - max(_width(_end_text(bar), bar) for bar in bars) - _EDGE - _GAP
    top = _TOP if series.limit is None else _TOP + _CAPTION
    bottom = top + len(bars) * _STEP
    limit = None if series.limit is None else max(series.limit, 0.0)
    scale = _Scale(left, right, max([length(bar) for bar in bars] + [limit or 0.0]))
    ticks = [tick for tick in scale.ticks if tick <= scale.largest]
    rows = [top + index * _STEP + (_STEP - _THICKNESS) / 2 for index in range(len(bars))]
    line = None if limit is None else scale.x(limit)
    words = [*_bar_labels(bars, labels, rows, scale, line), *_tick_labels(ticks, scale, bottom)]
    words.append(
        Label(x=scale.x(scale.largest), y=bottom + _BOTTOM - 8, text=short(series.y_label, 40), anchor="end")
    )
    uprights = [Upright(x=scale.x(tick), top=top, bottom=bottom) for tick in ticks]
    if line is not None:
        uprights.append(Upright(x=line, top=top - 2, bottom=bottom, is_limit=True))
        words.append(_caption(series, line, top))
    return Chart(
        kind="stacked",
        width=WIDTH,
        height=bottom + _BOTTOM,
        bars=tuple(
            rectangle
            for bar, y in zip(bars, rows, strict=True)
            for rectangle in _rectangles(series, bar, y, scale)
        ),
        labels=tuple(words),
        uprights=tuple(uprights),
        legend=tuple(
            Key(name=name, style=index)
            for index, name in enumerate(part_names(series))
            if any(bar.parts[index] for bar in every)
        ),
        note=_note(bars, every),
    )


class _Scale:
    """Amounts as places between `left` and `right`; the largest ends at `right`."""

    def __init__(self, left: float, right: float, largest: float) -> None:
        top, self.ticks = axis(largest)
        # The last tick may lie beyond the largest bar; the room is the bars'.
        self.largest = min(top, largest) or top
        self._left, self._right = rounded(left), rounded(right)

    def x(self, amount: float) -> float:
        return rounded(self._left + (self._right - self._left) * (amount / self.largest))


def _rectangles(series: Series, bar: Stack, y: float, scale: _Scale) -> Iterator[Bar]:
    """The parts, each beginning where the one before ends; a frame around a bar beyond the limit."""
    for index, (name, part) in enumerate(zip(part_names(series), bar.parts, strict=True)):
        begin, end = map(scale.x, edges(bar)[index])
        if end > begin:
            title = f"{bar.label}, {name}: {scalar_text(part)} {series.y_label}".rstrip()
            yield Bar(x=begin, y=y, width=rounded(end - begin), height=_THICKNESS, title=title, part=index)
    if bar.hot and length(bar) > 0:
        begin, end = scale.x(0.0), scale.x(length(bar))
        title = f"{bar.label}: {_end_text(bar)} {series.y_label}".rstrip()
        yield Bar(
            x=rounded(begin - _FRAME),
            y=y - _FRAME,
            width=rounded(end - begin + 2 * _FRAME),
            height=_THICKNESS + 2 * _FRAME,
            title=title,
            hot=True,
        )


def _bar_labels(
    bars: Sequence[Stack],
    labels: Sequence[str],
    rows: Sequence[float],
    scale: _Scale,
    line: float | None,
) -> Iterator[Label]:
    for bar, text, y in zip(bars, labels, rows, strict=True):
        middle = y + _THICKNESS / 2 + 4
        yield Label(x=scale.x(0.0) - _GAP, y=middle, text=text, anchor="end", hot=bar.hot)
        end, total = scale.x(length(bar)) + _GAP, _end_text(bar)
        if line is not None and end <= line + _EDGE <= end + _width(total, bar) + 2 * _EDGE:
            # The line would strike the number through.
            end = line + _GAP
        yield Label(x=rounded(end), y=middle, text=total, anchor="start", hot=bar.hot)


def _width(text: str, bar: Stack) -> float:
    return len(text) * (BOLD_CHARACTER if bar.hot else CHARACTER)


def _end_text(bar: Stack) -> str:
    if bar.total is None:
        return "not known"
    over = f", {scalar_text(bar.excess)} over" if bar.excess > 0 else ""
    return total_text(bar) + over


def _tick_labels(ticks: Sequence[float], scale: _Scale, bottom: float) -> list[Label]:
    places = thinned([(scale.x(tick), scalar_text(tick)) for tick in ticks])
    return [Label(x=x, y=bottom + 16, text=text) for x, text in places]


def _caption(series: Series, x: float, top: float) -> Label:
    """Above the line, moved sideways where it would leave the picture."""
    text = short(limit_text(series), _MAX_CAPTION)
    half = len(text) * CHARACTER / 2 + _EDGE
    return Label(x=rounded(min(max(x, half), WIDTH - half)), y=top - 8, text=text)


def _note(bars: Sequence[Stack], every: Sequence[Stack]) -> str:
    parts = []
    if any(bar.total is not None and not bar.is_complete for bar in bars):
        parts.append("≥: a part is not known, so the bar may be longer")
    if len(bars) < len(every):
        parts.append(f"{len(bars)} of {len(every)} bars; all are in the table")
    return "; ".join(parts)
