"""Rows as printed become rows as measured: units, rounding, wrong data, both halves apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from distdoctor.nccl_bench.definitions import algbw_gbps, busbw_gbps
from distdoctor.nccl_bench.facts.rows import Group, Row, WrongData
from distdoctor.nccl_bench.readers.columns import Half, TableRow
from distdoctor.nccl_bench.readers.data_types import torch_name
from distdoctor.nccl_bench.readers.inference import UNCHECKED_IN_PLACE
from distdoctor.nccl_bench.readers.numbers import Printed, parse_number

# The largest error that versions with an `error` column allowed, for half precision; others are stricter. Source:
# DeltaMaxValue in nccl-tests before 2022.
MAX_ERROR = 1e-2

# Versions of 2016 print milliseconds: algbw is then this many times what size over time gives.
MILLISECONDS = 1e3
MILLISECONDS_WITHIN = 0.1


def rows_of_table(
    table: Sequence[TableRow],
    *,
    collective: str,
    group: Group,
    concurrent: bool,
    num_ranks: int | None,
    iters: int | None,
    validation: int | None,
    footer_ok: bool = False,
) -> tuple[Row, ...]:
    """Each half as a row of its own; halves without a usable time are left out.

    `footer_ok`: the run's own footer found no value out of bounds.
    """
    unit_us = time_unit_us(table)
    rows = []
    for row in table:
        for half in row.halves:
            time_us = _time_us(row, half, unit_us)
            if time_us is None:
                continue
            wrong, validated = _checked(half, row, collective, footer_ok=footer_ok)
            i_min, i_max, i_p99 = (each.value if each else None for each in half.iterations or (None,) * 3)
            rows.append(
                Row(
                    collective=collective,
                    group=group,
                    num_ranks=num_ranks,
                    size_bytes=row.size,
                    dtype=torch_name(row.data_type),
                    op=row.op,
                    in_place=half.in_place,
                    concurrent=concurrent,
                    iters=iters,
                    time_us=time_us,
                    min_us=i_min,
                    max_us=i_max,
                    p99_us=i_p99,
                    mean_us=time_us,
                    algbw_gbps=_algbw(row, half, time_us),
                    busbw_gbps=_busbw(row, half, time_us, collective, num_ranks),
                    wrong=wrong,
                    validated=validated and validation != 0,
                    algorithm=half.algorithm,
                    protocol=half.protocol,
                    channels=half.channels,
                    source_line=row.line,
                )
            )
    return tuple(rows)


def _checked(half: Half, row: TableRow, collective: str, *, footer_ok: bool) -> tuple[WrongData | None, bool]:
    """What the check column says of one half, where it says anything.

    Old versions print an error for halves that nothing is compared with. Of numbers in a column of errors the footer
    decides, which knew what each data type may lose; "nan" it let pass.
    """
    is_error = row.counts_wrong is False and parse_number(half.check.rstrip("*")) is not None
    if half.in_place and collective in UNCHECKED_IN_PLACE and row.counts_wrong is not True:
        return None, False
    wrong, validated = checked(half.check, row.counts_wrong)
    return (None if is_error and footer_ok else wrong), validated


def checked(check: str, counts_wrong: bool | None) -> tuple[WrongData | None, bool]:
    """Wrong data that a check column tells of, and whether it tells anything.

    `counts_wrong`: True for `#wrong`, False for a column of errors, None when the header is missing: then a
    whole number is a count and anything below 1 an error.
    """
    marked = check.endswith("*")
    word = check.rstrip("*")
    if not word[:1].isdigit():
        # "nan" and "inf" are errors beyond any limit; N/A and nothing are no answer.
        broken = word.lower().lstrip("+-") in ("nan", "inf", "infinity")
        return (
            (WrongData(ranks=(), elements=0, example=f"largest error {word}"), True)
            if broken
            else (None, False)
        )
    number = parse_number(word)
    if number is None:
        return WrongData(ranks=(), elements=0, example=f"largest error {word}"), True
    if counts_wrong is None:
        counts_wrong = word.isdigit() or (number.value >= 1 and number.value == int(number.value))
    if counts_wrong:
        return (WrongData(ranks=(), elements=int(number.value)) if number.value else None), True
    if marked or number.value > MAX_ERROR:
        return WrongData(ranks=(), elements=0, example=f"largest error {word}"), True
    return None, True


def time_unit_us(table: Iterable[TableRow]) -> float:
    """1, or 1000 for versions that print milliseconds: size, time and algbw tell."""
    ratios = [
        row.size / half.time.value / 1e3 / half.algbw.value
        for row in table
        for half in row.halves
        if half.algbw and half.time.value > 0 and not half.algbw.is_coarse and not half.time.is_coarse
    ]
    if not ratios:
        return 1.0
    return MILLISECONDS if abs(median(ratios) / MILLISECONDS - 1) < MILLISECONDS_WITHIN else 1.0


def _time_us(row: TableRow, half: Half, unit_us: float) -> float | None:
    """The time column; with -C it is the CPU's, and the transfer's follows from algbw."""
    if half.is_cpu_time:
        return row.size / half.algbw.value / 1e3 if half.algbw and half.algbw.value > 0 else None
    return half.time.value * unit_us if half.time.value > 0 else None


def _algbw(row: TableRow, half: Half, time_us: float) -> float | None:
    return _printed(half.algbw) or algbw_gbps(row.size, time_us)


def _busbw(row: TableRow, half: Half, time_us: float, collective: str, num_ranks: int | None) -> float | None:
    """As printed; computed where the print has too few digits; None for one rank and where nothing is left."""
    if num_ranks is not None and num_ranks < 2:
        return None
    printed = _printed(half.busbw)
    if printed is not None:
        return printed
    if num_ranks is not None:
        return busbw_gbps(collective, row.size, time_us, num_ranks)
    return half.busbw.value if half.busbw is not None and half.busbw.value > 0 else None


def _printed(number: Printed | None) -> float | None:
    """The printed number where its digits say enough."""
    return number.value if number is not None and number.value > 0 and not number.is_coarse else None
