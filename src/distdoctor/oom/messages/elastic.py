"""Torchrun's table of failures: which rank failed first, with which exit code."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.oom.facts.events import RankFailure
from distdoctor.oom.messages.lines import LogLine

_MAX_LINE = 1 << 60

# Rows beyond this are not kept. Our own bound: more ranks than any job that prints one table.
_MAX_ROWS = 100_000

_RANK = re.compile(r"^\s*rank\s*: (\d{1,7}) \(local_rank: (\d{1,7})\)")
_HOST = re.compile(r"^\s*host\s*: (\S+)")
_EXIT = re.compile(r"^\s*exitcode\s*: (-?\d{1,10}) \(pid: (\d{1,10})\)")
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_OTHERS = re.compile(r"^\s*(?:Other Failures|Failures):")
_BEGINNINGS = ("rank ", "host ", "exitcode ", "====", "----", "Root Cause", "Other Failures", "Failures:")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTable:
    """Rows of the table, and which row a line of the text belongs to."""

    rows: tuple[RankFailure, ...]
    spans: tuple[tuple[int, int, int], ...]
    """First line, last line (numbers from 1) and the index of the row, in order of lines."""

    def row_at(self, number: int) -> RankFailure | None:
        """The row that holds line `number`."""
        place = bisect_right(self.spans, (number, _MAX_LINE, _MAX_LINE)) - 1
        if place < 0:
            return None
        _, last, index = self.spans[place]
        return self.rows[index] if number <= last else None


def read_failures(lines: Sequence[LogLine]) -> FailureTable:
    """The rows of every table in a log, each rank once."""
    rows: dict[tuple[str | None, int], RankFailure] = {}
    spans: list[tuple[int, int, tuple[str | None, int]]] = []
    host: str | None = None
    is_first = False
    current: tuple[str | None, int] | None = None
    started = 0
    for line in lines:
        text = line.text
        if not text.lstrip().startswith(_BEGINNINGS):
            continue
        if _ROOT.search(text) or _OTHERS.match(text) or text.startswith(("=====", "-----")):
            if current is not None:
                spans.append((started, line.number, current))
            current, is_first = None, bool(_ROOT.search(text)) or (is_first and text.startswith("---"))
        elif match := _HOST.match(text):
            host = match[1]
        elif match := _RANK.match(text):
            if current is not None:
                spans.append((started, line.number - 1, current))
            current, started = (host, int(match[1])), line.number
            if current not in rows and len(rows) < _MAX_ROWS:
                rows[current] = RankFailure(
                    rank=int(match[1]), local_rank=int(match[2]), host=host, is_first=is_first
                )
        elif current is not None and current in rows and (match := _EXIT.match(text)):
            old = rows[current]
            rows[current] = RankFailure(
                rank=old.rank,
                local_rank=old.local_rank,
                host=old.host,
                exit_code=int(match[1]),
                pid=int(match[2]),
                is_first=old.is_first or is_first,
            )
    if current is not None and lines:
        spans.append((started, lines[-1].number, current))
    order = {key: index for index, key in enumerate(rows)}
    return FailureTable(
        rows=tuple(rows.values()),
        spans=tuple((first, last, order[key]) for first, last, key in spans if key in order),
    )
