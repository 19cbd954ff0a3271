"""Data types as nccl-tests and rccl-tests name them, since 2016, and as torch does."""

from __future__ import annotations

# nccl-tests' name: torch's name and bytes of one element.
DATA_TYPES: dict[str, tuple[str, int]] = {
    "int8": ("int8", 1),
    "char": ("int8", 1),
    "uint8": ("uint8", 1),
    "int32": ("int32", 4),
    "int": ("int32", 4),
    "uint32": ("uint32", 4),
    "int64": ("int64", 8),
    "uint64": ("uint64", 8),
    "half": ("float16", 2),
    "float16": ("float16", 2),
    "fp16": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "bf16": ("bfloat16", 2),
    "float": ("float32", 4),
    "float32": ("float32", 4),
    "fp32": ("float32", 4),
    "double": ("float64", 8),
    "float64": ("float64", 8),
    "fp64": ("float64", 8),
    "f8e4m3": ("float8_e4m3", 1),
    "f8e5m2": ("float8_e5m2", 1),
    "fp8_e4m3": ("float8_e4m3", 1),
    "fp8_e5m2": ("float8_e5m2", 1),
    "float8_e4m3": ("float8_e4m3", 1),
    "float8_e5m2": ("float8_e5m2", 1),
    "fp8e4m3": ("float8_e4m3", 1),
    "fp8e5m2": ("float8_e5m2", 1),
}

REDUCTIONS = ("sum", "prod", "max", "min", "avg", "mulsum")


def torch_name(data_type: str) -> str:
    """`float` is float32, `half` float16; a name that is not known stays as it is."""
    known = DATA_TYPES.get(data_type.lower())
    return known[0] if known else data_type


def element_bytes(data_type: str) -> int | None:
    """Bytes of one element; None for a type that is not known."""
    known = DATA_TYPES.get(data_type.lower())
    return known[1] if known else None
