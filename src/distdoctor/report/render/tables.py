"""Tables, series and facts as aligned plain text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from distdoctor.report.model import Column, Fact, Report, Series, Table
from distdoctor.report.names import count_hosts, fact_value, scalar_text
from distdoctor.report.reading import facts_by_group, facts_differ, series_rows
from distdoctor.report.render.areas_text import areas_lines
from distdoctor.report.render.lines import BLANK, Line, Span, plain, wrapped
from distdoctor.report.render.stacked_text import picture_lines, table_cells
from distdoctor.report.stacks import stacks
from distdoctor.units import fold_ints

# A cell wider than this is cut; the whole of it is in the JSON.
MAX_CELL = 48
# A cell that is narrower says little.
MIN_CELL = 12
# The first column names the row: of it so much stays while others can give way.
NAME_CELLS = 28
_GAP = "  "
# More rows than this nobody reads on a terminal.
MAX_ROWS = 100
MAX_BARS = 64
_BAR_CELLS = 30


def header_of(column: Column) -> str:
    """`busbw (GB/s)`."""
    return f"{column.name} ({column.unit})" if column.unit else column.name


def table_lines(
    table: Table, *, indent: str, max_rows: int = MAX_ROWS, width: int | None = None, whole: bool = False
) -> list[Line]:
    """Title, header, rows, note; rows beyond `max_rows` are counted.

    Where the table is wider than `width`, its words give way and never its numbers: they are cut, or go on in the
    next line when the `whole` of them is wanted.
    """
    header = [header_of(column) for column in table.columns]
    right = [column.align == "right" for column in table.columns]
    rows = [[scalar_text(value) for value in row] for row in table.rows[:max_rows]]
    if not whole or width is None:
        rows = [[_cut(cell, MAX_CELL) for cell in row] for row in rows]
    if width is not None:
        rows = _narrowed(header, rows, right, width - cell_len(indent), whole=whole)
    lines = [(Span(indent), Span(table.title, "bold")), *_grid(header, rows, right, indent)]
    if len(table.rows) > max_rows:
        lines.append(
            (Span(f"{indent}… {len(table.rows) - max_rows} more rows, in the HTML and JSON report", "dim"),)
        )
    if table.note:
        lines += wrapped(
            table.note,
            width=max(cell_len(plain(line)) for line in lines) if width is None else width,
            indent=indent,
            first=(Span(indent),),
            style="dim",
        )
    return lines


def series_lines(series: Series, *, indent: str) -> list[Line]:
    """A series as rows; bars are drawn as well."""
    if series.kind == "stacked":
        return _stacked_lines(series, indent)
    if series.kind == "areas":
        return areas_lines(series, indent=indent, max_rows=MAX_BARS)
    header, rows = series_rows(series)
    shown = rows[:MAX_BARS]
    right = [False, *[True] * (len(header) - 1)]
    title = (Span(indent), Span(series.title, "bold"))
    if series.kind != "bars" or not series.values:
        lines = [title, *_grid(header, [list(row) for row in shown], right, indent)]
    else:
        bars = _bars(series.values[0][: len(shown)])
        grid = _grid(
            [*header, ""],
            [[*row, bar] for row, bar in zip(shown, bars, strict=False)],
            [*right, False],
            indent,
        )
        lines = [title, grid[0]]
        lines += [
            tuple(Span(span.text, "red") for span in line) if index in series.hot else line
            for index, line in enumerate(grid[1:])
        ]
    return lines + _left_out(len(rows) - len(shown), indent)


def _stacked_lines(series: Series, indent: str) -> list[Line]:
    unit = f" ({series.y_label})" if series.y_label else ""
    title = (Span(indent), Span(series.title + unit, "bold"))
    bars = stacks(series)
    shown = bars[:MAX_BARS]
    if not shown:
        return [title]
    header, rows = table_cells(series, shown)
    grid = _grid(header, rows, [False, *[True] * (len(header) - 1)], indent)
    picture = picture_lines(series, shown, indent=indent)
    return [title, *picture, *grid, *_left_out(len(bars) - len(shown), indent)]


def _left_out(count: int, indent: str) -> list[Line]:
    return [(Span(f"{indent}… {count} more, in the HTML and JSON report", "dim"),)] if count > 0 else []


def fact_lines(report: Report, *, width: int, indent: str) -> list[Line]:
    """Every fact, grouped by the first part of its key, with source; hosts where they differ."""
    lines: list[Line] = []
    differ = facts_differ(report)
    for group, facts in facts_by_group(report).items():
        if lines:
            lines.append(BLANK)
        lines.append((Span(indent), Span(group, "bold")))
        name_width = min(max(len(_short_key(fact)) for fact in facts), 36)
        for fact in facts:
            lines += _fact(fact, name_width, width, indent, show_hosts=fact.key in differ)
    return lines


def fact_place(fact: Fact) -> str:
    """The hosts, else the ranks, that a fact was read on."""
    if fact.hosts:
        return count_hosts(fact.hosts)
    return f"ranks {fold_ints(fact.ranks)}" if fact.ranks else ""


def _fact(fact: Fact, name_width: int, width: int, indent: str, *, show_hosts: bool) -> list[Line]:
    place = fact_place(fact) if show_hosts else ""
    tail = "; ".join(each for each in (place, fact.source or "") if each)
    text = fact_value(fact) + (f"  [{tail}]" if tail else "")
    head = f"{indent}  {_short_key(fact):<{name_width}}  "
    return wrapped(
        text,
        width=width,
        indent=" " * len(head),
        first=(Span(head),),
        style="" if fact.value is not None else "dim",
    )


def _short_key(fact: Fact) -> str:
    return fact.key.partition(".")[2] or fact.key


def _cut(text: str, cells: int) -> str:
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def _narrowed(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    width: int,
    *,
    whole: bool,
) -> list[list[str]]:
    """`rows` in at most `width` cells where words can give way: of their columns the widest does, the first last."""
    widths = _widths(header, rows)
    # Nothing becomes narrower than its header, or than what still says something.
    least = [
        full if is_right else min(full, max(cell_len(name), MIN_CELL))
        for name, full, is_right in zip(header, widths, right, strict=True)
    ]
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    _give_way(widths, [max(least[0], min(widths[0], NAME_CELLS)), *least[1:]] if least else [], over)
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    _give_way(widths, least, over)
    if not whole:
        return [[_cut(cell, cells) for cell, cells in zip(row, widths, strict=False)] for row in rows]
    return [line for row in rows for line in _folded(row, widths)]


def _give_way(widths: list[int], least: Sequence[int], over: int) -> None:
    """Make columns narrower by `over` cells together, none below its `least`; the widest first."""
    while over > 0:
        widest = max(range(len(widths)), key=lambda index: (widths[index] > least[index], widths[index]))
        if widths[widest] <= least[widest]:
            break
        # At once down to the next one that is as wide; equals take turns.
        others = [each for index, each in enumerate(widths) if index != widest and each > least[index]]
        step = max(1, min(over, widths[widest] - max([least[widest], *others])))
        widths[widest] -= step
        over -= step


def _folded(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """One row over as many lines as its longest cell takes."""
    cells = [
        [plain(line) for line in wrapped(cell, width=width)] for cell, width in zip(row, widths, strict=False)
    ]
    height = max((len(each) for each in cells), default=1)
    return [[each[index] if index < len(each) else "" for each in cells] for index in range(height)]


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(cell_len(text) for text in (name, *(row[index] for row in rows if index < len(row))))
        for index, name in enumerate(header)
    ]


def _grid(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], indent: str
) -> list[Line]:
    widths = _widths(header, rows)
    lines: list[Line] = [(Span(indent), Span(_row(header, widths, right), "dim"))]
    lines += [(Span(indent), Span(_row(row, widths, right))) for row in rows]
    return lines


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, is_right in zip(cells, widths, right, strict=False):
        gap = " " * max(width - cell_len(cell), 0)
        padded.append(gap + cell if is_right else cell + gap)
    return _GAP.join(padded).rstrip()


def _bars(values: Sequence[float | None]) -> list[str]:
    top = max((value for value in values if value is not None), default=0)
    if top <= 0:
        return [""] * len(values)
    return ["" if value is None else "█" * round(_BAR_CELLS * max(value, 0) / top) for value in values]
