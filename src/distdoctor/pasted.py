"""Undoing what terminals, browsers and ticket systems do to a tool's output. Lines keep their numbers."""

from __future__ import annotations

import html
import re

from distdoctor.evidence import MAX_LINE_CHARACTERS

# CSI (colours, cursor), OSC (titles, links), and two-character escapes.
_ANSI = re.compile(
    r"\x1b\[[0-9;:?<=>!]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|\x9b[0-9;?]*[@-~]"
)
# Escape sequences whose ESC was lost on the way: "[1m", "[0;31m", "[4mGPU0[0m".
_ORPHANED_SGR = re.compile(r"\[(?:[0-9]{1,3}(?:;[0-9]{1,3})*)?m")
_LINE_ENDS = re.compile(r"\r\n|\r|\x85|\u2028|\u2029|\x0b|\x0c")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_SPACES = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#39|#x27|#34);")
_QUOTE = re.compile(r"^[ \t]{0,3}(?:> ?)+")
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*[\w+-]*[ \t]*$")
_TAG = re.compile(
    r"</?(?:details|summary|pre|code|br|p|div|span|samp|kbd|tt|font|blockquote)\b[^<>]*>", re.IGNORECASE
)


def clean_pasted(text: str) -> str:
    """`text` as the tool printed it: no colours, quotes, fences, tags, entities or invisible characters.

    Every line stays where it was (a dropped fence leaves an empty line), so that line numbers hold. Lines
    are cut at `MAX_LINE_CHARACTERS`.
    """
    text = _LINE_ENDS.sub("\n", text)
    if "\x1b" in text or "\x9b" in text:
        text = _ANSI.sub("", text)
    if "[0m" in text or "[m" in text:
        text = _ORPHANED_SGR.sub("", text)
    text = _CONTROL.sub("", text)
    text = _SPACES.sub(" ", _INVISIBLE.sub("", text))
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match.group()).replace("\xa0", " "), text)
    return "\n".join(_clean_line(line) for line in text.split("\n"))


def _clean_line(line: str) -> str:
    if len(line) > MAX_LINE_CHARACTERS:
        line = line[:MAX_LINE_CHARACTERS]
    if ">" in line:
        line = _QUOTE.sub("", line)
        if "<" in line:
            line = _TAG.sub("", line)
    if line.lstrip()[:3] in ("```", "~~~") and _FENCE.match(line):
        return ""
    return line.rstrip()
