"""A label on the left and wrapped text beside it: what the one screen and the whole report are made of."""

from __future__ import annotations

from distdoctor.report.coverage import SkipFold
from distdoctor.report.render.lines import (
    Line,
    Span,
    clipped,
    wrapped,
)

MAX_ROWS_EACH = 2

# The longest label, `critical`, and two spaces.
COLUMN = 10
INDENT = " " * COLUMN

STYLES = {
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "bold blue",
    "ok": "bold green",
    "unknown": "bold magenta",
}


def text_lines(text: str, width: int, *, style: str = "") -> list[Line]:
    """`text` wrapped to `width` columns beside the label's column."""
    return wrapped(text, width=width, indent=INDENT, first=(Span(INDENT),), style=style)


def short_lines(text: str, width: int, *, style: str = "") -> list[Line]:
    """As `text_lines`, cut to two rows: a screen has 24."""
    return clipped(text_lines(text, width, style=style), MAX_ROWS_EACH, width=width)


def with_label(label: str, lines: list[Line]) -> list[Line]:
    """Lines with `label` in the margin of the first; severities have their colour."""
    if not label or not lines:
        return lines
    _, *rest = lines[0]
    style = STYLES.get(label, "dim")
    gap = " " * max(COLUMN - len(label), 1)
    return [(Span(label, style), Span(gap), *rest), *lines[1:]]


def skip_lines(fold: SkipFold, width: int) -> list[Line]:
    """One cause of skips: how many, which, and how to get them."""
    # Also in full reports: every skip follows by name there.
    count = len(fold.names)
    named = ", ".join(fold.names[:4]) + (f" and {count - 4} more" if count > 4 else "")
    lines = short_lines(f"{fold.phrase}: {named}", width)
    if fold.hows:
        lines += short_lines(f"get it: {fold.hows[0]}", width, style="dim")
    return lines
