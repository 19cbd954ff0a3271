"""What a report of `oom explain` holds about the failure, for an estimate to be held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from distdoctor.errors import InputError
from distdoctor.evidence import read_bounded
from distdoctor.oom.explain.causes.job import IDLE_SHARE
from distdoctor.oom.explain.causes.kinds import Cause
from distdoctor.oom.facts.events import Phase
from distdoctor.report.codec import MAX_REPORT_BYTES, decode
from distdoctor.report.model import Report, Scalar, Table

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
    free_bytes: int | None = None
    idle_bytes: int | None = None
    """Reserved by torch's allocator, not allocated."""
    outside_bytes: int | None = None
    """Held by the process outside torch's allocator."""
    others_bytes: int | None = None
    """Held on this card by other processes."""
    allowed_bytes: int | None = None
    """What the process may use, where that is less than the card."""
    cause: str = ""
    """What `oom explain` found; one of its own words."""

    @property
    def is_fragmented(self) -> bool:
        """What was asked for would have fitted into what the allocator held idle, and that was not little.

        By the rule of `oom explain`, so that the two never disagree; it may be true beside another cause.
        """
        if self.idle_bytes is None or not self.idle_bytes >= self.requested_bytes > 0:
            return False
        if self.cause == Cause.FRAGMENTATION.value:
            return True
        whole = self.total_bytes if self.total_bytes is not None else self.allocated_bytes + self.idle_bytes
        return self.idle_bytes >= IDLE_SHARE * whole

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
    failure = failure_of(decode(data, path), path)
    if failure is None:
        raise InputError(
            f"the report `{path}` holds no message with its numbers",
            hint="make it with `oom explain LOG --format json` from a message that says what was allocated",
        )
    return failure


def failure_of(report: Report, path: str) -> Failure | None:
    """The failure in a report that is read already; None where it holds none with such numbers."""
    failures = [failure for table in report.tables for failure in _failures(table, path)]
    return max(failures, key=lambda each: each.wanted_bytes, default=None)


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
            free_bytes=_whole(cells, "free"),
            idle_bytes=_whole(cells, "reserved_unallocated"),
            outside_bytes=_whole(cells, "non_torch"),
            others_bytes=_whole(cells, "others"),
            allowed_bytes=_whole(cells, "allowed"),
            cause=_cause(cells.get("cause")),
        )


def _phase(value: Scalar) -> str:
    """A phase that we know; a report may come from anywhere."""
    return str(value) if value in {each.value for each in Phase} else Phase.UNKNOWN.value


def _cause(value: Scalar) -> str:
    return str(value) if value in {each.value for each in Cause} else ""


def _whole(cells: Mapping[str, Scalar], name: str) -> int | None:
    value = cells.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60 else None
