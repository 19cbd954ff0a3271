"""Stacked areas as plain text: a row a span, with its peak, the largest part then, and a bar."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from distdoctor.report.model import Series
from distdoctor.report.render.lines import Line, Span, wrapped
from distdoctor.report.spans import areas_note, largest_part, span_peaks
from distdoctor.report.stacks import length, total_text

# Indent, span, peak, part and bar together fill a line.
_WIDTH = 80
_MAX_WORDS, _MAX_PART = 28, 30
_MAX_BAR = 24


def areas_lines(series: Series, *, indent: str, max_rows: int) -> list[Line]:
    """Title, at most `max_rows` spans, the limit and how many points there are; the highest span is in bold."""
    unit = f" ({series.y_label})" if series.y_label else ""
    lines: list[Line] = [(Span(indent), Span(series.title + unit, "bold"))]
    spans = span_peaks(series)
    shown = spans[:max_rows]
    rows = [
        (
            _cut(span.words, _MAX_WORDS),
            total_text(span.peak),
            _cut(largest_part(series, span.peak), _MAX_PART),
        )
        for span in shown
    ]
    header = ("span", "peak", "largest part")
    widths = [max(cell_len(row[column]) for row in (header, *rows)) for column in range(3)]
    room = min(_MAX_BAR, _WIDTH - len(indent) - sum(widths) - 2 * len(widths))
    top = max((length(span.peak) for span in spans), default=0.0)
    lines.append((Span(indent), Span(_row(header, widths).rstrip(), "dim")))
    for span, row in zip(shown, rows, strict=True):
        height = length(span.peak)
        bar = "█" * round(room * (height / top)) if top > 0 else ""
        style = "red" if span.peak.excess > 0 else "bold" if height == top else ""
        lines.append((Span(indent), Span(f"{_row(row, widths)}  {bar}".rstrip(), style)))
    if len(spans) > len(shown):
        lines.append((Span(f"{indent}… {len(spans) - len(shown)} more spans, in the JSON report", "dim"),))
    return lines + wrapped(
        areas_note(series), width=_WIDTH, indent=indent, first=(Span(indent),), style="dim"
    )


def _row(cells: tuple[str, str, str], widths: list[int]) -> str:
    words, peak, part = cells
    return f"{_filled(words, widths[0])}  {peak:>{widths[1]}}  {_filled(part, widths[2])}"


def _filled(text: str, cells: int) -> str:
    return text + " " * (cells - cell_len(text))


def _cut(text: str, cells: int) -> str:
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"
