"""JSON as benchmarks write it by hand: `inf` and `nan` without quotes, and cut off when the run was killed."""

from __future__ import annotations

import json
import math
import re

_BARE_NUMBERS = re.compile(r"(?<=[:\[,])\s*[-+]?(?:inf(?:inity)?|nan)\b", re.IGNORECASE)
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_CLOSING = {"{": "}", "[": "]"}

# Of a number as text; longer ones are damage.
_MAX_NUMBER_CHARACTERS = 64


def parse_json(text: str) -> tuple[object, bool]:
    """The value in `text`, and whether it is whole; (None, False) when it is no JSON at all.

    Of a file that was cut the objects that are complete are kept. Never raises.
    """
    text = text.lstrip("\ufeff \t\r\n")
    value = _loads(text)
    if value is not None:
        return value, True
    text = _BARE_NUMBERS.sub(" null", text)
    value = _loads(text)
    if value is not None:
        return value, True
    repaired = _closed(text)
    return (_loads(repaired), False) if repaired else (None, False)


def _loads(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _closed(text: str) -> str | None:
    """`text` up to its last complete object, with what is open then closed."""
    open_marks: list[str] = []
    best: tuple[int, tuple[str, ...]] | None = None
    for match in _MARKS.finditer(text):
        mark = match.group()
        if mark in _CLOSING:
            if len(open_marks) > 100:
                return None
            open_marks.append(mark)
        elif mark in ("}", "]"):
            if not open_marks or _CLOSING[open_marks.pop()] != mark:
                break
            best = (match.end(), tuple(open_marks))
    if best is None:
        return None
    end, still_open = best
    return text[:end] + "".join(_CLOSING[mark] for mark in reversed(still_open))


def number(value: object) -> float | None:
    """A finite, non-negative number, also when it is written as a string; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if len(value) > _MAX_NUMBER_CHARACTERS:
            return None
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def whole(value: object, *, least: int = 0) -> int | None:
    """A whole number of at least `least`, also as a padded string ("    -1"); None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) > 20 or not re.fullmatch(r"-?\d+", text):
            return None
        value = int(text)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
        return None
    return value


def truth(value: object) -> bool | None:
    """Booleans, which nccl-tests writes as strings; None for "unchecked" and anything else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else None


def members(value: object) -> dict[str, object]:
    """`value` when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object, limit: int) -> list[object]:
    """The first `limit` of a list; empty for anything else."""
    return value[:limit] if isinstance(value, list) else []


def word(value: object, limit: int = 200) -> str | None:
    """A string that is not blank, at most `limit` characters of it."""
    return value.strip()[:limit] or None if isinstance(value, str) else None
