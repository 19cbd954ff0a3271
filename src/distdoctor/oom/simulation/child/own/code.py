"""The user's functions: imported from their folder, and called. Their code runs; in this process only."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from distdoctor.oom.simulation.child.own.errors import OwnModuleError, users_code
from distdoctor.oom.simulation.inputs import FunctionName


@contextlib.contextmanager
def import_path(folder: Path, module: str) -> Iterator[None]:
    """The user's folder comes first among those that are imported from. Code that reads a command line finds an empty
    one, not ours."""
    path, argv = list(sys.path), sys.argv
    sys.path.insert(0, str(folder))
    sys.argv = [module]
    try:
        yield
    finally:
        sys.path[:], sys.argv = path, argv


def load(name: FunctionName, folder: Path) -> Any:
    """What `function` names in `module`: a function, a class, or anything else. Any: it is the user's. Raises
    OwnModuleError."""
    found: Any = _import(name.module, folder)
    for part in name.function.split("."):
        if not hasattr(found, part):
            raise OwnModuleError(_no_function(name, found, folder))
        found = getattr(found, part)
    return found


def call(function: Any, name: FunctionName, folder: Path) -> Any:
    """Its result. Raises OwnModuleError for what takes arguments, and for whatever it raises."""
    if not callable(function):
        raise OwnModuleError(f"{name} is no function: it is {_kind(function)}")
    if wanted := _required(function):
        raise OwnModuleError(
            f"{name.function}() takes arguments: {', '.join(wanted[:6])}",
            advice=f"write a function without any: `def build(): return {name.function}(…)`",
        )
    with (
        _to_be_seen_by(f"import {name.module}; {name}()".replace(":", ".", 1)),
        users_code(f"{name.function}()", folder),
    ):
        return function()


@contextlib.contextmanager
def _to_be_seen_by(program: str) -> Iterator[None]:
    """An error that nobody knows more of is shown whole by Python itself."""
    try:
        yield
    except OwnModuleError as error:
        error.advice = error.advice or f"`python -c '{program}'` in its folder shows it whole"
        raise


def _import(module: str, folder: Path) -> ModuleType:
    try:
        with _to_be_seen_by(f"import {module}"), users_code(f"import {module}", folder):
            try:
                return importlib.import_module(module)
            except ModuleNotFoundError as error:
                raise _not_found(module, error.name or "", folder) from None
    finally:
        importlib.invalidate_caches()


def _not_found(module: str, missing: str, folder: Path) -> OwnModuleError:
    if module == missing or module.startswith(f"{missing}."):
        return OwnModuleError(
            f"there is no module `{missing}` in {folder}, nor installed for {sys.executable}",
            advice="run it in the folder where `import` of it works",
        )
    return OwnModuleError(
        f"import {module}: it needs `{missing}`, which is not installed for {sys.executable}",
        advice="run distdoctor with the Python of the training environment",
    )


def _no_function(name: FunctionName, module: Any, folder: Path) -> str:
    path = getattr(module, "__file__", None)
    where = ""
    if isinstance(path, str):
        inside = Path(path).is_relative_to(folder)
        where = f" ({Path(path).relative_to(folder) if inside else path})"
    return f"there is no `{name.function}` in module `{name.module}`{where}"


def _required(function: Any) -> list[str]:
    """Names of parameters without a default; none where the signature is not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in free]


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of class {type(value).__name__}"
