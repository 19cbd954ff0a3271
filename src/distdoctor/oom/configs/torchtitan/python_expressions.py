"""Expressions that make a configuration: literals, names, arithmetic, lists, and calls that become sections."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from distdoctor.oom.configs.text.tree import Entry, Section, Value
from distdoctor.oom.configs.torchtitan.options import CALL
from distdoctor.oom.configs.torchtitan.python_sections import dotted_name, with_value
from distdoctor.oom.configs.torchtitan.python_values import (
    combined,
    is_number,
    literal,
    negated,
    shown,
    unknown,
)

_MAX_DEPTH = 30
_MAX_NODES = 20_000

# Calls that make values, not parts of a configuration.
_COMPUTED = frozenset(
    {
        *(
            "int",
            "float",
            "str",
            "bool",
            "len",
            "max",
            "min",
            "sum",
            "abs",
            "round",
            "getattr",
            "list",
            "tuple",
            "dict",
        ),
        *("os.environ.get", "os.getenv", "os.environ", "next", "range", "open", "eval", "exec", "__import__"),
    }
)

Scope = dict[str, Value]


class Expressions:
    """Expressions of one module. `run` gives what one of its functions returns for given arguments."""

    def __init__(
        self,
        functions: Mapping[str, ast.FunctionDef],
        constants: Scope,
        run: Callable[[ast.FunctionDef, Scope], Value],
    ) -> None:
        self.nodes = 0
        """How many were read; beyond a bound everything is unknown."""
        self._functions = functions
        self._constants = constants
        self._run = run

    def value(self, node: ast.expr, scope: Scope, name: str, depth: int = 0) -> Value:
        """The value of an expression; `name` is where it goes, dotted."""
        self.nodes += 1
        if depth > _MAX_DEPTH or self.nodes > _MAX_NODES:
            return unknown("…")
        match node:
            case ast.Constant():
                return literal(node.value)
            case ast.Name():
                if node.id in scope:
                    return scope[node.id]
                return self._constants.get(node.id, unknown(node.id))
            case ast.Attribute():
                return self._attribute(node, scope, name, depth)
            case ast.BinOp() | ast.UnaryOp():
                return self._arithmetic(node, scope, name, depth)
            case ast.Call():
                return self._call(node, scope, name, depth)
            case ast.List() | ast.Tuple():
                return tuple(
                    Entry(
                        name=f"{name}[{at}]",
                        value=self.value(each, scope, f"{name}[{at}]", depth + 1),
                        line=each.lineno,
                    )
                    for at, each in enumerate(node.elts[:200])
                )
            case ast.Dict():
                return self._dictionary(node, scope, name, depth)
            case _:
                return unknown(shown(node))

    def _attribute(self, node: ast.Attribute, scope: Scope, name: str, depth: int) -> Value:
        base = self.value(node.value, scope, name, depth + 1)
        if isinstance(base, Section) and node.attr in base:
            return base.entries[node.attr].value
        return unknown(shown(node))

    def _dictionary(self, node: ast.Dict, scope: Scope, name: str, depth: int) -> Section:
        entries = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                inner = f"{name}.{key.value}"
                entries[key.value] = Entry(
                    name=inner, value=self.value(value, scope, inner, depth + 1), line=value.lineno
                )
        return Section(name=name, entries=entries, line=node.lineno)

    def _arithmetic(self, node: ast.BinOp | ast.UnaryOp, scope: Scope, name: str, depth: int) -> Value:
        if isinstance(node, ast.UnaryOp):
            return negated(node, self.value(node.operand, scope, name, depth + 1))
        left = self.value(node.left, scope, name, depth + 1)
        right = self.value(node.right, scope, name, depth + 1)
        return combined(node, left, right)

    def _call(self, node: ast.Call, scope: Scope, name: str, depth: int) -> Value:
        called = dotted_name(node.func)
        keywords = {each.arg: each.value for each in node.keywords if each.arg is not None}
        if called in _COMPUTED:
            return self._computed(node, called, scope, name, depth)
        function = self._functions.get(called)
        if function is not None:
            parameters = [each.arg for each in [*function.args.posonlyargs, *function.args.args]]
            given = {
                parameter: self.value(value, scope, parameter, depth + 1)
                for parameter, value in zip(parameters, node.args, strict=False)
            }
            given |= {key: self.value(value, scope, key, depth + 1) for key, value in keywords.items()}
            return self._run(function, given)
        if called in ("copy.deepcopy", "deepcopy", "copy.copy", "cast", "typing.cast") and node.args:
            return self.value(node.args[-1], scope, name, depth + 1)
        if called in ("replace", "dataclasses.replace") and node.args:
            base = self.value(node.args[0], scope, name, depth + 1)
            if isinstance(base, Section):
                for key, value in keywords.items():
                    base = with_value(
                        base, [key], self.value(value, scope, f"{name}.{key}", depth + 1), value.lineno
                    )
                return base
        return self._section(node, called, keywords, scope, name=name, depth=depth)

    def _computed(self, node: ast.Call, called: str, scope: Scope, name: str, depth: int) -> Value:
        """`int("8")` is a number; what the environment or anything else gives is not known."""
        if called in ("int", "float") and len(node.args) == 1 and not node.keywords:
            value = self.value(node.args[0], scope, name, depth + 1)
            if is_number(value):
                return int(value) if called == "int" else float(value)
        return unknown(shown(node))

    def _section(
        self,
        node: ast.Call,
        called: str,
        keywords: dict[str, ast.expr],
        scope: Scope,
        *,
        name: str,
        depth: int,
    ) -> Section:
        prefix = f"{name}." if name else ""
        entries = {CALL: Entry(name=f"{prefix}{CALL}", value=called or "?", line=node.lineno)}
        for at, argument in enumerate(node.args[:50]):
            value = self.value(argument, scope, f"{prefix}{at}", depth + 1)
            entries[str(at)] = Entry(name=f"{prefix}{at}", value=value, line=argument.lineno)
        for key, argument in list(keywords.items())[:200]:
            inner = f"{prefix}{key}"
            entries[key] = Entry(
                name=inner, value=self.value(argument, scope, inner, depth + 1), line=argument.lineno
            )
        return Section(name=name, entries=entries, line=node.lineno)
