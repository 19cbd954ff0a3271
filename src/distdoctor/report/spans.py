"""A series of areas span by span: how high the parts stand together, when, and which part is the largest then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distdoctor.report.model import Series
from distdoctor.report.names import scalar_text
from distdoctor.report.stacks import Stack, length, limit_text, part_names, stacks, total_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanPeak:
    """Neighbouring points of a series of areas, from one mark to the next."""

    words: str
    first: int
    end: int
    """The index after the last point."""
    at: int
    """Where the parts stand highest; the first of several such points."""
    peak: Stack


def span_peaks(series: Series) -> list[SpanPeak]:
    """The spans between the marks, in the order of x; one without words where a series has no marks."""
    points = stacks(series)
    return [
        SpanPeak(words=words, first=first, end=end, at=at, peak=points[at])
        for words, first, end in _ranges(series, len(points))
        for at in [max(range(first, end), key=lambda index: (length(points[index]), -index))]
    ]


def _ranges(series: Series, num_points: int) -> Iterator[tuple[str, int, int]]:
    """Marks that come from a file may be in any order, or outside."""
    if num_points == 0:
        return
    begins = {0: ""}
    begins |= {
        index: words
        for index, words in sorted(series.marks, key=lambda mark: mark[0])
        if 0 <= index < num_points
    }
    firsts = sorted(begins)
    for first, end in zip(firsts, [*firsts[1:], num_points], strict=True):
        yield begins[first], first, end


def highest(spans: list[SpanPeak]) -> SpanPeak | None:
    """The span with the peak of all; None where there is no point."""
    return max(spans, key=lambda span: length(span.peak), default=None)


def largest_part(series: Series, stack: Stack) -> str:
    """`activations 31.3`; empty where no part is known."""
    known = [(part, -index) for index, part in enumerate(stack.parts) if part is not None]
    if not known:
        return ""
    part, index = max(known)
    return f"{part_names(series)[-index]} {scalar_text(part)}"


def peak_text(series: Series, span: SpanPeak) -> str:
    """`peak 71 GiB, step 2: backward`."""
    amount = f"peak {total_text(span.peak)} {series.y_label}".rstrip()
    return f"{amount}, {span.words}" if span.words else amount


def span_rows(series: Series) -> tuple[list[str], list[tuple[str, ...]]]:
    """The table of a series of areas: header and rows, a row a span. All its points are in the JSON alone."""
    return ["span", "peak", "largest part"], [
        (span.words, total_text(span.peak), largest_part(series, span.peak)) for span in span_peaks(series)
    ]


def areas_note(series: Series) -> str:
    """`H100 80GB: 79.1 GiB, 8.1 above the peak; 232 points in the JSON report`."""
    points = stacks(series)
    counted = f"{len(points):,} point{'s' * (len(points) != 1)} in the JSON report"
    top = highest(span_peaks(series))
    if series.limit is None or top is None or top.peak.total is None:
        return counted
    if top.peak.excess > 0:
        place = f"the peak is {scalar_text(top.peak.excess)} beyond it"
    elif all(point.is_complete for point in points):
        place = f"{scalar_text(series.limit - top.peak.total)} above the peak"
    else:
        place = "the peak is not known to be beyond it"
    return f"{limit_text(series)}, {place}; {counted}"
