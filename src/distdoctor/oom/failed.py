"""What a report of `oom explain` holds about the failure, for an estimate to be held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from distdoctor.errors import InputError
from distdoctor.evidence import read_bounded
from distdoctor.oom.facts.events import Phase
from distdoctor.report.codec import MAX_REPORT_BYTES, decode
from distdoctor.report.model import Scalar, Table

_TABLE = "oom-events"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The event that held most, of those whose message tells it. Bytes."""

    path: str
    rank: int | None
    total_bytes: int | None
    allocated_bytes: int
    requested_bytes: int
    phase: str

    @property
    def wanted_bytes(self) -> int:
        """The least that the job would have allocated: what it held, and what it asked for."""
        return self.allocated_bytes + self.requested_bytes


def read_failure(path: str) -> Failure:
    """The failure in a JSON report. Raises InputError when it is no report, or one without such numbers."""
    try:
        data = read_bounded(path, MAX_REPORT_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read `{path}`: {error.strerror or error}") from None
    report = decode(data, path)
    failures = [failure for table in report.tables for failure in _failures(table, path)]
    if not failures:
        raise InputError(
            f"the report `{path}` holds no message with its numbers",
            hint="make it with `oom explain LOG --format json` from a message that says what was allocated",
        )
    return max(failures, key=lambda each: each.wanted_bytes)


def _failures(table: Table, path: str) -> Iterable[Failure]:
    if table.name != _TABLE:
        return
    names = [column.name for column in table.columns]
    for row in table.rows:
        cells = dict(zip(names, row, strict=False))
        allocated, requested = _whole(cells, "allocated"), _whole(cells, "requested")
        if allocated is None or requested is None:
            continue
        yield Failure(
            path=path,
            rank=_whole(cells, "rank"),
            total_bytes=_whole(cells, "total"),
            allocated_bytes=allocated,
            requested_bytes=requested,
            phase=_phase(cells.get("phase")),
        )


def _phase(value: Scalar) -> str:
    """A phase that we know; a report may come from anywhere."""
    return str(value) if value in {each.value for each in Phase} else Phase.UNKNOWN.value


def _whole(cells: Mapping[str, Scalar], name: str) -> int | None:
    value = cells.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60 else None
