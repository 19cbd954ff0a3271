"""Python functions that build a configuration out of calls and literals, read from their syntax tree.

`Trainer.Config(training=TrainingConfig(steps=10))` becomes sections; a base configuration that another function
changes (`config = llama3_8b(); config.training.steps = 5`) is followed. What is computed by anything else is unknown
and kept as `${…}`, which readers take for a value that is filled in later. Nothing is executed.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

from distdoctor.oom.configs.text.tree import Entry, Section, Value

CALL = "_call"

_MAX_DEPTH = 30
_MAX_CALLS = 12
_MAX_NODES = 20_000
_MAX_INTEGER = 10**15

_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}

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


class PythonCalls:
    """One module: its functions, its constants, and the configurations that they make."""

    def __init__(self, module: ast.Module) -> None:
        self.notes: list[str] = []
        self._functions: dict[str, ast.FunctionDef] = {}
        self._assigned: dict[str, ast.expr] = {}
        self._imports: list[str] = []
        self._constants: Scope = {}
        self._calls = 0
        self._nodes = 0
        for node in module.body:
            if isinstance(node, ast.FunctionDef):
                self._functions[node.name] = node
            elif (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
            ):
                self._assigned[node.targets[0].id] = node.value
            elif (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and node.value is not None
            ):
                self._assigned[node.target.id] = node.value
            elif isinstance(node, ast.ImportFrom):
                self._imports += [node.module or "", *(each.name for each in node.names)]
        for name, value in self._assigned.items():
            self._constants[name] = self._value(value, {}, name, 0)

    def imported(self) -> list[str]:
        """Modules and names that the file imports."""
        return [name for name in self._imports if name]

    def configurations(self) -> list[str]:
        """Functions and module-level names that hold a configuration, in the order of the file."""
        names = [
            name
            for name, node in self._functions.items()
            if not name.startswith("_") and self._returns_one(node)
        ]
        for name, value in self._constants.items():
            if isinstance(value, Section) and _is_configuration(value):
                names.append(name)
        return names

    def configuration(self, name: str) -> Section:
        """The sections of one of them; empty when it cannot be followed."""
        self.notes.clear()
        self._nodes = 0
        if name in self._functions:
            value = self._run(self._functions[name], {})
        else:
            value = self._constants.get(name)
        if isinstance(value, Section):
            return value
        self.notes.append(f"`{name}` could not be followed to what it returns")
        return Section()

    def _returns_one(self, node: ast.FunctionDef) -> bool:
        required = len(node.args.args) - len(node.args.defaults)
        if required > 0:
            return False
        annotation = ast.unparse(node.returns) if node.returns is not None else ""
        if annotation.rstrip("'\"").endswith(("Trainer.Config", "JobConfig")):
            return True
        if annotation:
            return False
        self._nodes = 0
        value = self._run(node, {})
        return isinstance(value, Section) and _is_configuration(value)

    # -- functions

    def _run(self, node: ast.FunctionDef, given: Scope) -> Value:
        if self._calls >= _MAX_CALLS:
            return _unknown(node.name)
        self._calls += 1
        scope: Scope = {}
        arguments = [*node.args.posonlyargs, *node.args.args]
        for argument, default in zip(reversed(arguments), reversed(node.args.defaults), strict=False):
            scope[argument.arg] = self._value(default, {}, argument.arg, 0)
        for argument, keyword in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=False):
            if keyword is not None:
                scope[argument.arg] = self._value(keyword, {}, argument.arg, 0)
        scope.update(given)
        try:
            return self._body(node.body, scope)
        finally:
            self._calls -= 1

    def _body(self, body: list[ast.stmt], scope: Scope) -> Value:
        for statement in body:
            match statement:
                case ast.Return():
                    return self._value(statement.value, scope, "", 0) if statement.value is not None else None
                case ast.Assign(targets=[target]):
                    self._assign(
                        target,
                        self._value(statement.value, scope, _target(target), 0),
                        scope,
                        statement.lineno,
                    )
                case ast.AnnAssign(target=ast.Name(), value=ast.expr()) if statement.value is not None:
                    value = self._value(statement.value, scope, _target(statement.target), 0)
                    self._assign(statement.target, value, scope, statement.lineno)
                case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                    self._unknown_block(statement, scope)
                case _:
                    pass
        return None

    def _unknown_block(self, statement: ast.stmt, scope: Scope) -> None:
        """What a condition or a loop sets is not known afterwards."""
        changed = [
            node for node in ast.walk(statement) if isinstance(node, ast.Assign) and len(node.targets) == 1
        ]
        for node in changed[:50]:
            self._assign(node.targets[0], _unknown(ast.unparse(node.value)), scope, node.lineno)
        if changed:
            self.notes.append(
                f"line {statement.lineno} sets values under a condition or in a loop; they count as unknown"
            )

    def _assign(self, target: ast.expr, value: Value, scope: Scope, line: int) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
            return
        path = _target(target).split(".")
        root = scope.get(path[0])
        if len(path) < 2 or not isinstance(root, Section):
            return
        scope[path[0]] = _with_value(root, path[1:], value, line)

    # -- expressions

    def _value(self, node: ast.expr, scope: Scope, name: str, depth: int) -> Value:
        self._nodes += 1
        if depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            return _unknown("…")
        match node:
            case ast.Constant():
                return _literal(node.value)
            case ast.Name():
                if node.id in scope:
                    return scope[node.id]
                return self._constants.get(node.id, _unknown(node.id))
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
                        value=self._value(each, scope, f"{name}[{at}]", depth + 1),
                        line=each.lineno,
                    )
                    for at, each in enumerate(node.elts[:200])
                )
            case ast.Dict():
                return self._dictionary(node, scope, name, depth)
            case _:
                return _unknown(_shown(node))

    def _attribute(self, node: ast.Attribute, scope: Scope, name: str, depth: int) -> Value:
        base = self._value(node.value, scope, name, depth + 1)
        if isinstance(base, Section) and node.attr in base:
            return base.entries[node.attr].value
        return _unknown(_shown(node))

    def _dictionary(self, node: ast.Dict, scope: Scope, name: str, depth: int) -> Section:
        entries = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                inner = f"{name}.{key.value}"
                entries[key.value] = Entry(
                    name=inner, value=self._value(value, scope, inner, depth + 1), line=value.lineno
                )
        return Section(name=name, entries=entries, line=node.lineno)

    def _arithmetic(self, node: ast.BinOp | ast.UnaryOp, scope: Scope, name: str, depth: int) -> Value:
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, scope, name, depth + 1)
            if (
                isinstance(node.op, ast.USub)
                and isinstance(value, (int, float))
                and not isinstance(value, bool)
            ):
                return -value
            if isinstance(node.op, ast.Not) and isinstance(value, bool):
                return not value
            return _unknown(_shown(node))
        left = self._value(node.left, scope, name, depth + 1)
        right = self._value(node.right, scope, name, depth + 1)
        if not _is_number(left) or not _is_number(right):
            return _unknown(_shown(node))
        if isinstance(node.op, ast.Pow):
            return (
                _power(left, right)
                if isinstance(left, (int, float)) and isinstance(right, (int, float))
                else None
            )
        function = _ARITHMETIC.get(type(node.op))
        if function is None or not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
            return _unknown(_shown(node))
        try:
            result = function(left, right)
        except (ZeroDivisionError, OverflowError):
            return _unknown(_shown(node))
        return result if abs(result) < _MAX_INTEGER else _unknown(_shown(node))

    def _call(self, node: ast.Call, scope: Scope, name: str, depth: int) -> Value:
        called = _target(node.func)
        keywords = {each.arg: each.value for each in node.keywords if each.arg is not None}
        if called in _COMPUTED:
            return self._computed(node, called, scope, name, depth)
        function = self._functions.get(called)
        if function is not None:
            parameters = [each.arg for each in [*function.args.posonlyargs, *function.args.args]]
            given = {
                parameter: self._value(value, scope, parameter, depth + 1)
                for parameter, value in zip(parameters, node.args, strict=False)
            }
            given |= {key: self._value(value, scope, key, depth + 1) for key, value in keywords.items()}
            return self._run(function, given)
        if called in ("copy.deepcopy", "deepcopy", "copy.copy", "cast", "typing.cast") and node.args:
            return self._value(node.args[-1], scope, name, depth + 1)
        if called in ("replace", "dataclasses.replace") and node.args:
            base = self._value(node.args[0], scope, name, depth + 1)
            if isinstance(base, Section):
                for key, value in keywords.items():
                    base = _with_value(
                        base, [key], self._value(value, scope, f"{name}.{key}", depth + 1), value.lineno
                    )
                return base
        return self._section(node, called, keywords, scope, name=name, depth=depth)

    def _computed(self, node: ast.Call, called: str, scope: Scope, name: str, depth: int) -> Value:
        """`int("8")` is a number; what the environment or anything else gives is not known."""
        if called in ("int", "float") and len(node.args) == 1 and not node.keywords:
            value = self._value(node.args[0], scope, name, depth + 1)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return int(value) if called == "int" else float(value)
        return _unknown(_shown(node))

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
            value = self._value(argument, scope, f"{prefix}{at}", depth + 1)
            entries[str(at)] = Entry(name=f"{prefix}{at}", value=value, line=argument.lineno)
        for key, argument in list(keywords.items())[:200]:
            inner = f"{prefix}{key}"
            entries[key] = Entry(
                name=inner, value=self._value(argument, scope, inner, depth + 1), line=argument.lineno
            )
        return Section(name=name, entries=entries, line=node.lineno)


def _is_configuration(section: Section) -> bool:
    call = section.get(CALL)
    name = str(call.value) if call is not None else ""
    return name.endswith(("Config", "Trainer.Config")) and ("training" in section or "model_spec" in section)


def _target(node: ast.expr) -> str:
    """The dotted name of a target or of what is called; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 20:
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def _with_value(section: Section, path: list[str], value: Value, line: int) -> Section:
    """`section` with one value replaced; sections on the way are made where they are missing."""
    key = path[0]
    entries = dict(section.entries)
    name = f"{section.name}.{key}" if section.name else key
    if len(path) > 1:
        old = entries.get(key)
        inner = old.value if old is not None and isinstance(old.value, Section) else Section(name=name)
        value = _with_value(inner, path[1:], value, line)
    entries[key] = Entry(name=name, value=value, line=line)
    return Section(name=section.name, entries=entries, line=section.line)


def _literal(value: object) -> Value:
    if value is None or isinstance(value, (bool, int, str)):
        return (
            value
            if not isinstance(value, int) or abs(value) < _MAX_INTEGER
            else _unknown("a very large number")
        )
    if isinstance(value, float):
        return value if math.isfinite(value) else _unknown(str(value))
    return _unknown(type(value).__name__)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _power(left: float, right: float) -> Value:
    if 0 <= right <= 64 and abs(left) <= 1 << 20:
        try:
            result = left**right
        except OverflowError:
            return _unknown("a power")
        return result if abs(result) < _MAX_INTEGER else _unknown("a power")
    return _unknown("a power")


def _unknown(text: str) -> str:
    """A value that only running the file would give, in the form of a variable."""
    return "${" + " ".join(text.split())[:60].replace("{", "(").replace("}", ")").replace("$", "") + "}"


def _shown(node: ast.AST) -> str:
    try:
        return ast.unparse(node)[:60]
    except (RecursionError, ValueError):
        return "…"
