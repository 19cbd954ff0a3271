"""Python functions that build a configuration out of calls and literals, read from their syntax tree.

`Trainer.Config(training=TrainingConfig(steps=10))` becomes sections; a base configuration that another function
changes (`config = llama3_8b(); config.training.steps = 5`) is followed. What is computed by anything else is unknown
and kept as `${…}`, which readers take for a value that is filled in later. Nothing is executed.
"""

from __future__ import annotations

import ast

from distdoctor.oom.configs.text.tree import Section, Value
from distdoctor.oom.configs.torchtitan.python_expressions import Expressions, Scope
from distdoctor.oom.configs.torchtitan.python_sections import dotted_name, is_configuration, with_value
from distdoctor.oom.configs.torchtitan.python_values import unknown

_MAX_CALLS = 12


class PythonModule:
    """One module: its functions, its constants, and the configurations that they make."""

    def __init__(self, module: ast.Module) -> None:
        self.notes: list[str] = []
        self._functions: dict[str, ast.FunctionDef] = {}
        self._assigned: dict[str, ast.expr] = {}
        self._imports: list[str] = []
        self._constants: Scope = {}
        self._calls = 0
        self._expressions = Expressions(self._functions, self._constants, self._run)
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
            self._constants[name] = self._expressions.value(value, {}, name)

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
            if isinstance(value, Section) and is_configuration(value):
                names.append(name)
        return names

    def configuration(self, name: str) -> Section:
        """The sections of one of them; empty when it cannot be followed."""
        self.notes.clear()
        self._expressions.nodes = 0
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
        self._expressions.nodes = 0
        value = self._run(node, {})
        return isinstance(value, Section) and is_configuration(value)

    # -- functions

    def _run(self, node: ast.FunctionDef, given: Scope) -> Value:
        if self._calls >= _MAX_CALLS:
            return unknown(node.name)
        self._calls += 1
        scope: Scope = {}
        arguments = [*node.args.posonlyargs, *node.args.args]
        for argument, default in zip(reversed(arguments), reversed(node.args.defaults), strict=False):
            scope[argument.arg] = self._expressions.value(default, {}, argument.arg)
        for argument, keyword in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=False):
            if keyword is not None:
                scope[argument.arg] = self._expressions.value(keyword, {}, argument.arg)
        scope.update(given)
        try:
            return self._body(node.body, scope)
        finally:
            self._calls -= 1

    def _body(self, body: list[ast.stmt], scope: Scope) -> Value:
        for statement in body:
            match statement:
                case ast.Return():
                    return (
                        self._expressions.value(statement.value, scope, "")
                        if statement.value is not None
                        else None
                    )
                case ast.Assign(targets=[target]):
                    self._assign(
                        target,
                        self._expressions.value(statement.value, scope, dotted_name(target)),
                        scope,
                        statement.lineno,
                    )
                case ast.AnnAssign(target=ast.Name(), value=ast.expr()) if statement.value is not None:
                    value = self._expressions.value(statement.value, scope, dotted_name(statement.target))
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
            self._assign(node.targets[0], unknown(ast.unparse(node.value)), scope, node.lineno)
        if changed:
            self.notes.append(
                f"line {statement.lineno} sets values under a condition or in a loop; they count as unknown"
            )

    def _assign(self, target: ast.expr, value: Value, scope: Scope, line: int) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
            return
        path = dotted_name(target).split(".")
        root = scope.get(path[0])
        if len(path) < 2 or not isinstance(root, Section):
            return
        scope[path[0]] = with_value(root, path[1:], value, line)
