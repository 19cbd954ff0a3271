"""A text of several tables, cut into one draft for each: one binary after another, repetitions, processes at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from distdoctor.nccl_bench.readers.columns import TableRow, parse_columns, parse_row
from distdoctor.nccl_bench.readers.commands import Command, merged, parse_command
from distdoctor.nccl_bench.readers.draft import (
    MAX_DEVICES,
    MAX_FAILURE_CHARACTERS,
    MAX_FAILURES,
    MAX_ROWS,
    Draft,
)
from distdoctor.nccl_bench.readers.head import (
    parse_average,
    parse_bounds,
    parse_collective,
    parse_device,
    parse_library,
    parse_reduced,
    parse_settings,
    parse_tool,
)
from distdoctor.nccl_bench.readers.lines import OF_A_TABLE, Kind, TableLine


def read_drafts(lines: Sequence[TableLine]) -> list[Draft]:
    """One draft for each table, in the order of the text; tables of different processes apart."""
    streams = list(dict.fromkeys(line.stream for line in lines if line.kind in OF_A_TABLE))
    if len(streams) <= 1:
        return _read_stream(lines, streams[0] if streams else "")
    drafts: list[Draft] = []
    for stream in streams:
        others = set(streams) - {stream}
        drafts += _read_stream([line for line in lines if line.stream not in others], stream)
    return sorted(drafts, key=lambda draft: draft.first_line)


def _read_stream(lines: Iterable[TableLine], stream: str) -> list[Draft]:
    reader = _Reader(stream)
    for line in lines:
        reader.take(line)
    for draft in reader.drafts:
        reader.end(draft)
    return [draft for draft in _joined(reader.drafts) if draft.is_table]


class _Reader:
    """Puts the lines of one process into drafts, one after another."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.current = Draft(stream=stream)
        self.drafts = [self.current]
        self.command = Command()
        self.exported: tuple[tuple[str, str], ...] = ()
        self.broken: str | None = None
        """A row that may go on in the next line."""
        self.was_command = False
        self.was_device = False

    def take(self, line: TableLine) -> None:
        """One line, in the order of the text."""
        handler = _HANDLERS.get(line.kind)
        if line.kind is Kind.NUMBERS:
            self._continue_row(line)
            return
        self.broken = None
        if handler is not None:
            handler(self, line)
        self.was_command = line.kind is Kind.COMMAND
        self.was_device = line.kind is Kind.DEVICE

    def end(self, draft: Draft) -> None:
        """Where no row has its other half, the last one did not break off: the run left that half out."""
        if draft.unfinished is None or len(draft.rows) < 2 or any(row.is_whole for row in draft.rows):
            return
        self._keep(draft.unfinished, draft)
        draft.unfinished = None

    def _begin(self, line: TableLine) -> Draft:
        """The draft that a line of a head belongs to: a new one when the current has rows or a footer."""
        draft = self.current
        if draft.has_rows or draft.has_footer:
            draft = self._open()
        if not draft.first_line:
            draft.first_line = line.number
        draft.last_line = line.number
        return draft

    def _open(self) -> Draft:
        self.current = Draft(stream=self.stream, command=self.command)
        self.drafts.append(self.current)
        return self.current

    def _command(self, line: TableLine) -> None:
        said = parse_command(line.text)
        draft = self.current
        if not self.was_command or line.after_gap:
            # A new command: what is exported stays, the call before it does not.
            self.command = Command(overrides=self.exported)
        if "export " in line.text:
            self.exported = merged((*self.exported, *said.overrides))
        if said.collective is not None and not said.is_call and self.command.is_call:
            said = Command(overrides=said.overrides)
        self.command = self.command.with_line(said)
        if not (draft.has_rows or draft.has_footer):
            draft.command = self.command

    def _tool(self, line: TableLine) -> None:
        draft = self._begin(line)
        tool, library = parse_tool(line.text)
        draft.tool = tool or draft.tool
        if library and draft.library is None:
            draft.library = ("nccl", library, None)

    def _starting(self, line: TableLine) -> None:
        draft = self._begin(line)
        draft.banner = parse_collective(line.text) or ""

    def _settings(self, line: TableLine) -> None:
        draft = self._begin(line)
        draft.settings = parse_settings(line.text) or draft.settings
        draft.num_starts += 1

    def _reduced(self, line: TableLine) -> None:
        self._begin(line).max_bytes = parse_reduced(line.text)

    def _device_head(self, line: TableLine) -> None:
        self._begin(line).has_device_list = True

    def _device(self, line: TableLine) -> None:
        draft = self._begin(line)
        draft.has_device_list = True
        device = parse_device(line.text)
        if device is not None and len(draft.devices) < MAX_DEVICES:
            draft.devices.append(device)

    def _places(self, line: TableLine) -> None:
        draft = self._begin(line)
        inside, outside = "in-place" in line.text, "out-of-place" in line.text
        draft.only_in_place = None if inside and outside else inside

    def _columns(self, line: TableLine) -> None:
        layout = parse_columns(line.text)
        if layout is not None:
            self._begin(line).layout = layout

    def _row(self, line: TableLine) -> None:
        row = parse_row(line.text, line.number, self.current.layout, self.current.only_in_place)
        if row is None or (not row.halves and not self.current.rows and self.current.layout is None):
            return  # words that look like the beginning of a row, where there is no table
        if self.current.rows and row.num_expected < self.current.rows[-1].num_expected:
            row = replace(
                row,
                num_expected=self.current.rows[-1].num_expected,
                halves=tuple(replace(half, in_place=False) for half in row.halves),
            )
        self._add(row, line)
        if not row.is_whole:
            self.broken = line.text

    def _continue_row(self, line: TableLine) -> None:
        """A row that a narrow terminal broke in two."""
        text, self.broken = self.broken, None
        draft = self.current
        if text is None or line.after_gap or draft.unfinished is None:
            return
        row = parse_row(f"{text} {line.text}", draft.unfinished.line, draft.layout, draft.only_in_place)
        if row is not None and row.is_whole:
            draft.unfinished = None
            self._keep(row, draft)
            draft.last_line = line.number

    def _add(self, row: TableRow, line: TableLine) -> None:
        draft = self.current
        if _starts_anew(draft, row, line):
            draft = self._open()
        if not draft.first_line:
            draft.first_line = line.number
        draft.last_line = line.number
        if draft.unfinished is not None and not draft.is_interleaved:
            self._keep(draft.unfinished, draft)
            draft.unfinished = None
        if row.size == 0:
            draft.num_skipped += 1
            return
        draft.spans[_key(row)] = (draft.spans.get(_key(row), (row.size, 0))[0], row.size)
        if row.is_whole:
            self._keep(row, draft)
        else:
            draft.unfinished = row

    @staticmethod
    def _keep(row: TableRow, draft: Draft) -> None:
        if not row.halves:
            draft.num_skipped += 1
        elif len(draft.rows) < MAX_ROWS or (_has_wrong(row) and len(draft.rows) < 2 * MAX_ROWS):
            draft.rows.append(row)
        else:
            draft.num_left_out += 1

    def _cycle(self, line: TableLine) -> None:
        self.current.cycles = True
        self.current.last_line = line.number

    def _bounds(self, line: TableLine) -> None:
        draft = self._footer(line)
        draft.num_footers += 1
        bounds = parse_bounds(line.text)
        if bounds is not None and (draft.bounds is None or draft.bounds.okay):
            draft.bounds = bounds

    def _average(self, line: TableLine) -> None:
        self._footer(line).average = parse_average(line.text)

    def _concluded(self, line: TableLine) -> None:
        draft = self._footer(line)
        draft.concluded = True
        if draft.banner is None:
            draft.banner = parse_collective(line.text)

    def _footer(self, line: TableLine) -> Draft:
        draft = self.current
        draft.first_line = draft.first_line or line.number
        return draft

    def _failure(self, line: TableLine) -> None:
        if len(self.current.failures) < MAX_FAILURES:
            self.current.failures.append((line.number, line.text[:MAX_FAILURE_CHARACTERS].strip()))

    def _ending(self, line: TableLine) -> None:
        if len(self.current.endings) < MAX_FAILURES:
            self.current.endings.append((line.number, line.text[:MAX_FAILURE_CHARACTERS].strip()))

    def _ellipsis(self, _line: TableLine) -> None:
        # nccl-tests itself ends a list of ranks that is too long with "...".
        if not self.was_device:
            self.current.has_ellipsis = True

    def _library(self, line: TableLine) -> None:
        library = parse_library(line.text)
        if library is None:
            return
        draft = self.current
        if draft.has_footer:
            draft = self._open()
        if draft.library is None or draft.library[2] is None:
            draft.library = library


