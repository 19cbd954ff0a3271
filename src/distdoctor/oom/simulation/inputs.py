"""What `--module` and `--inputs` say: where a user's module comes from, and the tensors that it is called with."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distdoctor.errors import UsageError

# torch's names, and the short forms that people write.
_DTYPES = {
    **{
        name: name
        for name in (
            *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
            *("int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"),
        )
    },
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
}
_SHAPE = re.compile(r"\d{1,12}(?:[x,]\d{1,12})*")
_NAME = re.compile(r"[^\W\d]\w*")
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

# More than any batch: beyond it a digit too many was typed.
MAX_ELEMENTS = 1 << 44
_MAX_INPUTS = 64
_MAX_DIMENSIONS = 12
_MAX_TEXT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInput:
    """One argument of forward: positional where it has no name."""

    name: str | None
    shape: tuple[int, ...]
    dtype: str
    """torch's name: `int64`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionName:
    """`function` of `module`; it is called without arguments."""

    module: str
    function: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"


Inputs = tuple[TensorInput, ...] | FunctionName
"""Tensors; or a function that gives them. An empty tuple: nothing was said."""


def parse_inputs(texts: Sequence[str]) -> Inputs:
    """`8x1024:int64` (positional), `mask=8x1024:bool` (keyword), or one `my_pkg.data:make_batch`. Pure.

    Shapes are sizes joined by `x`, types are named as torch names them. Raises UsageError for anything else.
    """
    if len(texts) > _MAX_INPUTS:
        raise UsageError(f"--inputs: {len(texts)} of them; no more than {_MAX_INPUTS} are taken")
    if len(texts) == 1 and (function := _function_name(texts[0])) is not None:
        return function
    inputs = tuple(_tensor(text) for text in texts)
    names = [each.name for each in inputs if each.name is not None]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"--inputs: `{twice[0]}` is given twice")
    return inputs


def parse_module(text: str, *, folder: str = ".") -> tuple[FunctionName, str]:
    """`my_pkg.model:build_model`, or `path/to/model.py:build_model`: the function, and the folder that its module is
    imported from. Looks at no file. Raises UsageError."""
    left, colon, function = text.rpartition(":")
    if not colon or not _DOTTED.fullmatch(function) or len(text) > _MAX_TEXT:
        raise UsageError(
            f"--module: `{text[:60]}` names no function",
            hint="write --module my_pkg.model:build_model, or --module model.py:build_model",
        )
    if left.endswith(".py"):
        path = Path(left)
        if not _NAME.fullmatch(path.stem):
            raise UsageError(f"--module: `{path.name}` cannot be imported: its name is no name of Python")
        return FunctionName(module=path.stem, function=function), str(Path(folder) / path.parent)
    if not _DOTTED.fullmatch(left):
        raise UsageError(
            f"--module: `{left[:60]}` is no module",
            hint="write it as in an import: my_pkg.model:build_model",
        )
    return FunctionName(module=left, function=function), folder


def _function_name(text: str) -> FunctionName | None:
    """None where the text is a shape, or neither."""
    module, colon, function = text.strip().rpartition(":")
    is_one = colon and _DOTTED.fullmatch(module) and _NAME.fullmatch(function) and len(text) <= _MAX_TEXT
    return FunctionName(module=module, function=function) if is_one else None


def _tensor(text: str) -> TensorInput:
    word = text.strip()
    name, equals, rest = word.partition("=")
    if not equals:
        name, rest = "", word
    elif not _NAME.fullmatch(name):
        raise UsageError(f"--inputs: `{name[:40]}` is no name of an argument", hint="write mask=8x1024:bool")
    shape, colon, dtype = rest.partition(":")
    if not colon or not _SHAPE.fullmatch(shape):
        hint = "give a single function, or shapes only" if _function_name(rest) is not None else _HINT
        raise UsageError(f"--inputs: `{text[:60]}` is no SHAPE:DTYPE", hint=hint)
    known = _DTYPES.get(dtype.lower().removeprefix("torch."))
    if known is None:
        raise UsageError(
            f"--inputs: `{dtype[:40]}` is no type of torch", hint="int64, bfloat16, float32, bool …"
        )
    sizes = tuple(int(each) for each in re.split("[x,]", shape))
    if len(sizes) > _MAX_DIMENSIONS or not 0 < math.prod(sizes) <= MAX_ELEMENTS:
        raise UsageError(f"--inputs: `{shape[:60]}` is not the shape of a batch")
    return TensorInput(name=name or None, shape=sizes, dtype=known)


_HINT = "write 8x1024:int64, name=8x1024:bool, or my_pkg.data:make_batch"
