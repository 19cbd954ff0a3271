"""Did the benchmark end, or does its table stop half-way? A table without a footer may also be an excerpt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.readers.columns import TableRow
from distdoctor.nccl_bench.readers.draft import Draft
from distdoctor.units import MIB, format_bytes

# Nobody plans a sweep that ends while bandwidth still grows by this much with each doubling: it was cut, or pasted
# in part. Our own threshold; complete public tables end at 1.0 to 1.1.
STILL_RISING = 1.25

# A sweep from a few bytes that ends below this says nothing about bandwidth. Our own threshold.
SMALL_END_BYTES = 4 * MIB

# So few rows show no shape.
FEW_ROWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """`ended` False: the table is cut, and `cut` says why it looks so."""

    ended: bool
    cut: str | None = None
    likely: bool = True
    """False: the text ends behind a whole row, so that a copy of a part looks the same."""
    excerpt: bool = False
    planned_max_bytes: int | None = None


def judge_ending(draft: Draft) -> Ending:
    """Whether the run behind a table ended, as far as the text shows."""
    planned = planned_max(draft)
    if draft.has_footer and draft.num_footers >= draft.num_starts:
        return Ending(ended=True, excerpt=draft.has_ellipsis, planned_max_bytes=planned)
    if draft.has_footer and draft.num_starts <= 1:
        return Ending(ended=True, excerpt=draft.has_ellipsis, planned_max_bytes=planned)
    if draft.has_footer:
        missing = draft.num_starts - draft.num_footers
        return Ending(
            ended=False,
            cut=f"{missing} of {draft.num_starts} tables that were begun have no footer",
            planned_max_bytes=planned,
        )
    if not draft.has_rows:
        return _without_rows(draft, planned)
    if draft.unfinished is not None and not draft.has_ellipsis:
        size = format_bytes(draft.unfinished.size)
        return Ending(
            ended=False, cut=f"the row of {size} was begun and not finished", planned_max_bytes=planned
        )
    if draft.failures or draft.endings:
        return Ending(ended=False, cut="no footer, but lines of a failure", planned_max_bytes=planned)
    last = last_size(draft)
    if draft.has_ellipsis:
        return Ending(ended=True, excerpt=True, planned_max_bytes=planned)
    if planned is not None and last is not None and draft.has_head:
        return _against_plan(draft, last, planned)
    # A command above rows, and no head between them: somebody quoted a part, and its plan says nothing of its end.
    return _by_shape(draft.rows)


def _without_rows(draft: Draft, planned: int | None) -> Ending:
    if draft.failures or draft.endings:
        return Ending(ended=False, cut="it failed before its first row", planned_max_bytes=planned)
    if draft.layout is not None:
        return Ending(ended=False, cut="no row follows the header", planned_max_bytes=planned)
    # Heads are also pasted for what their list of ranks says.
    cut = "nothing follows the list of devices or settings"
    return Ending(ended=False, cut=cut, likely=False, planned_max_bytes=planned)


def _against_plan(draft: Draft, last: int, planned: int) -> Ending:
    """All rows of the plan are there, or not; sizes of split collectives are rounded down."""
    settings = draft.settings
    step = (settings.step if settings is not None else None) or 2
    is_factor = settings is None or settings.step_is_factor
    following = last * max(2, step) if is_factor else last + step
    slack = _rounding(draft.rows)
    if following > planned or last + slack >= planned:
        return Ending(ended=True, excerpt=True, planned_max_bytes=planned)
    cut = f"no footer after the row of {format_bytes(last)}, and sizes up to {format_bytes(planned)} were asked for"
    # The text ends behind a whole row: the run may have stopped there, or whoever copied it.
    return Ending(ended=False, cut=cut, likely=False, planned_max_bytes=planned)


def _rounding(rows: Sequence[TableRow]) -> int:
    """What the sizes of split collectives lose: 16 bytes of each rank."""
    largest = max((row.size // max(1, row.count) for row in rows if row.count), default=1)
    return 16 * largest


def _by_shape(rows: Sequence[TableRow]) -> Ending:
    """No plan and no footer: rows of a plateau were pasted; a sweep that stops while it rises was cut."""
    if len(rows) < FEW_ROWS:
        return Ending(ended=True, excerpt=True)
    last = rows[-1]
    starts_small = rows[0].size < MIB
    if starts_small and last.size < SMALL_END_BYTES:
        return Ending(
            ended=False,
            cut=f"no footer after the row of {format_bytes(last.size)}, far below sizes that fill a link",
            likely=False,
        )
    rise = _rise(rows)
    if rise is not None and rise >= STILL_RISING:
        return Ending(
            ended=False,
            cut=f"no footer after the row of {format_bytes(last.size)}, and bandwidth was still rising",
            likely=False,
        )
    return Ending(ended=True, excerpt=True)


def _rise(rows: Sequence[TableRow]) -> float | None:
    """Growth of algbw over the last step, for each doubling of the size; None below what smaller sizes reached."""
    before, last = rows[-2], rows[-1]
    if last.size <= before.size or not before.halves or not last.halves:
        return None
    times = before.halves[0].time.value, last.halves[0].time.value
    if not all(times):
        return None
    if any(_speed(row) > _speed(last) for row in rows[:-1]):
        return None
    growth = (last.size / times[1]) / (before.size / times[0])
    doublings = (last.size / before.size - 1) if last.size < 2 * before.size else last.size / before.size / 2
    return float(1 + (growth - 1) / max(1.0, doublings))


def _speed(row: TableRow) -> float:
    """Bytes a microsecond of the row's first half; 0 where it has none."""
    return row.size / row.halves[0].time.value if row.halves and row.halves[0].time.value else 0.0


def planned_max(draft: Draft) -> int | None:
    """The largest size that was asked for: what memory allowed, else maxBytes, else -e."""
    if draft.max_bytes is not None:
        return draft.max_bytes
    if draft.settings is not None and draft.settings.max_bytes is not None:
        return draft.settings.max_bytes
    return draft.command.max_bytes


def last_size(draft: Draft) -> int | None:
    """The largest size for which a row is there; None when every row was of size 0."""
    return max((row.size for row in draft.rows), default=None)
