"""What was read of one table so far: the state that its lines are put into, and what that state shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from distdoctor.nccl_bench.readers.columns import Layout, TableRow
from distdoctor.nccl_bench.readers.commands import Command
from distdoctor.nccl_bench.readers.head import Bounds, DeviceLine, Settings

# Rows of one table that are kept; a sweep over all types and operations has some 3000. Our own choice. Rows with
# wrong data are kept beyond it.
MAX_ROWS = 10_000

# Lines that tell of a failure, and their length. Our own choice.
MAX_FAILURES = 20
MAX_FAILURE_CHARACTERS = 300
MAX_DEVICES = 100_000


@dataclass(slots=True, kw_only=True)
class Draft:
    """What was read of one table so far."""

    stream: str = ""
    first_line: int = 0
    last_line: int = 0
    command: Command = field(default_factory=Command)
    tool: str | None = None
    library: tuple[str, str, str | None] | None = None
    banner: str | None = None
    """Collective in the banner; "" for a binary that is none of ours."""
    settings: Settings | None = None
    max_bytes: int | None = None
    """After "Reducing maxBytes"."""
    devices: list[DeviceLine] = field(default_factory=list)
    has_device_list: bool = False
    layout: Layout | None = None
    only_in_place: bool | None = None
    rows: list[TableRow] = field(default_factory=list)
    num_skipped: int = 0
    num_left_out: int = 0
    unfinished: TableRow | None = None
    bounds: Bounds | None = None
    average: float | None = None
    num_footers: int = 0
    concluded: bool = False
    failures: list[tuple[int, str]] = field(default_factory=list)
    endings: list[tuple[int, str]] = field(default_factory=list)
    has_ellipsis: bool = False
    num_starts: int = 0
    """Heads that came before the footer: more than one when several processes print at once."""
    cycles: bool = False
    spans: dict[tuple[str, str | None, int | None], tuple[int, int]] = field(default_factory=dict)
    """First and last size of each type, operation and root."""

    @property
    def has_rows(self) -> bool:
        """Rows came, even if all were of size 0."""
        return bool(self.rows) or self.num_skipped > 0 or self.unfinished is not None

    @property
    def has_footer(self) -> bool:
        """Any line of the footer is there."""
        return self.num_footers > 0 or self.average is not None or self.concluded

    @property
    def has_head(self) -> bool:
        """A line is there that only the run itself prints before its rows."""
        return self.settings is not None or self.banner is not None or self.has_device_list

    @property
    def is_table(self) -> bool:
        """More than a command or a version."""
        return self.has_rows or self.has_head or self.has_footer or bool(self.failures)

    @property
    def is_alone(self) -> bool:
        """Bytes were moved, and none of them over a bus: one rank. Also true without any row that tells."""
        halves = [half for row in self.rows for half in row.halves if half.algbw and not half.algbw.is_coarse]
        return all(half.busbw is not None and half.busbw.value == 0 for half in halves)

    @property
    def is_interleaved(self) -> bool:
        """Several processes print into it."""
        return self.num_starts > 1 and self.num_starts > self.num_footers
