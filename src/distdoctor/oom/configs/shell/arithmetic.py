"""Integer arithmetic of the shell: `$((NODES * 8))`, `$(expr 2 \\* 8)`. A small evaluator of its own."""

from __future__ import annotations

import re
from collections.abc import Callable

# Longer expressions are no arithmetic of a launch script.
MAX_CHARACTERS = 400

# A shell's integers have 64 bits; a result beyond is not one that the script meant.
_MAX_VALUE = 1 << 63

_MAX_DEPTH = 40

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d[\d_]*)|(\$?\{?[A-Za-z_]\w*\}?)|(\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!?:]))"
)

_LEVELS = (("||",), ("&&",), ("==", "!="), ("<=", ">=", "<", ">"), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))

Lookup = Callable[[str], "int | None"]


class _UnreadableError(Exception):
    """Not integer arithmetic, or a variable in it is unknown."""


def evaluate(expression: str, lookup: Lookup) -> int | None:
    """The value of a shell arithmetic expression, or None when something in it is unknown or cannot be read.

    `lookup` gives the integer that a variable holds, or None. Division truncates towards zero as in the shell.
    """
    if len(expression) > MAX_CHARACTERS:
        return None
    try:
        return _Evaluator(_tokens(expression), lookup).whole()
    except (_UnreadableError, RecursionError):
        return None


def _tokens(expression: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    text = expression.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _UnreadableError
        tokens.append(match[0].strip())
        position = match.end()
    return tokens


class _Evaluator:
    def __init__(self, tokens: list[str], lookup: Lookup) -> None:
        self._tokens = tokens
        self._at = 0
        self._lookup = lookup
        self._depth = 0

    def whole(self) -> int:
        value = self._ternary()
        if self._at != len(self._tokens):
            raise _UnreadableError
        return value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, *wanted: str) -> str | None:
        token = self._peek()
        if token in wanted:
            self._at += 1
            return token
        return None

    def _ternary(self) -> int:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _UnreadableError
        condition = self._level(0)
        if self._take("?"):
            first = self._ternary()
            if not self._take(":"):
                raise _UnreadableError
            second = self._ternary()
            condition = first if condition else second
        self._depth -= 1
        return condition

    def _level(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        value = self._level(level + 1)
        while operator := self._take(*_LEVELS[level]):
            value = _apply(operator, value, self._level(level + 1))
        return value

    def _power(self) -> int:
        base = self._unary()
        if not self._take("**"):
            return base
        exponent = self._power()
        if not 0 <= exponent < 64 or abs(base) > 1 << 32:
            raise _UnreadableError
        return _bounded(base**exponent)

    def _unary(self) -> int:
        if self._take("-"):
            return -self._unary()
        if self._take("+"):
            return self._unary()
        if self._take("!"):
            return int(not self._unary())
        if self._take("("):
            value = self._ternary()
            if not self._take(")"):
                raise _UnreadableError
            return value
        token = self._peek()
        self._at += 1
        if token[:1].isdigit():
            if len(token) > 1 and token[0] == "0" and token[1] in "xX":
                return _bounded(int(token, 16))
            return _bounded(int(token.replace("_", "")))
        name = token.strip("${}")
        known = self._lookup(name) if name else None
        if known is None:
            raise _UnreadableError
        return _bounded(known)


def _bounded(value: int) -> int:
    if abs(value) >= _MAX_VALUE:
        raise _UnreadableError
    return value


def _apply(operator: str, left: int, right: int) -> int:
    match operator:
        case "+":
            return _bounded(left + right)
        case "-":
            return _bounded(left - right)
        case "*":
            return _bounded(left * right)
        case "/" | "%":
            if right == 0:
                raise _UnreadableError
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if operator == "/" else left - quotient * right
        case "<<" | ">>":
            if not 0 <= right < 63:
                raise _UnreadableError
            return _bounded(left << right) if operator == "<<" else left >> right
        case "&&":
            return int(bool(left and right))
        case "||":
            return int(bool(left or right))
        case _:
            return int(_compare(operator, left, right))


def _compare(operator: str, left: int, right: int) -> bool:
    return {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        ">": left > right,
        "<=": left <= right,
        ">=": left >= right,
    }[operator]
