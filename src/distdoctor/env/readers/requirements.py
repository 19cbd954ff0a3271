"""`Requires-Dist` lines of a METADATA file as exact pins: which nvidia-* versions a torch wheel was built for.

Grammar: PEP 508, as far as wheels use it: `name[extras] (==1.2) ; marker` or `name[extras]==1.2; marker`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from distdoctor.env.distributions import normalise_name
from distdoctor.env.versions import parse_version

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[(?P<extras>[^\]]*)\])?\s*\(?(?P<versions>[^;()]*)\)?\s*(?:;\s*(?P<marker>.*))?$"
)
_EXACT = re.compile(r"={2,3}\s*(?P<version>[\w.!+-]+(?:\.\*)?)")
_TOKEN = re.compile(r"\s*(?:(?P<paren>[()])|(?P<word>and|or)\b|(?P<test>[^()]+?(?=\s+(?:and|or)\b|[()]|$)))")
_TEST = re.compile(
    r"""\s*(?P<left>[\w.]+|'[^']*'|"[^"]*")\s*(?P<operator>==|!=|<=|>=|<|>|~=|not\s+in\b|in\b)\s*(?P<right>[\w.]+|'[^']*'|"[^"]*")\s*$"""
)

# Torch's metadata has some thirty lines, cuda-toolkit's a hundred.
_MAX_LINES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One requirement that applies here."""

    name: str
    extras: tuple[str, ...]
    pin: str | None
    """Exact version, with a trailing ".*" when any suffix will do; None for a range."""


def read_requirements(metadata: str, environment: Mapping[str, str]) -> list[Requirement]:
    """Requirements whose marker holds in `environment` (PEP 508 names: sys_platform, platform_machine, extra …).

    A marker that cannot be understood drops its line: no claim is made from it.
    """
    found: list[Requirement] = []
    for line in metadata.splitlines()[:_MAX_LINES]:
        if not line.strip():
            break  # the description begins
        if not line.startswith("Requires-Dist:"):
            continue
        match = _REQUIREMENT.match(line.partition(":")[2].strip())
        if match is None or not _marker_holds(match["marker"], environment):
            continue
        exact = _EXACT.fullmatch(match["versions"].strip())
        found.append(
            Requirement(
                name=normalise_name(match["name"]),
                extras=tuple(extra.strip() for extra in (match["extras"] or "").split(",") if extra.strip()),
                pin=exact["version"] if exact else None,
            )
        )
    return found


def satisfies(version: str, pin: str) -> bool:
    """True when an installed `version` is the pinned one. Local and post parts of the installed one do not count."""
    bare = re.sub(r"(?:\.post\d+)?(?:\+.*)?$", "", version)
    if pin.endswith(".*"):
        return f"{bare}.".startswith(pin[:-1])
    return bare == re.sub(r"(?:\.post\d+)?(?:\+.*)?$", "", pin) or (
        parse_version(bare) == parse_version(pin)
        and bare.replace(".", "").isdigit()
        and pin.replace(".", "").isdigit()
    )


def _marker_holds(marker: str | None, environment: Mapping[str, str]) -> bool:
    if not marker or not marker.strip():
        return True
    try:
        tokens = list(_tokens(marker))
        value = _either(tokens, environment)
        return value and not tokens
    except (ValueError, IndexError, RecursionError):
        return False


def _tokens(marker: str) -> Iterator[str]:
    position = 0
    while position < len(marker.rstrip()):
        match = _TOKEN.match(marker, position)
        if match is None or match.end() == position:
            raise ValueError(marker)
        yield match.group().strip()
        position = match.end()


def _either(tokens: list[str], environment: Mapping[str, str]) -> bool:
    value = _both(tokens, environment)
    while tokens and tokens[0] == "or":
        tokens.pop(0)
        right = _both(tokens, environment)
        value = value or right
    return value


def _both(tokens: list[str], environment: Mapping[str, str]) -> bool:
    value = _one(tokens, environment)
    while tokens and tokens[0] == "and":
        tokens.pop(0)
        right = _one(tokens, environment)
        value = value and right
    return value


def _one(tokens: list[str], environment: Mapping[str, str]) -> bool:
    word = tokens.pop(0)
    if word == "(":
        value = _either(tokens, environment)
        if tokens.pop(0) != ")":
            raise ValueError(word)
        return value
    match = _TEST.match(word)
    if match is None:
        raise ValueError(word)
    left, right = _value(match["left"], environment), _value(match["right"], environment)
    return _compare(left, re.sub(r"\s+", " ", match["operator"]), right, is_version="version" in word)


def _value(text: str, environment: Mapping[str, str]) -> str:
    if text[0] in "'\"":
        return text[1:-1]
    if text not in environment:
        raise ValueError(f"unknown marker variable {text}")
    return environment[text]


def _compare(left: str, operator: str, right: str, *, is_version: bool) -> bool:
    if operator in ("in", "not in"):
        return (left in right) is (operator == "in")
    a: object = left
    b: object = right
    if is_version:
        a, b = parse_version(left), parse_version(right)
        if a is None or b is None:
            raise ValueError(left)
    match operator:
        case "==":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b  # type: ignore[operator,no-any-return]  # both texts or both tuples
        case "<=":
            return a <= b  # type: ignore[operator,no-any-return]
        case ">":
            return a > b  # type: ignore[operator,no-any-return]
        case ">=":
            return a >= b  # type: ignore[operator,no-any-return]
    raise ValueError(operator)