def _starts_anew(draft: Draft, row: TableRow, line: TableLine) -> bool:
    """Rows without a head between them that cannot be of one table."""
    if draft.is_interleaved:
        return False
    if draft.has_footer:
        return True
    if not draft.rows or draft.cycles:
        return False
    first = draft.rows[0]
    if draft.layout is None and (first.op is None) != (row.op is None):
        return True
    span = draft.spans.get(_key(row))
    if span is None or row.size == 0:
        return False
    begins_again = row.size <= span[0] < span[1]
    return begins_again and (line.after_gap or draft.layout is None)


def _key(row: TableRow) -> tuple[str, str | None, int | None]:
    return row.data_type, row.op, row.root


def _has_wrong(row: TableRow) -> bool:
    return any(half.check.rstrip("*") not in ("0", "N/A", "") for half in row.halves)


def _joined(drafts: list[Draft]) -> list[Draft]:
    """Processes that print at once without a mark make one draft with gaps; put those pieces together again.

    Their heads and footers are as many, but not in turn.
    """
    tables = [draft for draft in drafts if draft.is_table]
    starts = sum(draft.num_starts for draft in tables)
    footers = sum(draft.num_footers for draft in tables)
    in_turn = all(draft.num_starts <= 1 and draft.num_footers == draft.num_starts for draft in tables)
    banners = {draft.banner or draft.command.collective for draft in tables}
    if len(tables) < 2 or in_turn or starts < 2 or not 1 < footers <= starts or len(banners) > 1:
        return drafts
    if not all(draft.is_alone for draft in tables):
        return drafts
    whole = tables[0]
    for draft in tables[1:]:
        whole.rows = (whole.rows + draft.rows)[: 2 * MAX_ROWS]
        whole.devices += draft.devices
        whole.failures += draft.failures
        whole.endings += draft.endings
        whole.num_skipped += draft.num_skipped
        whole.num_starts += draft.num_starts
        whole.num_footers += draft.num_footers
        whole.layout = whole.layout or draft.layout
        whole.last_line = max(whole.last_line, draft.last_line)
        whole.concluded = whole.concluded or draft.concluded
        if whole.bounds is None or (draft.bounds is not None and not draft.bounds.okay):
            whole.bounds = draft.bounds
        whole.average = draft.average if whole.average is None else whole.average
    whole.command = Command(
        collective=whole.command.collective,
        overrides=merged(whole.command.overrides),
        processes=whole.command.processes,
        max_bytes=whole.command.max_bytes,
    )
    return [whole]


_HANDLERS = {
    Kind.COMMAND: _Reader._command,
    Kind.VERSION: _Reader._tool,
    Kind.STARTING: _Reader._starting,
    Kind.SETTINGS: _Reader._settings,
    Kind.REDUCED: _Reader._reduced,
    Kind.DEVICES: _Reader._device_head,
    Kind.DEVICE: _Reader._device,
    Kind.PLACES: _Reader._places,
    Kind.COLUMNS: _Reader._columns,
    Kind.ROW: _Reader._row,
    Kind.CYCLE: _Reader._cycle,
    Kind.BOUNDS: _Reader._bounds,
    Kind.AVERAGE: _Reader._average,
    Kind.CONCLUDED: _Reader._concluded,
    Kind.FAILURE: _Reader._failure,
    Kind.ENDING: _Reader._ending,
    Kind.ELLIPSIS: _Reader._ellipsis,
    Kind.LIBRARY: _Reader._library,
}
