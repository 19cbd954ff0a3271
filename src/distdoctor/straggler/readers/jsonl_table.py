"""Times of steps in JSON: an object a line, an array of objects, or an object that holds one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from distdoctor.errors import InputError
from distdoctor.straggler.facts.reading import Reading
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.columns import Role, column_of
from distdoctor.straggler.readers.csv_table import sureness, table_for
from distdoctor.straggler.readers.file_blocks import MAX_LINE_BYTES, FileBlocks
from distdoctor.straggler.readers.file_text import text_start
from distdoctor.straggler.readers.long_table import LongTable, long_form
from distdoctor.straggler.readers.rank_rows import FileRows, rows_of_table
from distdoctor.straggler.readers.raw_table import RawTable
from distdoctor.straggler.readers.reading_files import read_each
from distdoctor.units import MIB

SOURCE = "JSON rows"

# A document that is one array or object is decoded as a whole; it then takes some ten times its size.
MAX_DOCUMENT_BYTES = 256 * MIB

# Rows that are turned into columns at once.
_BATCH = 16_384

# Keys of a document under which its rows may lie.
_ROWS_KEYS = ("steps", "rows", "records", "data", "entries", "history", "log", "timings")

# Keys that other tools' lines have and tables of steps have not: another reader takes these.
_OTHERS = frozenset(
    {
        "log_type_name",
        "traceEvents",
        "coll_perf",
        "distdoctor_timing",
        "distdoctor_collectives",
        "schemaVersion",
    }
)

# A step, a name and its value make rows nearly as surely as a step and a time.
_LONG_FORM = 0.6

# Lines that are looked at to tell what a file is.
_SNIFFED_LINES = 40

_decode = msgspec.json.Decoder().decode

Row = dict[str, object]


def sniff(_path: str, head: bytes) -> float:
    """How sure it is that this is JSON with times of steps."""
    text = text_start(head)
    if text[:1] not in (b"{", b"["):
        return 0.0
    rows = _first_rows(text)
    keys = list(dict.fromkeys(key for row in rows for key in _flat(row)))
    if not rows or _OTHERS.intersection(keys) or any(isinstance(row.get("normal"), dict) for row in rows):
        return 0.0
    if long_form(keys) is not None:
        return _LONG_FORM
    return sureness([column_of(key) for key in keys], is_named=False)


def _first_rows(text: bytes) -> list[Row]:
    rows: list[Row] = []
    for line in text.splitlines()[:_SNIFFED_LINES]:
        row = _object(line.strip().lstrip(b"[").rstrip(b",]"))
        if row is not None:
            rows.append(row)
    if rows:
        return rows
    # One document: its first complete object, of an array or under one of the known keys.
    for start in _starts_of_objects(text):
        try:
            found, _ = json.JSONDecoder().raw_decode(text[start : start + 65_536].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return [found]
    return []


def _starts_of_objects(text: bytes) -> Iterator[int]:
    if text[:1] == b"[":
        yield text.find(b"{")
    for key in _ROWS_KEYS:
        at = text.find(b'"%s"' % key.encode())
        start = text.find(b"{", at) if at >= 0 else -1
        if start >= 0:
            yield start


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All files together, as ranks often have a file each."""
    return read_each(paths, options, SOURCE, _read_file)


def _read_file(file: FileBlocks, options: ReadOptions) -> FileRows:
    """Raises InputError with one line."""
    table: RawTable | LongTable | None = None
    dropped: Counter[str] = Counter()
    defaults: Row = {}
    batch: list[Row] = []
    for row in _rows(file, dropped):
        if _is_header(row):
            defaults.update(_defaults(row))
            continue
        batch.append(row)
        if len(batch) >= _BATCH:
            table = _add(table, file.path, batch)
            batch = []
    if batch:
        table = _add(table, file.path, batch)
    if isinstance(table, LongTable):
        table = table.turned()
    if table is None or not table.num_rows:
        raise InputError("it holds no rows of steps")
    rows = rows_of_table(table, options, defaults)
    rows.dropped.update(dropped)
    return rows


def _add(table: RawTable | LongTable | None, path: str, batch: list[Row]) -> RawTable | LongTable:
    keys = dict.fromkeys(key for row in batch for key in row)
    if len(keys) > len(batch) * 4 + 4096:
        raise InputError("its rows have more different keys than a table has columns")
    columns = {key: [row.get(key) for row in batch] for key in keys}
    table = table or table_for(path, columns)
    table.add(len(batch), columns)
    return table


