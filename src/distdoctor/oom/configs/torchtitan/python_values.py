"""Literals and arithmetic of a Python configuration. What is computed by anything else is unknown: `${…}`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import TypeGuard

from distdoctor.oom.configs.text.tree import Value

_MAX_INTEGER = 10**15

_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


def literal(value: object) -> Value:
    """A constant of the source; unknown where no configuration holds such a value."""
    if value is None or isinstance(value, (bool, int, str)):
        return (
            value
            if not isinstance(value, int) or abs(value) < _MAX_INTEGER
            else unknown("a very large number")
        )
    if isinstance(value, float):
        return value if math.isfinite(value) else unknown(str(value))
    return unknown(type(value).__name__)


def negated(node: ast.UnaryOp, value: Value) -> Value:
    """`-value` or `not value`."""
    if isinstance(node.op, ast.USub) and is_number(value):
        return -value
    if isinstance(node.op, ast.Not) and isinstance(value, bool):
        return not value
    return unknown(shown(node))


def combined(node: ast.BinOp, left: Value, right: Value) -> Value:
    """`left + right` and the like, of numbers that stay within sizes of a configuration."""
    if not is_number(left) or not is_number(right):
        return unknown(shown(node))
    if isinstance(node.op, ast.Pow):
        return _power(left, right)
    function = _ARITHMETIC.get(type(node.op))
    if function is None:
        return unknown(shown(node))
    try:
        result = function(left, right)
    except (ZeroDivisionError, OverflowError):
        return unknown(shown(node))
    return result if abs(result) < _MAX_INTEGER else unknown(shown(node))


def _power(left: float, right: float) -> Value:
    if 0 <= right <= 64 and abs(left) <= 1 << 20:
        try:
            result = left**right
        except OverflowError:
            return unknown("a power")
        return result if abs(result) < _MAX_INTEGER else unknown("a power")
    return unknown("a power")


def is_number(value: Value) -> TypeGuard[int | float]:
    """Whether it is a number; `True` is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def unknown(text: str) -> str:
    """A value that only running the file would give, in the form of a variable."""
    return "${" + " ".join(text.split())[:60].replace("{", "(").replace("}", ")").replace("$", "") + "}"


def shown(node: ast.AST) -> str:
    """An expression as it stands, cut short."""
    try:
        return ast.unparse(node)[:60]
    except (RecursionError, ValueError):
        return "…"
