"""Times of steps in Parquet files and in Arrow IPC files and streams; only the columns that mean something are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.reading import Reading
from distdoctor.straggler.packed_format import has_head
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.columns import Role, column_of
from distdoctor.straggler.readers.csv_table import add_arrow_batch, sureness
from distdoctor.straggler.readers.file_bytes import size_of
from distdoctor.straggler.readers.parquet_support import (
    ARROW_FILE_MAGIC,
    ARROW_STREAM_MAGIC,
    PARQUET_MAGIC,
    import_parquet,
    open_parquet,
)
from distdoctor.straggler.readers.rank_rows import FileRows, rows_of_table
from distdoctor.straggler.readers.raw_table import MAX_SEEN, RawTable
from distdoctor.straggler.readers.reading_files import finish

SOURCE = "Parquet and Arrow tables"

# Rows that are decoded at once.
_BATCH_ROWS = 1 << 20

_WORD_ROLES = frozenset(
    {Role.HOST, Role.POD, Role.GPU, Role.GPU_UUID, Role.GPU_PCI, Role.GPU_MODEL, Role.CLOCK}
)


def sniff(path: str, head: bytes) -> float:
    """How sure it is that this is a table of times of steps; the schema is read for it."""
    if not head.startswith((PARQUET_MAGIC, ARROW_FILE_MAGIC, ARROW_STREAM_MAGIC)):
        return 0.0
    try:
        schema = _schema(path, head)
    except InputError:
        # Somebody has to say that it is broken, or that pyarrow is missing.
        return 0.1
    if has_head(schema.metadata):
        return 0.0
    return max(0.1, sureness([column_of(name) for name in schema.names], is_named=False))


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All files together; a file that cannot be read costs only itself."""
    rows: list[FileRows] = []
    inputs: list[InputFile] = []
    for path in paths:
        why = None
        try:
            rows.append(_read_file(path, options))
        except InputError as error:
            why = error.in_one_line
        inputs.append(InputFile(path=path, kind=SOURCE, bytes=size_of(path), read=why is None, why_not=why))
    return finish(rows, inputs, [], SOURCE)


def _schema(path: str, head: bytes) -> Any:
    if head[:4] == PARQUET_MAGIC:
        return open_parquet(path).schema_arrow
    pyarrow, _ = import_parquet()
    try:
        with closing(_open_arrow(path, head)) as reader:
            reader.schema.names  # noqa: B018 - names that are no text raise here
            return reader.schema
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"it is no whole Arrow file: {str(error)[:200]}") from None


def _open_arrow(path: str, head: bytes) -> Any:
    import pyarrow as pa

    if head.startswith(ARROW_FILE_MAGIC):
        reader = pa.ipc.open_file(pa.memory_map(path))
        reader.close = lambda: None
        return reader
    return pa.ipc.open_stream(pa.memory_map(path))


def _read_file(path: str, options: ReadOptions) -> FileRows:
    """Raises InputError with one line."""
    pyarrow, _ = import_parquet()
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(8)
        table = RawTable(path)
        for batch in _batches(path, head, table):
            add_arrow_batch(table, batch)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InputError(f"it cannot be read: {(str(error).splitlines() or ['broken'])[0][:200]}") from None
    return rows_of_table(table, options)


def _batches(path: str, head: bytes, table: RawTable) -> Iterator[Any]:
    if head[:4] == PARQUET_MAGIC:
        file = open_parquet(path)
        kept = _kept(file.schema_arrow, table)
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=kept, use_threads=True):
            yield _plain(batch)
        return
    with closing(_open_arrow(path, head)) as reader:
        kept = _kept(reader.schema, table)
        if head.startswith(ARROW_FILE_MAGIC):
            for index in range(reader.num_record_batches):
                yield _checked(reader.get_batch(index).select(kept))
        else:
            for batch in reader:
                yield _checked(batch.select(kept))


def _checked(batch: Any) -> Any:
    """Offsets and codes of Arrow files are used as they stand there; damaged ones would be read as addresses."""
    batch.validate(full=True)
    return _plain(batch)


def _kept(schema: Any, table: RawTable) -> list[str]:
    """Names of the columns to read; refuses in words what cannot be numbers where numbers belong."""
    from pyarrow import types

    kept = []
    names = list(schema.names)
    table.seen.update(dict.fromkeys(names[:MAX_SEEN]))
    for field in schema:
        column = column_of(field.name)
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        is_text = types.is_string(kind) or types.is_large_string(kind)
        if column is None:
            if is_number:
                table.unknown.setdefault(field.name)
            continue
        if names.count(field.name) > 1:
            raise InputError(f"column `{field.name}` is there twice")
        is_time = types.is_timestamp(kind) or types.is_duration(kind)
        if column.role is Role.TIME and not (is_number or types.is_duration(kind)):
            what = "text" if is_text else f"of type {str(kind)[:40]}"
            raise InputError(
                f"column `{field.name}` is {what}, where plain numbers belong",
                hint="write times as floats or integers",
            )
        if (
            is_number
            or (is_text and column.role in _WORD_ROLES)
            or (is_time and column.role is not Role.RANK)
        ):
            kept.append(field.name)
    return kept


def _plain(batch: Any) -> Any:
    """Timestamps, durations and decimals as numbers; a duration whose column names no unit gets `_ns` for one."""
    import pyarrow as pa

    arrays, names = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        name, plain = _plain_column(field, array)
        arrays.append(plain)
        names.append(name)
    return pa.RecordBatch.from_arrays(arrays, names=names) if arrays else pa.RecordBatch.from_pydict({})


def _plain_column(field: Any, array: Any) -> tuple[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    column, kind = column_of(field.name), field.type
    if pa.types.is_timestamp(kind):
        return field.name, _epoch(array, kind, column.unit if column else None)
    if pa.types.is_duration(kind):
        unit = column.unit if column else None
        name = field.name if unit else f"{field.name}_ns"
        return name, pa.array(_as_floats(array) * (_SECONDS[kind.unit] / _SECONDS[unit or "ns"]))
    if pa.types.is_decimal(kind):
        return field.name, pc.cast(array, pa.float64())
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        return field.name, array.dictionary_decode()
    if pa.types.is_floating(kind) and kind.bit_width == 16:
        return field.name, pa.array(array.to_numpy(zero_copy_only=False).astype(np.float32))
    return field.name, array


def _as_floats(array: Any) -> NDArray[np.float64]:
    """Whole numbers behind times and durations; NaN for null."""
    import pyarrow as pa

    return np.asarray(array.cast(pa.int64()).cast(pa.float64()).to_numpy(zero_copy_only=False))


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def _epoch(array: Any, kind: Any, unit: str | None) -> Any:
    """Numbers of seconds since 1970 in `unit`, as a clock column of numbers has them; text where the zone is unknown."""
    import pyarrow as pa

    if kind.tz is None:
        # As text without a zone, so that it is treated and noted as such.
        return array.cast(pa.timestamp("us"), safe=False).cast(pa.string())
    return pa.array(_as_floats(array) * (_SECONDS[kind.unit] / _SECONDS[unit or "s"]))


ARROW_TABLES = Reader(name=SOURCE, sniff=sniff, read=read)
