"""Words about running out of memory that are no failure: comments of a configuration, advice, questions."""

from __future__ import annotations

import re

# A comment of a script or configuration. `#3` (a worker's number) is none.
_COMMENT = re.compile(r"(?:^|\s)(?:#|//)\s")

_ADVICE = re.compile(
    r"\b(?:if (?:you|we|the|there)|when you|to (?:avoid|prevent|fix|solve|work around)|how (?:do|can|to|should)|why (?:do|does|did|am|is)"
    r"|in case of|may (?:lead to|cause|run|end)|might (?:lead to|cause|run)|can (?:lead to|cause)|could (?:lead to|cause)|(?:usually|typically|often|most likely) (?:means?|was|is))\b",
    re.IGNORECASE,
)
# What a sentence says of an exit code; a log that reports one ends there, or goes on with a pid or a host.
_ABOUT_A_CODE = re.compile(
    r"^[`'\")]*\s+(?:was|were|is|are|means?|usually|typically|often|most|indicates?|stands|signals?)\b"
)


# A program that would print, or looks for, these words.
_CODE = re.compile(r"\b(?:(?:echo|printf|e?grep)\s|(?:print|log(?:ger|ging)?\.\w{1,30})\()[^|;]{0,80}$")


def is_code(before: str) -> bool:
    """Whether what stands before a message on its line makes it a word of a program's text."""
    return _CODE.search(before) is not None


def is_asked(after: str) -> bool:
    """Whether a question mark follows a message: it is asked about, as in a list of questions."""
    return after.lstrip("`'\"").startswith("?")


def is_comment(before: str) -> bool:
    """Whether what stands before a message on its line makes it a comment."""
    return _COMMENT.search(before) is not None


def is_advice(before: str) -> bool:
    """Whether what stands before a message on its line makes it advice or a question."""
    return _ADVICE.search(before) is not None


def speaks_of_a_code(before: str, after: str) -> bool:
    """Whether an exit code is spoken of rather than reported."""
    return (
        is_comment(before) or is_advice(before) or is_code(before) or _ABOUT_A_CODE.match(after) is not None
    )
