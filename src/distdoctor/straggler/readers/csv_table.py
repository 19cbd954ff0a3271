"""Times of steps in CSV, with commas, tabs or semicolons: a row for each step, or for each rank and step."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.evidence import MAX_HASHED_BYTES, STDIN
from distdoctor.evidence_bytes import decode
from distdoctor.straggler.facts.reading import Reading
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.columns import Role, column_of
from distdoctor.straggler.readers.file_blocks import FileBlocks
from distdoctor.straggler.readers.long_table import LongTable, long_form, tells_times
from distdoctor.straggler.readers.rank_rows import FileRows, rows_of_table
from distdoctor.straggler.readers.raw_table import NOTHING, RawTable
from distdoctor.straggler.readers.reading_files import read_each
from distdoctor.units import MIB

SOURCE = "CSV tables"

_DELIMITERS = ",\t;|"

# Below this, importing pyarrow costs more than it saves. Our own choice.
_LARGE_BYTES = 4 * MIB

# Lines before the header that are comments or empty.
_MAX_PREAMBLE = 100

# What is looked at for the header: a line that is longer is none.
_HEAD_BYTES = 256 * 1024

# A step, a name and its value make a table nearly as surely as a step and a time.
_LONG_FORM = 0.6

_WRONG_WIDTH = "rows with more or fewer cells than the header"

_NUMBER_ROLES = frozenset(Role) - {Role.HOST, Role.POD, Role.GPU, Role.GPU_UUID, Role.GPU_PCI, Role.GPU_MODEL}


@dataclass(frozen=True, slots=True)
class Header:
    """The line that names the columns."""

    names: tuple[str, ...]
    delimiter: str
    num_lines_before: int


def find_header(text: str) -> Header | None:
    """The first line that is neither empty nor a comment, cut at the delimiter that names the most known columns."""
    for number, line in enumerate(text.splitlines()[:_MAX_PREAMBLE]):
        if not line.strip():
            continue
        if line.lstrip().startswith("#"):
            # "# step, rank, fwd_ms", as numpy.savetxt writes a header.
            header = _split(line.lstrip().lstrip("#").strip(), number)
            if header is not None and _num_known(header.names) >= 2 and "," in line + "\t;":
                return header
            continue
        return _split(line, number)
    return None


def _split(line: str, number: int) -> Header | None:
    candidates = []
    for delimiter in _DELIMITERS:
        try:
            names = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            continue
        candidates.append(Header(tuple(name.strip() for name in names), delimiter, number))
    return max(candidates, key=lambda header: (_num_known(header.names), len(header.names)), default=None)


def _num_known(names: Sequence[str]) -> int:
    return sum(column_of(name) is not None for name in names)


def sniff(path: str, head: bytes) -> float:
    """How sure it is that this is a table of times of steps."""
    if head[:1] in (b"{", b"[") or b"\0" in head[:64]:
        return 0.0
    header = find_header(decode(head))
    if header is None:
        return 0.0
    if long_form(header.names) is not None:
        return _LONG_FORM
    return sureness(
        [column_of(name) for name in header.names], is_named=path.lower().endswith((".csv", ".tsv"))
    )


def sureness(columns: Sequence[Any], *, is_named: bool) -> float:
    """For any table: a step and a time make it one; a time with a rank nearly."""
    roles = Counter(column.role for column in columns if column is not None)
    if roles[Role.TIME] and roles[Role.STEP_NUMBER]:
        return 0.7
    if (roles[Role.TIME] and roles[Role.RANK]) or roles[Role.STEP_NUMBER] > 1:
        return 0.5
    if roles[Role.TIME] > 1:
        return 0.4
    # A table in a file of this name that nobody else knows is refused with a reason, and not as a log without times.
    return 0.15 if is_named else 0.0


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All CSV files together, as ranks often have a file each."""
    return read_each(paths, options, SOURCE, _read_file)


def _read_file(file: FileBlocks, options: ReadOptions) -> FileRows:
    """Raises InputError with one line."""
    blocks = file.blocks()
    first = next(blocks, b"")
    header = find_header(decode(first[:_HEAD_BYTES]))
    if header is None:
        raise InputError("it has no header line", hint="name the columns in the first line")
    _refuse_no_header(header)
    if len(set(header.names)) < len(header.names):
        names = [name for name, count in Counter(header.names).items() if count > 1 and column_of(name)]
        if names:
            raise InputError(f"column `{names[0]}` is there twice")
    _refuse_decimal_commas(header, decode(first[:_HEAD_BYTES]))
    found = None if long_form(header.names) is not None else _with_pyarrow(file, header)
    if found is None:
        found = _with_csv(file.path, header, first, blocks)
    elif file.num_bytes is not None and file.num_bytes <= MAX_HASHED_BYTES:
        for _ in blocks:  # for the checksum
            pass
    table, dropped = found
    rows = rows_of_table(table, options)
    rows.dropped.update(dropped)
    return rows


def _refuse_no_header(header: Header) -> None:
    if _num_known(header.names):
        return
    if 2 * sum(_is_number(name) for name in header.names) > len(header.names):
        raise InputError("the first line has no names", hint="add a header such as step,rank,forward_ms")


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return text.lower() in NOTHING
    return True