def _rows(file: FileBlocks, dropped: Counter[str]) -> Iterator[Row]:
    blocks = file.blocks()
    first = next(blocks, b"")
    if _is_document(first):
        yield from _rows_of_document(first, blocks)
        return
    block: bytes | None = first
    while block:
        for line in block.split(b"\n"):
            text = line.strip()
            if not text:
                continue
            row = _object(text) if len(text) <= MAX_LINE_BYTES else None
            if row is None:
                dropped["lines that are no JSON object"] += 1
            else:
                yield _flat(row)
        block = next(blocks, None)


def _object(line: bytes) -> Row | None:
    """One line; NaN and Infinity, which JSON has not and Python writes, are taken."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _is_document(first: bytes) -> bool:
    """An array, an object over several lines, or one that holds lists of rows or of values."""
    text = first.lstrip()
    if text[:1] == b"[":
        return True
    if text[:1] != b"{":
        return False
    found = _object(text.partition(b"\n")[0].strip())
    if found is None:
        return b'"' in text[:4096]
    return any(
        isinstance(value, list) and (key in _ROWS_KEYS or column_of(key)) for key, value in found.items()
    )


def _rows_of_document(first: bytes, blocks: Iterator[bytes]) -> Iterator[Row]:
    whole = bytearray(first)
    for block in blocks:
        whole += block
        if len(whole) > MAX_DOCUMENT_BYTES:
            raise InputError(
                f"it is one JSON document of more than {MAX_DOCUMENT_BYTES // MIB} MiB",
                hint="write an object a line, so that it can be read piece by piece",
            )
    try:
        document = _decode(bytes(whole))
    except (msgspec.DecodeError, RecursionError, ValueError):
        try:
            document = json.loads(bytes(whole))
        except (ValueError, RecursionError):
            yield from _objects_of_torn_array(bytes(whole))
            return
    yield from _rows_inside(document)


def _rows_inside(document: object) -> Iterator[Row]:
    if isinstance(document, list):
        yield from (_flat(row) for row in document if isinstance(row, dict))
    elif isinstance(document, dict):
        columns = {key: value for key, value in document.items() if isinstance(value, list)}
        if columns and all(isinstance(value[0], (int, float)) for value in columns.values() if value):
            lengths = {len(value) for key, value in columns.items() if column_of(key)}
            if len(lengths) == 1:
                yield {key: value for key, value in document.items() if not isinstance(value, (list, dict))}
                for values in zip(*(columns[key] for key in columns if column_of(key)), strict=True):
                    yield dict(zip((key for key in columns if column_of(key)), values, strict=True))
                return
        yield {key: value for key, value in document.items() if not isinstance(value, (list, dict))}
        for key in _ROWS_KEYS:
            if isinstance(document.get(key), list):
                yield from (_flat(row) for row in document[key] if isinstance(row, dict))
                return


def _objects_of_torn_array(text: bytes) -> Iterator[Row]:
    """What is whole of an array that was cut, object by object."""
    decoder = json.JSONDecoder()
    words = text.decode("utf-8", "replace")
    at = words.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(words, at)
        except (ValueError, RecursionError):
            return
        if isinstance(found, dict):
            yield _flat(found)
        at = words.find("{", end)


def _flat(row: Row) -> Row:
    """`{"timings_ms": {"fwd": 3}}` → `{"timings_ms.fwd": 3}`, one level deep; lists are left out."""
    if not any(isinstance(value, (dict, list)) for value in row.values()):
        return row
    flat: Row = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat.update(
                {f"{key}.{inner}": it for inner, it in value.items() if not isinstance(it, (dict, list))}
            )
        elif not isinstance(value, list):
            flat[key] = value
    return flat


def _is_header(row: Row) -> bool:
    """An object without a time, such as a first line that tells the rank, the host and the world size."""
    roles = {column.role for key in row if (column := column_of(key)) is not None}
    return Role.TIME not in roles and len(roles - {Role.STEP_NUMBER, Role.CLOCK}) == len(roles)


def _defaults(row: Row) -> Row:
    names = {
        Role.RANK: "rank",
        Role.HOST: "host",
        Role.POD: "pod",
        Role.LOCAL_RANK: "local_rank",
        Role.WORLD_SIZE: "world_size",
    }
    found: Row = {}
    for key, value in row.items():
        column = column_of(key)
        if column is not None and column.role in names and not isinstance(value, bool):
            found[names[column.role]] = value
    return found


JSON_ROWS = Reader(name=SOURCE, sniff=sniff, read=read)
