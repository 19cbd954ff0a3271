"""Which row of an older run belongs to which row of this one, and has it become slower for certain?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from distdoctor.nccl_bench.analysis.noise import is_noisy
from distdoctor.nccl_bench.analysis.statistics import relative_spread
from distdoctor.nccl_bench.definitions import BARRIER
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import GroupKind, Row, Style
from distdoctor.units import MIB

# A smaller difference is named no regression, however steady the repeats. Our own threshold; SuperBench calls a
# node defective at 5 % below its baseline.
MIN_DROP = 0.05

# Where one side has no repeats, chance cannot be told from change below this. Our own threshold: healthy published
# tables of the same machines differ by 2 % at large sizes and more at small ones.
MIN_DROP_WITHOUT_REPEATS = 0.15
# ... and below this share of the spread that the other side's repeats have.
SPREADS = 2.0
# ... and for small messages, whose single means jump. Our own thresholds.
SMALL_BYTES = MIB
MIN_DROP_SMALL_WITHOUT_REPEATS = 0.40

# Sizes that differ by no more than this are compared: powers of two against rounded decimal sizes. Our own.
SIZE_TOLERANCE = 1.05


class Change(str, Enum):
    """What became of a row."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "the same"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A row and its baseline. Times are per byte where sizes differ a little."""

    row: Row
    before: Row
    change: Change
    why_unclear: str = ""

    @property
    def ratio(self) -> float:
        """Bandwidth now over bandwidth then; at one size the inverse of the times."""
        return (self.row.size_bytes / self.row.time_us) / (self.before.size_bytes / self.before.time_us)

    @property
    def both_repeated(self) -> bool:
        """Both sides have repeats, so that their intervals can be compared."""
        return len(self.row.repeats_us) > 1 and len(self.before.repeats_us) > 1


def pairs_of(facts: BenchFacts, baseline: BenchFacts) -> tuple[Pair, ...]:
    """Each row of `facts` with the row of `baseline` that it can be compared with; rows without one are left out.

    Equal: collective, ranks, group, style, whether groups ran at once, in place or not (where both say). Nearest:
    size, by at most 5 %. Data type and op are not asked for: bytes matter.
    """
    by_key: dict[_Key, list[Row]] = {}
    for each in baseline.rows:
        by_key.setdefault(_key(each), []).append(each)
    pairs: list[Pair] = []
    for row in facts.rows:
        if _tells_arrivals(row, facts):
            continue
        before = _match(row, by_key.get(_key(row), ()))
        if before is not None:
            change, why = _change(facts, baseline, row, before)
            pairs.append(Pair(row=row, before=before, change=change, why_unclear=why))
    return tuple(pairs)


def _tells_arrivals(row: Row, facts: BenchFacts) -> bool:
    """Isolated rows of a live run that measured in streams: they are there to show who comes late."""
    streams = any(each.style is Style.STREAMING and each.collective == row.collective for each in facts.rows)
    return row.style is Style.ISOLATED and (streams or row.collective == BARRIER)


_Key = tuple[str, int | None, Style, bool, str]


def _key(row: Row) -> _Key:
    """What must be equal. A table is about a whole job; other groups must have one kind and one label."""
    group = row.group
    whole = group.kind in (GroupKind.JOB, GroupKind.TABLE)
    name = "" if whole else f"{group.kind.value} {group.label}"
    return row.collective, row.num_ranks, row.style, row.concurrent, name


def _match(row: Row, rows: Iterable[Row]) -> Row | None:
    """The row of nearest size among those with an equal key, or None."""
    if row.size_bytes <= 0 or row.time_us <= 0:
        return None
    candidates = [
        each
        for each in rows
        if each.size_bytes > 0
        and each.time_us > 0
        and (each.in_place is None or row.in_place is None or each.in_place is row.in_place)
        and 1 / SIZE_TOLERANCE <= each.size_bytes / row.size_bytes <= SIZE_TOLERANCE
    ]
    return min(
        candidates,
        key=lambda each: (
            abs(each.size_bytes - row.size_bytes),
            each.dtype != row.dtype,
            each.op != row.op,
            each.time_us,
        ),
        default=None,
    )


def _change(facts: BenchFacts, baseline: BenchFacts, row: Row, before: Row) -> tuple[Change, str]:
    noise = is_noisy(facts, row)
    if noise is not None:
        return Change.UNCLEAR, f"now {noise}"
    noise = is_noisy(baseline, before)
    if noise is not None:
        return Change.UNCLEAR, f"in the baseline {noise}"
    pair = Pair(row=row, before=before, change=Change.SAME)
    drop, gain = 1 - pair.ratio, 1 - 1 / pair.ratio
    needed = _needed(pair)
    if drop > needed and _apart(row, before):
        return Change.SLOWER, ""
    if gain > needed and _apart(before, row):
        return Change.FASTER, ""
    return Change.SAME, ""


def _needed(pair: Pair) -> float:
    """The least drop that counts."""
    spreads = [relative_spread(each.repeats_us) or 0.0 for each in (pair.row, pair.before)]
    if pair.both_repeated:
        # Three repeats of equal runs lie apart in one of ten comparisons: by less than what they spread.
        return max(MIN_DROP, sum(spreads))
    least = MIN_DROP_WITHOUT_REPEATS
    if pair.row.size_bytes < SMALL_BYTES:
        least = MIN_DROP_SMALL_WITHOUT_REPEATS
    return max(least, SPREADS * max(spreads))


def _apart(slow: Row, fast: Row) -> bool:
    """Whether every repeat of `slow` is slower, byte for byte, than every repeat of `fast`."""
    slow_times = slow.repeats_us or (slow.time_us,)
    fast_times = fast.repeats_us or (fast.time_us,)
    return min(slow_times) / slow.size_bytes > max(fast_times) / fast.size_bytes


def why_not_comparable(facts: BenchFacts, baseline: BenchFacts) -> str | None:
    """Why the two runs are of different things ("8 × A100 against 8 × H100"); None when nothing known differs.

    A different number of network ports or NVLinks, or another NCCL, does not stop the comparison: those are what
    a regression comes from.
    """
    if facts.backend and baseline.backend and facts.backend != baseline.backend:
        return f"another backend: {baseline.backend} against {facts.backend} now"
    models = (_models(facts), _models(baseline))
    if all(models) and models[0] != models[1]:
        return f"other hardware: {', '.join(models[1])} against {', '.join(models[0])} now"
    for name, now, then in (
        ("ranks", facts.num_ranks, baseline.num_ranks),
        ("hosts", facts.num_hosts, baseline.num_hosts),
    ):
        if now is not None and then is not None and now != then:
            return f"another number of {name}: {then} against {now} now"
    if facts.shares_gpus is not baseline.shares_gpus and (facts.rows and baseline.rows):
        return "only one of the two shares its GPUs with others"
    return None


def _models(facts: BenchFacts) -> tuple[str, ...]:
    """Each GPU model with the vendor's prefix gone, so that a table's short name equals NVML's."""
    listed = [place.gpu_model for place in facts.places if place.gpu_model]
    if not listed:
        listed = [model for each in facts.hardware for model in each.gpu_models or ()]
    return tuple(sorted({model.removeprefix("NVIDIA ").removeprefix("Tesla ") for model in listed}))
