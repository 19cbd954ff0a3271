"""pyarrow, which is an optional extra: opened here, with one line when it is not there."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from distdoctor.errors import InputError
from distdoctor.straggler.packed_format import has_head

PARQUET_MAGIC = b"PAR1"
ARROW_FILE_MAGIC = b"ARROW1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"


def import_parquet() -> tuple[ModuleType, ModuleType]:
    """(pyarrow, pyarrow.parquet). Raises InputError where they are not installed or do not load."""
    try:
        import pyarrow
        from pyarrow import parquet
    except Exception as error:  # a pyarrow beside another numpy raises anything
        missing = isinstance(error, ImportError) and "pyarrow" in str(error)
        raise InputError(
            "Parquet and Arrow files need pyarrow"
            + ("" if missing else f", which does not load: {str(error)[:200]}"),
            hint='pip install "distdoctor[parquet]"',
        ) from None
    return pyarrow, parquet


def open_parquet(path: str) -> Any:  # Any: pyarrow is not typed here
    """The file, its footer read. Raises InputError with one line."""
    pyarrow, parquet = import_parquet()
    try:
        file = parquet.ParquetFile(path, memory_map=False)
        file.schema_arrow.names  # noqa: B018 - names that are no text raise here
        return file
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"it is no whole Parquet file: {_first_line(error)}") from None


def is_packed(path: str, head: bytes) -> bool | None:
    """Whether a Parquet file was written by `straggler pack`; None where that cannot be told."""
    if head[:4] != PARQUET_MAGIC:
        return False
    try:
        return has_head(open_parquet(path).schema_arrow.metadata)
    except InputError:
        return None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["broken"])[0][:200].rstrip(". ")
