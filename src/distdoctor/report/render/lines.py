"""Lines of styled text, wrapped to a width: what the terminal and the plain renderer are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line in one style (a Rich style, `bold red`; empty for none)."""

    text: str
    style: str = ""


Line = tuple[Span, ...]
BLANK: Line = ()
_MORE = " …"

_WORDS = re.compile(r"\S+\s*|\s+")


def plain(line: Line) -> str:
    """A line's text."""
    return "".join(span.text for span in line)


def physical_rows(lines: Iterable[Line], width: int) -> int:
    """How many rows `lines` fill on a terminal `width` cells wide, which breaks what is too long."""
    return sum(max(1, -(-cell_len(plain(line)) // width)) for line in lines)


def wrapped(text: str, *, width: int, indent: str = "", first: Line = (), style: str = "") -> list[Line]:
    """`text` broken at white space to `width` cells; later lines start with `indent`, the first after `first`.

    Words are never broken, so that paths and names can be copied.
    """
    lines: list[Line] = []
    for paragraph in text.split("\n"):
        lines += _paragraph(paragraph, width, indent, first if not lines else (Span(indent),), style)
    return lines


def _paragraph(text: str, width: int, indent: str, first: Line, style: str) -> list[Line]:
    lines: list[Line] = []
    start, current = first, ""
    used = cell_len(plain(first))
    for word in _WORDS.findall(text.strip()):
        if current and used + cell_len(current + word.rstrip()) > width:
            lines.append((*start, Span(current.rstrip(), style)))
            start, current, used = (Span(indent),), "", cell_len(indent)
        current += word
    lines.append((*start, Span(current.rstrip(), style)))
    return lines


def labelled(
    label: str, text: str, *, width: int, column: int, label_style: str = "", style: str = ""
) -> list[Line]:
    """`text` in a column, with `label` to the left of its first line."""
    head = (Span(f"{label:<{column}}", label_style),)
    return wrapped(text, width=width, indent=" " * column, first=head, style=style)


def command_lines(command: str, *, indent: str) -> list[Line]:
    """A command to copy: never wrapped, `$` before its first line."""
    first, *rest = command.split("\n")
    return [
        (Span(f"{indent}$ ", "dim"), Span(first, "cyan")),
        *((Span(f"{indent}  "), Span(line, "cyan")) for line in rest),
    ]


def clipped(lines: Sequence[Line], limit: int, *, width: int) -> list[Line]:
    """At most `limit` lines; a last one that was followed by more ends in an ellipsis, within `width` cells."""
    if len(lines) <= limit:
        return list(lines)
    last = lines[limit - 1]
    if not last:
        return list(lines[:limit])
    room = width - cell_len(plain(last[:-1])) - len(_MORE)
    text = last[-1].text
    while cell_len(text) > room and (shorter := text.rstrip().rpartition(" ")[0]):
        text = shorter
    shortened = (*last[:-1], Span(text.rstrip(" .,;:") + _MORE, last[-1].style))
    return [*lines[: limit - 1], shortened]


def draw(lines: Iterable[Line], *, color: bool) -> str:
    """`lines` as text, with ANSI colours when `color`. Ends with a newline."""
    if not color:
        return "".join(plain(line).rstrip() + "\n" for line in lines)
    from rich.color import ColorSystem
    from rich.style import Style

    def ansi(span: Span) -> str:
        if not span.style or not span.text.strip():
            return span.text
        return Style.parse(span.style).render(span.text, color_system=ColorSystem.STANDARD)

    return "".join("".join(ansi(span) for span in line).rstrip() + "\n" for line in lines)