def _refuse_decimal_commas(header: Header, text: str) -> None:
    """`12,5` beside semicolons or tabs."""
    if header.delimiter == ",":
        return
    times = [
        index for index, name in enumerate(header.names) if (c := column_of(name)) and c.role is Role.TIME
    ]
    for row in csv.reader(text.splitlines()[header.num_lines_before + 1 :][:50], delimiter=header.delimiter):
        for index in times:
            cell = row[index].strip() if index < len(row) else ""
            whole, comma, rest = cell.partition(",")
            if comma and whole.lstrip("-").isdigit() and rest.isdigit():
                raise InputError(
                    f"column `{header.names[index]}` has decimal commas, such as `{cell}`",
                    hint="write 12.5, not 12,5",
                )


def _with_pyarrow(file: FileBlocks, header: Header) -> tuple[RawTable, Counter[str]] | None:
    """The table by pyarrow's reader, ten times faster; None where that is missing or the file is not plain."""
    if file.path == STDIN or file.num_bytes is None or file.num_bytes < _LARGE_BYTES:
        return None
    try:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv
    except ImportError:
        return None
    kept = [name for name in header.names if column_of(name) is not None]
    types = {name: pa.float64() for name in kept if column_of(name).role in _NUMBER_ROLES}  # type: ignore[union-attr]
    types.update({name: pa.string() for name in kept if name not in types})
    table = RawTable(file.path)
    names = list(header.names)
    dropped: Counter[str] = Counter()

    def leave_out(row: Any) -> str:  # Any: pyarrow's InvalidRow
        dropped[_WRONG_WIDTH] += not str(row.text or "").lstrip().startswith("#")
        return "skip"

    try:
        with arrow_csv.open_csv(
            file.path,
            read_options=arrow_csv.ReadOptions(
                skip_rows=header.num_lines_before + 1, column_names=names, block_size=16 * MIB
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=header.delimiter, invalid_row_handler=leave_out),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=kept,
                null_values=sorted(NOTHING | {"NaN", "NA", "None", "NULL"}),
            ),
        ) as reader:
            for batch in reader:
                add_arrow_batch(table, batch)
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):
        # A row that is cut, a text where a number belongs, gzip: the patient reader takes these.
        return None
    table.seen.update(dict.fromkeys(names))
    for name in names:
        if column_of(name) is None:
            table.unknown.setdefault(name)
    return table, dropped


def add_arrow_batch(table: RawTable, batch: Any) -> None:  # Any: pyarrow is not typed here
    """A record batch of numbers and strings."""
    import pyarrow as pa

    columns: dict[str, Sequence[object] | NDArray[np.generic]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if (
            pa.types.is_dictionary(column.type)
            or pa.types.is_string(column.type)
            or pa.types.is_large_string(column.type)
        ):
            known = column_of(name)
            if known is not None and known.role not in _NUMBER_ROLES:
                encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
                codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
                words = [
                    None if word is None or str(word).lower() in NOTHING else str(word)
                    for word in encoded.dictionary.to_pylist()
                ]
                table.add_codes(name, codes, words)
            else:
                columns[name] = column.to_pylist()
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    table.add(batch.num_rows, columns)


def _with_csv(
    path: str, header: Header, first: bytes, blocks: Iterator[bytes]
) -> tuple[RawTable, Counter[str]]:
    table: RawTable | LongTable | None = None
    dropped: Counter[str] = Counter()
    num_skipped = header.num_lines_before + 1
    width = len(header.names)
    for block in chain((first,), blocks):
        text = io.StringIO(block.decode("utf-8", "replace"), newline="")
        rows: list[list[str]] = []
        reader = csv.reader(text, delimiter=header.delimiter)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error:
                dropped["rows that are no CSV"] += 1
                continue
            if num_skipped:
                num_skipped -= 1
                continue
            if len(row) == width:
                rows.append(row)
            elif row and not row[0].lstrip().startswith("#"):
                dropped[_WRONG_WIDTH] += 1
        table = _add_rows(table, path, header.names, rows)
    if isinstance(table, LongTable):
        table = table.turned()
    return table or _empty(path, header.names), dropped


def _empty(path: str, names: Sequence[str]) -> RawTable:
    table = RawTable(path)
    table.seen.update(dict.fromkeys(names))
    return table


def _add_rows(
    table: RawTable | LongTable | None, path: str, names: Sequence[str], rows: list[list[str]]
) -> RawTable | LongTable | None:
    # A header in the middle is that of a file that was appended to another.
    rows = [
        row
        for row in rows
        if row[0].strip() != names[0] or tuple(cell.strip() for cell in row) != tuple(names)
    ]
    if rows:
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        table = table or table_for(path, columns)
        table.add(len(rows), columns)
    return table


def table_for(path: str, columns: Mapping[str, Sequence[object]]) -> RawTable | LongTable:
    """Where the rows of a file go whose first ones are `columns`."""
    form = long_form(columns)
    if form is not None and tells_times(form, columns[form.name]):
        return LongTable(path, form)
    return RawTable(path)


CSV_TABLES = Reader(name=SOURCE, sniff=sniff, read=read)
