"""Is a row steady enough to be judged? Spread of its repeats and what else the hosts did meanwhile.

Noise makes only slower, and on a loaded machine a lot: medians of repeats of one cell differed 2.4-fold
typically and 15-fold at worst on two busy cores, with nothing wrong. Within one quiet machine room five runs of
H100 hosts differed by 0.15 % (MLPerf training 4.0 logs). Which of the two a run is, its repeats tell, and load.
"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.statistics import max_over_min, median
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention
from distdoctor.nccl_bench.facts.rows import Row

# Repeats that differ this much prove nothing about a link, whatever the reason. Our own threshold.
MAX_FOLD = 1.5

# A run in which most cells from this size on differ this much is noise throughout. Our own thresholds: less than for
# a single cell, for here many agree.
MAX_FOLD_OF_RUN = 1.15
RUN_FROM_BYTES = 1 << 20
RUN_MIN_CELLS = 4

# On a host that is visibly busy less is enough to blame the load. Our own threshold.
MAX_FOLD_WHEN_BUSY = 1.15

# More runnable tasks than this for each CPU: somebody waits. Our own threshold.
BUSY_LOAD_PER_CPU = 1.5

# Share of the time in which some task waited for a CPU (PSI, some avg10). Our own threshold.
BUSY_PRESSURE_PCT = 25.0

# Times a second that a measuring rank was put aside for another task. Our own threshold: an undisturbed rank has
# a few, one that shares its core with an equal is switched at every tick of 4 ms.
BUSY_SWITCHES_PER_S = 100.0

# In a table without repeats, in-place and out-of-place times of one size stand in for two repeats. Where a third
# of the sizes, and at least three, differ this much, the table is noise. Our own thresholds; no healthy published
# table has more than one such size.
HALVES_FOLD = 1.5
HALVES_SHARE = 1 / 3
HALVES_MIN_SIZES = 3


def is_noisy(facts: BenchFacts, row: Row) -> str | None:
    """Why `row` cannot be judged, as a clause ("its 3 repeats differ 2.4-fold …"); None when it can."""
    busy = busy_hosts(facts)
    fold = max_over_min(row.repeats_us)
    if fold is not None and fold >= MAX_FOLD:
        return f"its {len(row.repeats_us)} repeats differ {fold:.1f}-fold{_and(busy)}"
    if busy and (fold is None or fold >= MAX_FOLD_WHEN_BUSY):
        spread = f"its repeats differ {fold:.2f}-fold" if fold is not None else "it was measured once"
        return f"{spread}{_and(busy)}"
    return run_disagrees(facts) or _halves_disagree(facts, row)


def run_disagrees(facts: BenchFacts) -> str | None:
    """One cell whose repeats agree proves nothing in a run where those of most others do not."""
    folds = [
        fold
        for each in facts.rows
        if each.size_bytes >= RUN_FROM_BYTES and (fold := max_over_min(each.repeats_us)) is not None
    ]
    if len(folds) < RUN_MIN_CELLS or median(folds) < MAX_FOLD_OF_RUN:
        return None
    return f"repeats in this run differ {median(folds):.1f}-fold as a rule"


def busy_hosts(facts: BenchFacts) -> tuple[str, ...]:
    """What disturbed each host that was busy: "host-a: load 12.3 on 2 CPUs"."""
    return tuple(f"{each.host}: {why}" for each in facts.contention if (why := _busy(each)) is not None)


def _busy(contention: Contention) -> str | None:
    load, cpus = contention.load_1min, contention.num_cpus
    if load is not None and cpus and load > cpus * BUSY_LOAD_PER_CPU:
        return f"load {load:.1f} on {cpus} CPUs"
    pressure = contention.cpu_pressure_pct
    if pressure is not None and pressure > BUSY_PRESSURE_PCT:
        return f"tasks waited for a CPU in {pressure:.0f} % of the time"
    switches = contention.involuntary_switches_per_s
    if switches is not None and switches > BUSY_SWITCHES_PER_S:
        return f"a rank was put aside {switches:.0f} times a second"
    return None


def _and(busy: Sequence[str]) -> str:
    if not busy:
        return ""
    others = len(busy) - 1
    more = f" and {others} more host{'s' if others > 1 else ''}" if others else ""
    return f", and the host was busy ({busy[0]}{more})"


def _halves_disagree(facts: BenchFacts, row: Row) -> str | None:
    """Whether the two halves of the table that `row` belongs to contradict each other."""
    if row.repeats_us or row.in_place is None:
        return None
    times: dict[int, list[float]] = {}
    for each in facts.rows:
        if each.in_place is not None and _same_curve(each, row) and each.time_us > 0:
            times.setdefault(each.size_bytes, []).append(each.time_us)
    folds = [fold for values in times.values() if (fold := max_over_min(values)) is not None]
    apart = [fold for fold in folds if fold >= HALVES_FOLD]
    if len(apart) < HALVES_MIN_SIZES or len(apart) < HALVES_SHARE * len(folds):
        return None
    return (
        f"in-place and out-of-place times differ up to {max(apart):.1f}-fold "
        f"at {len(apart)} of {len(folds)} sizes"
    )


def _same_curve(one: Row, other: Row) -> bool:
    return (one.collective, one.group.label, one.style, one.dtype, one.op, one.concurrent) == (
        other.collective,
        other.group.label,
        other.style,
        other.dtype,
        other.op,
        other.concurrent,
    )
