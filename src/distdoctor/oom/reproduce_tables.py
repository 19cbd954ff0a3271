"""Tables and bars of a reproduction: strategies side by side, and each rank's own counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.reproduced import Outcome, RankPart, Reproduced, ReproduceFacts
from distdoctor.report.model import Column, Scalar, Series, Table
from distdoctor.units import GIB, MIB, fold_ints

# Nine of them stand beside one another on 80 columns.
_BRIEF = {
    Category.PARAMETERS: "params",
    Category.GRADIENTS: "grads",
    Category.OPTIMIZER: "optimizer",
    Category.GATHERED: "gathered",
    Category.ACTIVATIONS: "activ.",
    Category.LOGITS: "logits",
    Category.COMMUNICATION: "buffers",
    Category.TEMPORARIES: "temp.",
}

_NOT_RUN = "not run"

# In the note below the table. Our own bound.
_MAX_REASONS = 2

# From here on GiB say enough. Our own choice.
_GIB_FROM = 4 * GIB


def reproduce_tables(facts: ReproduceFacts) -> tuple[Table, ...]:
    """What people and programs look at."""
    begun = [each for each in facts.combinations if not each.not_begun]
    unit, divisor = _unit(begun)
    tables = [_strategies(facts, unit, divisor)]
    if any(each.worst is not None for each in begun):
        tables += [_categories(begun, unit, divisor), _ranks(facts, begun, unit, divisor)]
    return (*tables, _raw(begun))


def reproduce_series(facts: ReproduceFacts) -> tuple[Series, ...]:
    """One bar for each strategy: its worst rank's peak by category."""
    measured = [
        (each, peak)
        for each in facts.combinations
        if (worst := each.worst) is not None and (peak := worst.peak) is not None
    ]
    if not measured:
        return ()
    unit, divisor = _unit([each for each, _ in measured])
    categories = [
        each.value
        for each in Category
        if any(round(peak.by_category.get(each.value, 0) / divisor, 2) for _, peak in measured)
    ]
    limit = facts.memory_limit_bytes
    return (
        Series(
            name="oom-reproduced-peaks",
            title="Measured: live tensors at the peak of the worst rank of each strategy",
            kind="stacked",
            y_label=unit,
            x=tuple(each.name for each, _ in measured),
            names=tuple(categories),
            values=tuple(
                tuple(round(peak.by_category.get(category, 0) / divisor, 2) for _, peak in measured)
                for category in categories
            ),
            hot=tuple(
                index for index, (each, _) in enumerate(measured) if each.outcome is Outcome.OUT_OF_MEMORY
            ),
            limit=limit / divisor if limit is not None else None,
            limit_label=f"--memory-limit: {limit / divisor:.1f} {unit}" if limit is not None else "",
        ),
    )


def _unit(combinations: Iterable[Reproduced]) -> tuple[str, int]:
    peaks = [worst.peak.num_bytes for each in combinations if (worst := each.worst) and worst.peak]
    return ("GiB", GIB) if max(peaks, default=0) >= _GIB_FROM else ("MiB", MIB)


def _strategies(facts: ReproduceFacts, unit: str, divisor: int) -> Table:
    return Table(
        name="oom-reproduced",
        title=f"Peak of the worst rank in {unit}: live tensors, measured and by formula",
        columns=(
            Column(name="strategy"),
            Column(name="result"),
            Column(name="measured", align="right"),
            Column(name="formula", align="right"),
            Column(name="rank", align="right"),
            Column(name="at"),
        ),
        rows=tuple(_strategy_row(each, divisor) for each in facts.combinations),
        place="first",
        note=_strategies_note(facts),
    )


def _strategies_note(facts: ReproduceFacts) -> str | None:
    """Whose kernels and whose partitioning it was."""
    notes = [] if facts.on_gpu else ["On the CPU; the formulas count CUDA's kernels."]
    by_maker: dict[str, list[str]] = {}
    for each in facts.combinations:
        maker = next((part.made_by for part in each.parts if part.made_by), "")
        if maker:
            by_maker.setdefault(maker, []).append(each.name)
    notes += [f"{', '.join(names)}: {maker}." for maker, names in by_maker.items()]
    return " ".join([*notes, *_reasons(facts)]) or None


def _reasons(facts: ReproduceFacts) -> list[str]:
    """Why strategies were left out; of many reasons the first ones, for all stand among what was not seen."""
    if len(facts.combinations) == 1:
        return []  # the summary says it
    by_reason: dict[str, list[str]] = {}
    for each in facts.combinations:
        if each.not_begun:
            by_reason.setdefault(f"{_NOT_RUN}: {each.not_begun}", []).append(each.name)
        elif each.outcome is Outcome.CANNOT_RUN:
            why = next(part.error for part in each.parts if part.outcome is Outcome.CANNOT_RUN)
            by_reason.setdefault(f"{Outcome.CANNOT_RUN.value}: {why}", []).append(each.name)
    return [f"{', '.join(names)} {reason}." for reason, names in list(by_reason.items())[:_MAX_REASONS]]


def _strategy_row(combination: Reproduced, divisor: int) -> tuple[Scalar, ...]:
    worst = combination.worst
    peak = worst.peak if worst is not None else None
    role = combination.role_of(worst.rank) if worst is not None else None
    if combination.not_begun:
        return (combination.name, _NOT_RUN, None, None, None, None)
    at = ""
    if peak is not None:
        at = f"step {peak.at.step}, {peak.at.phase}" if peak.at.step else peak.at.phase
    return (
        combination.name,
        combination.outcome.value,
        _round(peak.num_bytes / divisor) if peak is not None else None,
        _round(role.peak.num_bytes / divisor) if role is not None else None,
        worst.rank if worst is not None else None,
        at,
    )


