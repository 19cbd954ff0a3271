"""Interpolations of OmegaConf, as Hydra's YAML has them: `${model.seq_length}`, `${.hidden_size}`, `${multiply:2,4}`.

Only references, environment defaults and sums and products of whole numbers are resolved. Nothing is imported or run.
"""

from __future__ import annotations

import re

from distdoctor.oom.configs.text.tree import Section, Value
from distdoctor.oom.configs.text.values import as_int

_MAX_DEPTH = 8
_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_MISSING = "???"


def is_missing(value: Value) -> bool:
    """`???`: OmegaConf's mark for a value that the user has to give."""
    return isinstance(value, str) and value.strip() == _MISSING


def resolved(root: Section, value: Value, place: str) -> Value:
    """`value` with its interpolations resolved as far as the file allows.

    `place` is the dotted name of the key, for relative references. What cannot be resolved comes back as it stands.
    """
    if not isinstance(value, str) or "${" not in value or len(value) > 2000:
        return value
    text: Value = value
    for _ in range(_MAX_DEPTH):
        if not isinstance(text, str):
            return text
        match = _INNERMOST.search(text)
        if match is None:
            return text
        found = _one(root, match[1].strip(), place)
        if found is None or isinstance(found, (Section, tuple)):
            points_to_null = found is None and _is_null(root, match[1], place)
            return None if points_to_null and _is_whole(match, text) else value
        if _is_whole(match, text):
            text = found
        else:
            text = text[: match.start()] + str(found) + text[match.end() :]
            if len(text) > 4000:
                return value
    return value


def _is_whole(match: re.Match[str], text: str) -> bool:
    return match.start() == 0 and match.end() == len(text)


def _is_null(root: Section, reference: str, place: str) -> bool:
    entry = _entry(root, reference.strip(), place)
    return entry is not None and entry[0] is None


def _one(root: Section, inside: str, place: str) -> Value:
    name, colon, arguments = inside.partition(":")
    if colon:
        return _function(name.strip(), [part.strip() for part in arguments.split(",")])
    entry = _entry(root, inside, place)
    return entry[0] if entry is not None else None


def _entry(root: Section, reference: str, place: str) -> tuple[Value] | None:
    dots = len(reference) - len(reference.lstrip("."))
    path = [part for part in reference.lstrip(".").split(".") if part]
    if dots:
        base = place.split(".")
        path = base[: max(0, len(base) - dots)] + path
    section = root
    for part in path[:-1]:
        section = section.section(part)
    entry = section.get(path[-1]) if path else None
    return (entry.value,) if entry is not None else None


def _function(name: str, arguments: list[str]) -> Value:
    if name in ("oc.env", "env"):
        return arguments[1].strip("'\"") if len(arguments) > 1 else None
    numbers = [as_int(argument) for argument in arguments]
    if not numbers or any(number is None for number in numbers):
        return None
    known = [number for number in numbers if number is not None]
    if name in ("multiply", "mul", "product"):
        product = 1
        for number in known:
            product *= number
        return product
    if name in ("add", "sum"):
        return sum(known)
    if name in ("divide", "div", "int_div", "floor_div") and len(known) == 2 and known[1]:
        return known[0] // known[1]
    return None
