"""Which collective a table is about and how many ranks took part, when nothing names them: from its arithmetic.

Sources: the printing code of nccl-tests (which columns each test fills, and `GetCollByteCount`), and the factors
of `definitions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.definitions import BY_NAME, Definition, Factor, canonical_name
from distdoctor.nccl_bench.readers.columns import Half, Layout, TableRow
from distdoctor.nccl_bench.readers.data_types import element_bytes

# The likeliest first: what people run, by our own count of public tables. It decides between those that print the same.
_BY_LIKELIHOOD = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "sendrecv",
    "gather",
    "scatter",
    "all_to_all_uneven",
)

# Their in-place half is not compared with anything: `#wrong` is N/A there and a number in the other half. Versions
# with a column of errors print a number all the same, which means nothing (NVIDIA/nccl-tests issue 253).
UNCHECKED_IN_PLACE = frozenset({"all_to_all", "all_to_all_uneven", "sendrecv"})

# sendrecv and alltoall print an operation though they reduce nothing, in some versions.
_PRINTS_SUM = frozenset({"sendrecv"})

# More ranks than any public run; an interval that reaches it says nothing.
MAX_RANKS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """The collective of a table; `known` is False when others would print the same rows."""

    name: str
    known: bool
    source: str


def infer_collective(
    rows: Sequence[TableRow], layout: Layout | None, num_ranks: int | None, label: str
) -> Collective:
    """The collective that fits the rows.

    `num_ranks`: from the list of ranks, where there is one. `label`: the file's name, which decides between
    those that fit.
    """
    fitting = [name for name in _BY_LIKELIHOOD if _fits(BY_NAME[name], rows, layout, num_ranks)]
    if not fitting:
        return Collective(name="all_reduce", known=False, source="nothing: no collective fits the rows")
    named = [name for name in fitting if name == collective_in_name(label)]
    if named:
        return Collective(name=named[0], known=True, source="the file's name and the shape of its rows")
    if len(fitting) == 1:
        return Collective(name=fitting[0], known=True, source="the shape of the rows")
    others = ", ".join(fitting[1:])
    return Collective(name=fitting[0], known=False, source=f"the shape of the rows, which also fits {others}")


def collective_in_name(label: str) -> str | None:
    """The one collective that a file's name speaks of: `allgather-2n.txt`, `all_reduce_perf.log`; else None."""
    words = re.split(r"[^a-z]+", label.rpartition("/")[2].lower().replace("_", ""))
    found = {name for word in words for name in [canonical_name(word)] if name in BY_NAME}
    return found.pop() if len(found) == 1 else None


def _fits(
    definition: Definition, rows: Sequence[TableRow], layout: Layout | None, num_ranks: int | None
) -> bool:
    return (
        _fits_columns(definition, rows, layout)
        and _fits_sizes(definition, rows, num_ranks)
        and _fits_ratio(definition, rows, num_ranks)
        and _fits_checks(definition, rows)
    )


def _fits_columns(definition: Definition, rows: Sequence[TableRow], layout: Layout | None) -> bool:
    """Operation and root as the test prints them; columns that old versions leave out tell as well."""
    ops = {row.op for row in rows}
    roots = {row.root for row in rows if row.root is not None}
    if ops - {None} and not definition.reduces and definition.name not in _PRINTS_SUM:
        return False
    if None in ops and definition.reduces:
        return False
    if layout is not None and not layout.has_redop and definition.name in ("all_to_all", "sendrecv"):
        return False  # versions that had these tests printed the column, blank
    if layout is not None and layout.has_redop and not layout.has_root and definition.name == "all_gather":
        return False  # versions without a root column gave all_gather no column for the operation
    if roots:
        return any(root >= 0 for root in roots) == definition.has_root
    return layout is None or layout.has_root == definition.has_root


def _fits_sizes(definition: Definition, rows: Sequence[TableRow], num_ranks: int | None) -> bool:
    """Size and count: a split collective prints the elements of one rank and the bytes of all."""
    parts = parts_of_size(rows)
    if parts is None:
        return True
    if definition.name == "all_to_all_uneven":
        return False  # its sizes are the busiest rank's, and no multiple of the count
    if definition.is_split:
        return parts == (num_ranks or parts) and (parts > 1 or num_ranks == 1 or _all_alone(rows))
    return parts == 1


def _fits_ratio(definition: Definition, rows: Sequence[TableRow], num_ranks: int | None) -> bool:
    """Some number of ranks gives the printed busbw."""
    if num_ranks is None and definition.is_split:
        num_ranks = parts_of_size(rows)
    factors = ratio_interval(rows)
    if factors is None:
        return True
    low, high = factors
    if num_ranks is not None:
        return low <= definition.factor.of(num_ranks) <= high
    if definition.factor is Factor.ONE:
        return low <= 1 <= high
    top = 2.0 if definition.factor is Factor.TWICE else 1.0
    return low < top and ranks_between(definition, low, high) != (0, 0)


