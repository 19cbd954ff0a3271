"""The traceback that belongs to a message: frames of the same rank before it, or after it when it was put first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.oom.facts.events import Frame
from distdoctor.oom.messages.lines import LogLine

# Traces of compiled or deeply wrapped models are long; these innermost frames decide. Our own bound.
MAX_FRAMES = 60

# How far a traceback can be from its message, in lines of the same rank. Our own bound.
_LINES_BACK = 260
_LINES_AHEAD = 200

MAX_NATIVE_FRAMES = 12

_FRAME = re.compile(
    r'File "(?P<file>[^"]{1,400})", (?:line (?P<line>\d{1,9})(?:,? in (?P<function>[\w.<>]+))?|(?P<rest>.+))'
)
# rich: "│ /opt/x/adamw.py:220 in step │", its line of code behind "❱ 220"; IPython: "File ~/x/engine.py:1184, in Engine.step(self)"
# and "~/x/trainer.py in fit(self, model)".
_SHORT = re.compile(
    r"^\s*(?:[│|] )?(?:File )?(?P<file>[\w./~\\: -]{1,300}\.py):(?P<line>\d{1,9}),? in (?P<function>[\w.<>]+)"
)
_OLD_IPYTHON = re.compile(r"^(?P<file>[~/][^\s]{1,300}\.py) in (?P<function>\w+)\(")
_POINTER = re.compile(r"^\s{0,40}[│|]?\s{0,40}(?:❱|>|-{1,40}>)\s{0,40}\d{1,9}[ │]*(?P<code>.{1,300}?)[ │]*$")
_POINTER_LINES = 8
_START = re.compile(r"Traceback \(most recent call last\)|Stack \(most recent call last\)")
_NATIVE = re.compile(r"^\s*frame #\d+: (?P<what>.{1,300})")
_MARKS = re.compile(r"^[\s~^│╰╭─❱]*$")


def frames_before(lines: Sequence[LogLine]) -> tuple[Frame, ...]:
    """Frames of the last traceback in `lines`, which end where the message begins."""
    start = 0
    window = lines[-_LINES_BACK:]
    seen_frame = False
    for index in range(len(window) - 1, -1, -1):
        text = window[index].text
        seen_frame = seen_frame or "File " in text or ".py:" in text
        if seen_frame and _begins(text):
            start = index
            break
    return _frames(window[start:])


def frames_after(lines: Sequence[LogLine], *, has_begun: bool = False) -> tuple[Frame, ...]:
    """Frames of the first traceback in `lines`, for logs that put the message first.

    `has_begun`: the traceback's first line stands on the message's own line (torchrun's error.json).
    """
    window = lines[:_LINES_AHEAD]
    end = len(window)
    started = has_begun
    for index, line in enumerate(window):
        if _begins(line.text):
            if started:
                end = index
                break
            started = True
    return _frames(window[:end]) if started else ()


def native_frames(lines: Sequence[LogLine]) -> tuple[str, ...]:
    """C++ frames right behind a message."""
    found = (_NATIVE.match(line.text) for line in lines[:80] if "frame #" in line.text)
    return tuple(match["what"] for match in found if match)[:MAX_NATIVE_FRAMES]


def _frames(lines: Sequence[LogLine]) -> tuple[Frame, ...]:
    frames: list[Frame] = []
    for index, line in enumerate(lines):
        # Patterns cost more than looking for a word, and most lines hold none.
        match = _FRAME.search(line.text) if 'File "' in line.text else None
        pointed = match is None
        if match is None and ".py" in line.text:
            match = _SHORT.match(line.text) or _OLD_IPYTHON.match(line.text)
        if match is None:
            continue
        groups = match.groupdict()
        code = groups.get("rest") or ""
        if pointed:
            code = _pointed_code(lines[index + 1 : index + 1 + _POINTER_LINES])
        elif not code and index + 1 < len(lines):
            following = lines[index + 1].text.strip()
            if (
                following
                and "File " not in following[:6]
                and not _MARKS.match(following)
                and "Error" not in following[:40]
            ):
                code = following[:300]
        frames.append(
            Frame(
                file=match["file"],
                function=(groups.get("function") or "").rsplit(".", 1)[-1],
                code=code[:300],
                line=int(groups["line"]) if groups.get("line") else None,
            )
        )
    return tuple(frames[-MAX_FRAMES:])


def begins_traceback(line: LogLine) -> bool:
    """Whether a line holds the head of a traceback."""
    return _begins(line.text)


def _begins(text: str) -> bool:
    return "(most recent call last)" in text and _START.search(text) is not None


def _pointed_code(lines: Sequence[LogLine]) -> str:
    """The line of code that rich or IPython points to."""
    for line in lines:
        if match := _POINTER.match(line.text):
            return match["code"].strip(" │|")
        if _SHORT.match(line.text):
            break
    return ""