def _categories(begun: Sequence[Reproduced], unit: str, divisor: int) -> Table:
    measured = [
        (each.name, peak) for each in begun if (worst := each.worst) is not None and (peak := worst.peak)
    ]
    categories = [
        each
        for each in Category
        if any(_round(peak.by_category.get(each.value, 0) / divisor) for _, peak in measured)
    ]
    return Table(
        name="oom-reproduced-categories",
        title=f"What the peak was made of, in {unit}: the worst rank of each strategy",
        columns=(
            Column(name="strategy"),
            *(Column(name=_BRIEF.get(each, each.value), align="right") for each in categories),
        ),
        rows=tuple(
            (name, *(_round(peak.by_category.get(each.value, 0) / divisor) for each in categories))
            for name, peak in measured
        ),
    )


_WHY_THEY_DIFFER_CPU = (
    "Process: growth of resident memory over what it was before the program was built. It can be larger than tensors: Gloo "
    "and kernels take memory inside an op and give it back, and the C library keeps what was freed. It is smaller where "
    "memory was taken and never written, as most of ZeRO's buckets under a small model."
)
_WHY_THEY_DIFFER_GPU = (
    "Allocated and reserved: the CUDA allocator's own peaks. Allocated is larger than tensors where a kernel takes "
    "memory inside an op; reserved, where blocks are kept for later."
)


def _ranks(facts: ReproduceFacts, begun: Sequence[Reproduced], unit: str, divisor: int) -> Table:
    own = ("allocated", "reserved") if facts.on_gpu else ("process",)
    rows: list[tuple[Scalar, ...]] = []
    for combination in begun:
        rows += [
            _ranks_row(combination, parts, divisor, on_gpu=facts.on_gpu) for parts in _folded(combination)
        ]
    return Table(
        name="oom-reproduced-ranks",
        title=f"Each rank's peak in {unit}, by two counts; seconds of its last step with the count on",
        columns=(
            Column(name="strategy"),
            Column(name="ranks"),
            Column(name="tensors", align="right"),
            *(Column(name=name, align="right") for name in own),
            Column(name="steps", align="right"),
            Column(name="s/step", align="right"),
            Column(name="loss", align="right"),
        ),
        rows=tuple(rows),
        note=_WHY_THEY_DIFFER_GPU if facts.on_gpu else _WHY_THEY_DIFFER_CPU,
    )


def _folded(combination: Reproduced) -> list[list[RankPart]]:
    """Ranks that came to the same peak in the same way, as one."""
    groups: dict[tuple[object, ...], list[RankPart]] = {}
    for part in combination.parts:
        key = (part.outcome, part.steps_done, part.peak.num_bytes if part.peak is not None else None)
        groups.setdefault(key, []).append(part)
    return list(groups.values())


def _ranks_row(
    combination: Reproduced, parts: Sequence[RankPart], divisor: int, *, on_gpu: bool
) -> tuple[Scalar, ...]:
    first = parts[0]
    losses = [loss for part in parts for loss in part.losses[-1:] if loss is not None]
    own: tuple[Scalar, ...]
    if on_gpu:
        own = (
            _most((part.allocated_peak_bytes for part in parts), divisor),
            _most((part.reserved_peak_bytes for part in parts), divisor),
        )
    else:
        own = (_most((_growth(part) for part in parts), divisor),)
    return (
        combination.name,
        fold_ints(tuple(part.rank for part in parts)),
        _round(first.peak.num_bytes / divisor) if first.peak is not None else None,
        *own,
        first.steps_done,
        round(max((part.step_s[-1] for part in parts if part.step_s), default=0.0), 3),
        round(sum(losses) / len(losses), 3) if losses else None,
    )


def _growth(part: RankPart) -> int | None:
    if part.rss_peak_bytes is None or part.rss_before_bytes is None:
        return None
    return part.rss_peak_bytes - part.rss_before_bytes


def _most(values: Iterable[int | None], divisor: int) -> float | None:
    known = [value for value in values if value is not None]
    return _round(max(known) / divisor) if known else None


def _raw(begun: Sequence[Reproduced]) -> Table:
    """Every number of every rank, for programs."""
    names = (
        "strategy", "rank", "outcome", "steps", "peak_bytes", "peak_step", "peak_phase", "peak_module", "peak_op",
        "rss_before_bytes", "rss_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "loss", "step_s", "error",
    )  # fmt: skip
    rows = tuple(
        (
            each.name,
            part.rank,
            part.outcome.value,
            part.steps_done,
            part.peak.num_bytes if part.peak else None,
            part.peak.at.step if part.peak else None,
            part.peak.at.phase if part.peak else None,
            part.peak.at.module if part.peak else None,
            part.peak.at.op if part.peak else None,
            part.rss_before_bytes,
            part.rss_peak_bytes,
            part.allocated_peak_bytes,
            part.reserved_peak_bytes,
            part.losses[-1] if part.losses else None,
            part.step_s[-1] if part.step_s else None,
            part.error or None,
        )
        for each in begun
        for part in each.parts
    )
    return Table(
        name="oom-reproduced-raw",
        title="Every rank of every strategy",
        columns=tuple(Column(name=name) for name in names),
        rows=rows,
        place="data",
    )


def _round(value: float) -> float:
    return round(value) * 1.0 if abs(value) >= 1000 else round(value, 1 if abs(value) >= 1 else 2)
