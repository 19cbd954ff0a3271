"""Stacked bars as plain text: one row a bar, one letter a part, with the numbers below."""

from __future__ import annotations

import string
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from distdoctor.report.model import Series
from distdoctor.report.names import scalar_text
from distdoctor.report.render.lines import Line, Span, wrapped
from distdoctor.report.stacks import Stack, edges, length, limit_note, part_names, total_text

# Indent, label, total and bar together fill a line.
_WIDTH = 80
BAR_CELLS = 39
_MAX_LABEL = 26
_LETTERS = string.ascii_uppercase + string.ascii_lowercase


def picture_lines(series: Series, bars: Sequence[Stack], *, indent: str) -> list[Line]:
    """Label, total and a bar of letters for each of `bars`, the limit as `|`; then what the letters mean."""
    names = part_names(series)
    letters = part_letters(names)
    limit = max(series.limit or 0.0, 0.0)
    largest = max([length(bar) for bar in bars] + [limit], default=0.0)
    labels = [_cut(bar.label) for bar in bars]
    totals = [total_text(bar) for bar in bars]
    label_width, total_width = max(map(cell_len, labels)), max(map(len, totals))
    lines: list[Line] = []
    for bar, label, total in zip(bars, labels, totals, strict=True):
        cells = _cells(bar, letters, largest)
        if series.limit is not None:
            cells = _with_limit(cells, _place(limit, largest))
        text = f"{label}{' ' * (label_width - cell_len(label))}  {total:>{total_width}}  {cells}"
        lines.append((Span(indent), Span(text.rstrip(), "red" if bar.hot else "")))
    if note := limit_note(series):
        lines += wrapped(note, width=_WIDTH, indent=f"{indent}  ", first=(Span(f"{indent}| "),), style="dim")
    keys = [f"{letter} {name}" for letter, name in zip(letters, names, strict=True)]
    return lines + [(Span(indent), Span(line, "dim")) for line in _filled(keys, _WIDTH - len(indent))]


def part_letters(names: Sequence[str]) -> list[str]:
    """A letter for each part: its first where that is free, else another of its own, else any."""
    letters: dict[int, str] = {}
    for wanted in (1, None):
        for index, name in enumerate(names):
            own = [each for each in name.upper()[:wanted] if each in string.ascii_uppercase]
            free = [each for each in own if each not in letters.values()]
            if index not in letters and free:
                letters[index] = free[0]
    for index in range(len(names)):
        if index not in letters:
            letters[index] = next((each for each in _LETTERS if each not in letters.values()), "?")
    return [letters[index] for index in range(len(names))]


def _cells(bar: Stack, letters: Sequence[str], largest: float) -> str:
    """Each part ends where its sum ends, so that the bar is as long as its total."""
    text = ""
    for (_, end), letter in zip(edges(bar), letters, strict=True):
        text += letter * (_place(end, largest) - len(text))
    return text


def _place(amount: float, largest: float) -> int:
    return round(BAR_CELLS * (amount / largest)) if largest > 0 else 0


def _with_limit(cells: str, place: int) -> str:
    return f"{cells[:place]:<{place}}|{cells[place:]}"


def _cut(label: str) -> str:
    if cell_len(label) <= _MAX_LABEL:
        return label
    return set_cell_size(label, _MAX_LABEL - 1).rstrip() + "…"


def _filled(keys: Sequence[str], width: int) -> list[str]:
    """`keys` side by side, as many in a line as fit."""
    lines: list[str] = []
    for key in keys:
        if lines and cell_len(f"{lines[-1]}   {key}") <= width:
            lines[-1] += f"   {key}"
        else:
            lines.append(key)
    return lines


def table_cells(series: Series, bars: Sequence[Stack]) -> tuple[list[str], list[list[str]]]:
    """The numbers under their letters: the names of the parts would make rows of three screens' width."""
    header = [series.x_label or "bar", *part_letters(part_names(series))]
    return header, [[_cut(bar.label), *map(scalar_text, bar.parts)] for bar in bars]
