"""Where stacked areas stand: x to the right, spans as bands with their names above, the limit, and a dot at the peak."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from distdoctor.report.model import Series
from distdoctor.report.names import scalar_text
from distdoctor.report.render.area_words import peak_and_limit, span_labels
from distdoctor.report.render.axes import axis, rounded, short, thinned
from distdoctor.report.render.shapes import Area, Bar, Chart, Key, Label, Point
from distdoctor.report.spans import SpanPeak, areas_note, highest, largest_part, peak_text, span_peaks
from distdoctor.report.stacks import Stack, edges, length, limit_text, part_names, stacks

WIDTH, HEIGHT = 800, 330
_LEFT, _RIGHT = 56, 16
# Names of spans stand in the heads of the bands, what neighbours share above them, numbers below.
_BAND_TOP, _TOP, _BOTTOM = 20, 62, HEIGHT - 42

# An outline of more corners takes long to draw and looks the same.
# A span is drawn at least so wide, in pixels, that it can be seen and named; all of them at most this share of the room.
MIN_SPAN, _MAX_WIDENED = 40, 0.6
MAX_POINTS = 960
MAX_BANDS = 240
# A limit so far above the parts would press them flat; it is told below the picture instead.
_FAR = 2.5


def areas_chart(series: Series) -> Chart | None:
    """The picture of a series of areas, the first part at the bottom; None when it has no point."""
    points, spans = stacks(series), span_peaks(series)
    top_span = highest(spans)
    if top_span is None:
        return None
    limit = None if series.limit is None else max(series.limit, 0.0)
    height = length(top_span.peak)
    is_far = limit is not None and 0 < height * _FAR < limit
    plot = _Plot(series, spans, len(points), max(height, 0.0 if is_far or limit is None else limit))
    level = None if is_far or limit is None else plot.y(limit)
    bands = _bands(series, spans[:MAX_BANDS], plot)
    hot = top_span.peak.excess > 0
    peak = Point(x=plot.xs[top_span.at], y=plot.y(height), title=peak_text(series, top_span))
    return Chart(
        kind="areas",
        width=WIDTH,
        height=plot.height,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        bands=bands,
        areas=tuple(_areas(series, points, _kept(spans, len(points)), top_span, plot)),
        grid=tuple(plot.y(tick) for tick in plot.ticks),
        level=level,
        peak=peak,
        is_hot=hot,
        labels=(
            *span_labels([(span.words, band) for span, band in zip(spans, bands, strict=False)]),
            *peak_and_limit(peak, level, limit_text(series), _LEFT, WIDTH - _RIGHT, hot=hot),
            *plot.labels(series),
        ),
        legend=tuple(
            Key(name=name, style=index)
            for index, name in enumerate(part_names(series))
            if any(point.parts[index] for point in points)
        ),
        description=f"{peak.title}: {largest_part(series, top_span.peak)}; {areas_note(series)}",
        note=_note(series, points, is_far=is_far, is_widened=plot.is_widened),
    )


class _Plot:
    """Places of numbers in the picture; the largest ends at `_TOP` or below."""

    def __init__(self, series: Series, spans: Sequence[SpanPeak], num_points: int, largest: float) -> None:
        self._highest, self.ticks = axis(largest)
        self.numbers = _numbers(series, num_points)
        self._ends = [*(self.numbers[span.first] for span in spans), self.numbers[-1]]
        self._places, self.is_widened = _places(self._ends)
        # Numbers below the picture would mislead where its parts differ in scale.
        self.height = HEIGHT - (18 if self.is_widened else 0)
        self.xs = [rounded(self._x(number)) for number in self.numbers]

    def y(self, amount: float) -> float:
        return rounded(_BOTTOM - (_BOTTOM - _TOP) * (amount / self._highest))

    def _x(self, number: float) -> float:
        index = min(max(bisect_right(self._ends, number) - 1, 0), len(self._places) - 2)
        left, right = self._places[index : index + 2]
        return left + (right - left) * _share(number, *self._ends[index : index + 2])

    def labels(self, series: Series) -> Iterator[Label]:
        """Numbers at the left and below, and what they count."""
        for tick in self.ticks:
            yield Label(x=_LEFT - 6, y=self.y(tick) + 4, text=scalar_text(tick), anchor="end")
        if not self.is_widened:
            yield from self._x_labels()
        y = self.height - 8
        yield Label(x=_LEFT, y=y, text=short(series.y_label, 40), anchor="start")
        yield Label(x=WIDTH - _RIGHT, y=y, text=short(series.x_label, 80), anchor="end")

    def _x_labels(self) -> Iterator[Label]:
        first, last = self.numbers[0], self.numbers[-1]
        if last > first:
            ticks = [tick for tick in axis(last)[1] if first <= tick <= last] if first >= 0 else []
            # An axis that begins far from zero has no tick between its ends.
            places = [
                (rounded(self._x(each)), scalar_text(each)) for each in (ticks[1:] and ticks) or (first, last)
            ]
            yield from (Label(x=x, y=_BOTTOM + 16, text=text) for x, text in thinned(places))


def _places(ends: Sequence[float]) -> tuple[list[float], bool]:
    """Where each span begins and the last one ends, in pixels; and whether some are wider than they are long."""
    room = WIDTH - _RIGHT - _LEFT
    count = len(ends) - 1
    least = min(MIN_SPAN, _MAX_WIDENED * room / count) if count > 1 else 0.0
    widths = [
        room * _share(end, ends[0], ends[-1]) - room * _share(begin, ends[0], ends[-1])
        for begin, end in pairwise(ends)
    ]
    if min(widths) >= least:
        return [_LEFT, *(_LEFT + each for each in accumulate(widths))], False
    # What the short ones take, the long ones give: each by what it has more than the least.
    spare = sum(max(width - least, 0.0) for width in widths)
    left = room - least * count
    widths = [
        least + left * (max(width - least, 0.0) / spare if spare > 0 else 1 / count) for width in widths
    ]
    return [_LEFT, *(_LEFT + each for each in accumulate(widths))], True


def _share(number: float, first: float, last: float) -> float:
    """How far `number` is from `first` to `last`; in halves, as their difference may be more than a float holds."""
    return (number / 2 - first / 2) / (last / 2 - first / 2) if last / 2 > first / 2 else 0.0


def _numbers(series: Series, num_points: int) -> list[float]:
    """The x of each point; where x is not numbers that grow, points are counted."""
    numbers = [float(x) for x in series.x if isinstance(x, int | float) and not isinstance(x, bool)]
    if len(numbers) != num_points or any(b < a for a, b in pairwise(numbers)):
        return [float(index) for index in range(num_points)]
    return numbers


def _bands(series: Series, spans: Sequence[SpanPeak], plot: _Plot) -> tuple[Bar, ...]:
    """Every second one is shaded; each ends where the next one begins."""
    ends = [*(plot.xs[span.first] for span in spans[1:]), WIDTH - _RIGHT]
    return tuple(
        Bar(
            x=plot.xs[span.first],
            y=_BAND_TOP,
            width=rounded(max(end - plot.xs[span.first], 0.0)),
            height=_BOTTOM - _BAND_TOP,
            title=f"{peak_text(series, span)}: {largest_part(series, span.peak)}",
            shade=index % 2,
        )
        for index, (span, end) in enumerate(zip(spans, ends, strict=True))
    )


def _kept(spans: Sequence[SpanPeak], num_points: int) -> list[int]:
    """The points that are drawn: all, or the peaks of the spans and others between them."""
    step = -(-num_points // MAX_POINTS)
    if step == 1:
        return list(range(num_points))
    peaks = sorted(spans, key=lambda span: -length(span.peak))[:MAX_BANDS]
    return sorted({0, num_points - 1, *range(0, num_points, step), *(span.at for span in peaks)})


def _areas(
    series: Series, points: Sequence[Stack], kept: Sequence[int], top: SpanPeak, plot: _Plot
) -> Iterator[Area]:
    """Each part between its lower edge and its upper edge, which is the lower one of the next."""
    heights = [edges(points[index]) for index in kept]
    xs = [plot.xs[index] for index in kept]
    if len(set(xs)) == 1:
        # All at one moment: the highest, as wide as the picture.
        heights, xs = [edges(top.peak)] * 2, [float(_LEFT), float(WIDTH - _RIGHT)]
    for index, name in enumerate(part_names(series)):
        upper = [(x, plot.y(each[index][1])) for x, each in zip(xs, heights, strict=True)]
        lower = [(x, plot.y(each[index][0])) for x, each in zip(xs, heights, strict=True)]
        if upper == lower:
            continue
        corners = [*_corners(upper), *reversed(_corners(lower))]
        most = max(point.parts[index] or 0.0 for point in points)
        yield Area(
            part=index,
            outline=" ".join(f"{x:g},{y:g}" for x, y in corners),
            title=(
                f"{name}: at most {scalar_text(most)} {series.y_label}, "
                f"at the peak {scalar_text(top.peak.parts[index])} {series.y_label}"
            ),
        )


def _corners(edge: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """`edge` without the points inside of level stretches."""
    return [
        point
        for index, point in enumerate(edge)
        if index in (0, len(edge) - 1) or not edge[index - 1][1] == point[1] == edge[index + 1][1]
    ]


def _note(series: Series, points: Sequence[Stack], *, is_far: bool, is_widened: bool) -> str:
    parts = [f"{limit_text(series)}, far above the picture"] if is_far else []
    if any(not point.is_complete for point in points):
        parts.append("parts that are not known are drawn as zero")
    if is_widened:
        parts.append("short spans are drawn wider than they are")
    return "; ".join(parts)
