"""Words over stacked areas: names of spans that do not touch, the peak, and the caption of the limit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from distdoctor.report.render.axes import BOLD_CHARACTER, CHARACTER, rounded, short
from distdoctor.report.render.shapes import Bar, Label, Point

_GROUP_Y, _SPAN_Y = 14, 34
# Fewer letters of a name that is cut say nothing; it is left out, and its band tells it.
_MIN_LETTERS = 5
_MAX_CAPTION = 56
_GAP = 8
# Between a name and the edges of its band, together.
_SLACK = 3


def span_labels(bands: Sequence[tuple[str, Bar]]) -> Iterator[Label]:
    """The name of each band inside its head; what stands before a colon, once above all neighbours that share it."""
    for group, members in itertools.groupby(bands, key=lambda each: _split(each[0])[0]):
        inside = list(members)
        first, last = inside[0][1], inside[-1][1]
        width = last.x + last.width - first.x
        is_told = bool(group) and _fits(group, width)
        if is_told:
            yield Label(x=rounded(first.x + width / 2), y=_GROUP_Y, text=group)
        for words, band in inside:
            wanted = _split(words)[1] if is_told else words
            letters = int((band.width - _SLACK) / CHARACTER)
            text = wanted if len(wanted) <= letters else short(wanted, letters)
            if letters >= min(_MIN_LETTERS, len(wanted)) and text:
                title = words if text != wanted else ""
                yield Label(x=rounded(band.x + band.width / 2), y=_SPAN_Y, text=text, title=title)


def _split(words: str) -> tuple[str, str]:
    """`step 1: forward` in two."""
    group, colon, rest = words.partition(": ")
    return (group, rest) if colon and rest else ("", words)


def _fits(text: str, width: float) -> bool:
    return len(text) * CHARACTER + _SLACK <= width


def peak_and_limit(
    peak: Point, level: float | None, caption: str, left: float, right: float, *, hot: bool
) -> Iterator[Label]:
    """The peak above its dot and the caption above its line, in halves of their own where both are as high."""
    text = short(peak.title, _MAX_CAPTION)
    begin, end, y = left, right, peak.y - 9
    if level is not None:
        caption = short(caption, _MAX_CAPTION)
        is_right = peak.x < (left + right) / 2
        yield Label(
            x=right - 4 if is_right else left + 4,
            y=level - 6,
            text=caption,
            anchor="end" if is_right else "start",
        )
        if level - 4 <= y + 2 and y - 12 <= level + 2:
            # The line would strike it through.
            y = level - 6
        if abs(y - (level - 6)) < 14:
            room = len(caption) * CHARACTER + _GAP + 4
            begin, end = (left, right - room) if is_right else (left + room, right)
    half = len(text) * (BOLD_CHARACTER if hot else CHARACTER) / 2 + 4
    x = min(max(peak.x, begin + half), end - half)
    title = peak.title if text != peak.title else ""
    yield Label(x=rounded(x), y=rounded(y), text=text, hot=hot, title=title)