def _fits_checks(definition: Definition, rows: Sequence[TableRow]) -> bool:
    halves = [half for row in rows if row.counts_wrong is not False for half in row.halves]
    outside = {_is_checked(half) for half in halves if half.in_place is False}
    inside = {_is_checked(half) for half in halves if half.in_place is True}
    if outside != {True} or not inside:
        return True
    return inside == {definition.name not in UNCHECKED_IN_PLACE}


def _is_checked(half: Half) -> bool:
    return half.check[:1].isdigit()


def parts_of_size(rows: Iterable[TableRow]) -> int | None:
    """How many ranks' elements make up `size`; None when it is no whole number or differs between rows."""
    found = set()
    for row in rows:
        width = element_bytes(row.data_type)
        if width is None or row.count <= 0:
            return None
        parts, rest = divmod(row.size, row.count * width)
        if rest:
            return None
        found.add(parts)
    return found.pop() if len(found) == 1 else None


def ratio_interval(rows: Iterable[TableRow]) -> tuple[float, float] | None:
    """The busbw/algbw that all rows agree on within their rounding; None when no row is precise enough.

    Rows that contradict one another (several groups) give the widest of their own intervals' overlap that the
    most precise row allows.
    """
    bounds = _ratio_bounds(rows)
    if not bounds:
        return None
    bounds.sort()
    _, low, high = bounds[0]
    for _, other_low, other_high in bounds[1:]:
        if other_low <= high and low <= other_high:
            low, high = max(low, other_low), min(high, other_high)
    # A value that is printed as exactly the limit of two roundings may lie a hair outside.
    return low * (1 - 1e-9), high * (1 + 1e-9)


def _ratio_bounds(rows: Iterable[TableRow]) -> list[tuple[float, float, float]]:
    """(width, lowest, highest busbw/algbw) of each half that is precise enough."""
    bounds = []
    for row in rows:
        for half in row.halves:
            algbw, busbw = half.algbw, half.busbw
            if algbw is None or busbw is None or algbw.value <= 4 * algbw.half:
                continue
            low = max(0.0, busbw.value - busbw.half) / (algbw.value + algbw.half)
            high = (busbw.value + busbw.half) / (algbw.value - algbw.half)
            bounds.append((high - low, low, high))
    return bounds


def _are_of_one_job(rows: Sequence[TableRow]) -> bool:
    """No two rows have factors that no number of ranks has in common: somebody put rows of several jobs together."""
    bounds = _ratio_bounds(rows)
    tolerance = 1e-9
    return not bounds or max(low for _, low, _ in bounds) <= min(high for *_, high in bounds) + tolerance


def ranks_between(definition: Definition, low: float, high: float) -> tuple[int, int]:
    """The smallest and largest number of ranks whose factor lies in the interval; (0, 0) when there is none."""
    if definition.factor is Factor.ONE:
        return (0, 0)
    top = 2.0 if definition.factor is Factor.TWICE else 1.0
    first = 1 if low <= 0 else math.ceil(top / (top - low) - 1e-9) if low < top else MAX_RANKS
    last = MAX_RANKS if high >= top else math.floor(top / (top - high) + 1e-9)
    first = max(1, first)
    return (first, min(last, MAX_RANKS)) if first <= last else (0, 0)


def ranks_of_table(collective: str, rows: Sequence[TableRow]) -> int | None:
    """The number of ranks that the rows themselves tell; None when rounding leaves more than one, or rows differ.

    Split collectives tell it exactly: size is count times ranks.
    """
    definition = BY_NAME.get(collective)
    if definition is None:
        return None
    interval = ratio_interval(rows)
    if definition.is_split:
        parts = parts_of_size(rows)
        if parts is not None and parts > 0 and _agrees(definition, parts, interval):
            return parts
    if interval is None or not _are_of_one_job(rows):
        return None
    first, last = ranks_between(definition, *interval)
    return first if first == last and first > 0 else None


def is_possible(collective: str, num_ranks: int, rows: Sequence[TableRow]) -> bool:
    """The rows' busbw is that of so many ranks, or they are too coarse to tell."""
    definition = BY_NAME.get(collective)
    return definition is None or _agrees(definition, num_ranks, ratio_interval(rows))


def _agrees(definition: Definition, num_ranks: int, interval: tuple[float, float] | None) -> bool:
    return interval is None or interval[0] <= definition.factor.of(num_ranks) <= interval[1]


def _all_alone(rows: Iterable[TableRow]) -> bool:
    interval = ratio_interval(rows)
    return interval is not None and interval[0] <= 0
