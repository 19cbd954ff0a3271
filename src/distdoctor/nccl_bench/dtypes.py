"""Element types and reductions by name: their bytes, and the largest integers that they add up exactly. Torch-free."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from distdoctor.errors import UsageError


class Kind(str, Enum):
    """What an element is."""

    FLOAT = "float"
    INTEGER = "integer"
    BOOL = "bool"
    COMPLEX = "complex"


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """One element type, under torch's name."""

    name: str
    bytes: int
    kind: Kind
    exact_limit: int
    """Every integer from 0 to this is exact, and so is each sum that stays within."""
    mantissa_bits: int | None = None
    """Stored bits of a float's fraction: neighbouring values near 1 differ by 2^-bits."""
    aliases: tuple[str, ...] = ()


DTYPES: tuple[DType, ...] = (
    # A float with b stored fraction bits holds every integer up to 2^(b+1).
    DType(
        name="float32",
        bytes=4,
        kind=Kind.FLOAT,
        exact_limit=1 << 24,
        mantissa_bits=23,
        aliases=("fp32", "f32", "float"),
    ),
    DType(
        name="bfloat16",
        bytes=2,
        kind=Kind.FLOAT,
        exact_limit=1 << 8,
        mantissa_bits=7,
        aliases=("bf16",),
    ),
    DType(
        name="float16",
        bytes=2,
        kind=Kind.FLOAT,
        exact_limit=1 << 11,
        mantissa_bits=10,
        aliases=("fp16", "f16", "half"),
    ),
    DType(
        name="float64",
        bytes=8,
        kind=Kind.FLOAT,
        exact_limit=1 << 53,
        mantissa_bits=52,
        aliases=("fp64", "f64", "double"),
    ),
    DType(
        name="float8_e4m3fn",
        bytes=1,
        kind=Kind.FLOAT,
        exact_limit=1 << 4,
        mantissa_bits=3,
        aliases=("fp8", "float8", "fp8_e4m3", "float8_e4m3", "e4m3", "f8e4m3"),
    ),
    DType(
        name="float8_e5m2",
        bytes=1,
        kind=Kind.FLOAT,
        exact_limit=1 << 3,
        mantissa_bits=2,
        aliases=("fp8_e5m2", "e5m2", "f8e5m2"),
    ),
    DType(name="int8", bytes=1, kind=Kind.INTEGER, exact_limit=(1 << 7) - 1, aliases=("i8", "char")),
    DType(name="uint8", bytes=1, kind=Kind.INTEGER, exact_limit=(1 << 8) - 1, aliases=("u8", "byte")),
    DType(name="int32", bytes=4, kind=Kind.INTEGER, exact_limit=(1 << 31) - 1, aliases=("i32", "int")),
    DType(name="int64", bytes=8, kind=Kind.INTEGER, exact_limit=(1 << 63) - 1, aliases=("i64", "long")),
    DType(name="bool", bytes=1, kind=Kind.BOOL, exact_limit=1),
    # Two float32 side by side.
    DType(
        name="complex64",
        bytes=8,
        kind=Kind.COMPLEX,
        exact_limit=1 << 24,
        mantissa_bits=23,
        aliases=("cfloat", "c64"),
    ),
)
"""Types that torch.distributed moves; which of them a backend takes is found by asking it."""

OPS: tuple[str, ...] = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
"""Reductions by torch's names in lower case."""

_DTYPE_BY_NAME = {name: each for each in DTYPES for name in (each.name, *each.aliases)}
_OP_BY_NAME = {**{op: op for op in OPS}, "prod": "product", "mean": "avg", "average": "avg", "add": "sum"}


def dtype_named(text: str) -> DType:
    """The element type of "bfloat16", "bf16", "torch.half" … Raises UsageError that names the nearest."""
    word = text.strip().lower().removeprefix("torch.")
    dtype = _DTYPE_BY_NAME.get(word)
    if dtype is None:
        raise _unknown("--dtype", text, _DTYPE_BY_NAME, tuple(each.name for each in DTYPES))
    return dtype


def op_named(text: str) -> str:
    """Our name of a reduction: "sum" of "SUM", "product" of "prod" … Raises UsageError that names the nearest."""
    op = _OP_BY_NAME.get(text.strip().lower())
    if op is None:
        raise _unknown("--op", text, _OP_BY_NAME, OPS)
    return op


def _unknown(option: str, text: str, known: Iterable[str], shown: tuple[str, ...]) -> UsageError:
    near = difflib.get_close_matches(text.strip().lower(), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(shown)}"
    return UsageError(f"{option}: `{text.strip()[:40]}` is not known", hint=hint)
