"""An estimate as tables: where the memory goes, who holds what, and every strategy side by side."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import STATES, Category, MomentBytes, RoleEstimate
from distdoctor.oom.facts.estimated import EstimateFacts, Variant
from distdoctor.oom.fit import Fits, fit_of, need_words
from distdoctor.oom.job import Job
from distdoctor.oom.pages import FOLDER, pages_of
from distdoctor.oom.parameters import count_active_parameters
from distdoctor.report.model import Column, Scalar, Table
from distdoctor.units import GIB

_GB = 1e9

# An assumption of so many strategies is one of all: a variant that checkpoints assumes no "no checkpointing".
_MOST = 0.75

_COLUMNS = ("states", "start", "step 1", "step 2", "needed", "host")


def estimate_tables(facts: EstimateFacts) -> tuple[Table, ...]:
    """All tables, the breakdown first."""
    tables = [_comparison(facts)] if facts.variants else []
    tables.append(_breakdown(facts, place_first=not facts.variants))
    if facts.variants:
        tables.append(_pages(facts))
    if len(facts.estimate.roles) > 1:
        tables.append(_roles(facts))
    tables += [_how(facts), _placements(facts), *_outside(facts), *_deepspeed(facts), _assumptions(facts)]
    return tuple(tables)


def _breakdown(facts: EstimateFacts, *, place_first: bool) -> Table:
    worst = facts.estimate.worst
    moments = [worst.peak_of_step(step) for step in (0, 1, 2)]
    rows: list[tuple[Scalar, ...]] = [
        (category.value, *(_gib(moment.of(category)) for moment in moments))
        for category in Category
        if any(moment.of(category) for moment in moments)
    ]
    rows.append(("allocated", *(_gib(moment.num_bytes) for moment in moments)))
    outside = facts.estimate.outside
    low, high = sum(each.low_bytes for each in outside), sum(each.high_bytes for each in outside)
    rows.append(("outside torch: context, NCCL", None, None, f"{_short(low)}-{_short(high)}"))
    if (slack := facts.estimate.slack) is not None:
        rows.append((slack.what, None, None, f"{_short(slack.low_bytes)}-{_short(slack.high_bytes)}"))
    low, high = facts.estimate.need_bytes
    rows.append(("needed on the GPU", None, None, f"{_short(low)}-{_short(high)}"))
    return Table(
        name="oom-breakdown",
        title=f"Where the memory goes, in GiB, estimated: {worst.role}",
        columns=(
            Column(name="what"),
            Column(name="start", align="right"),
            Column(name="step 1", align="right"),
            Column(name="step 2", align="right"),
        ),
        rows=tuple(rows),
        note=f"peak of step 1: {moments[1].moment.value}; of step 2: {moments[2].moment.value}",
        place="first" if place_first else "body",
    )


def assumption_words(facts: EstimateFacts) -> str:
    """What was assumed, in one sentence for the same screen."""
    assumptions = facts.estimate.assumptions
    if facts.variants:
        assumptions = tuple(each for each in assumptions if _is_common(each, facts))
    said = "; ".join(assumptions)
    first = f"Assumed: {said}." if said else "Nothing was assumed beyond what was said."
    # Side by side rows are dear, and what is said of the model's sizes stands in the table of the job.
    notes = () if facts.variants and facts.estimate.is_whole else facts.estimate.notes
    return " ".join((first, *notes))


def _is_common(assumption: str, facts: EstimateFacts) -> bool:
    """Side by side, what only one family of strategies assumes says nothing of the others."""
    made = [variant.estimate for variant in facts.variants if variant.estimate is not None]
    return sum(assumption in each.assumptions for each in made) >= _MOST * len(made)


def _comparison(facts: EstimateFacts) -> Table:
    columns = [
        Column(name="strategy"),
        *(Column(name=name, align="right") for name in _COLUMNS),
    ]
    if facts.cluster is not None:
        columns.append(Column(name="verdict"))
    rows = tuple(_compared(variant, facts) for variant in facts.variants)
    return Table(
        name="oom-strategies",
        title="Every strategy on its worst rank, estimated: states in GB, the rest in GiB",
        columns=tuple(columns),
        rows=rows,
        place="first",
    )


def _compared(variant: Variant, facts: EstimateFacts) -> tuple[Scalar, ...]:
    judged = facts.cluster is not None
    if variant.estimate is None:
        blank: tuple[Scalar, ...] = (None,) * 6
        return (variant.label, *blank, *(("impossible",) if judged else ()))
    worst = variant.estimate.worst
    low, high = variant.estimate.need_bytes
    cells: list[Scalar] = [
        variant.label,
        _brief(states_bytes(worst) / _GB),
        *(_brief(worst.peak_of_step(step).num_bytes / GIB) for step in (0, 1, 2)),
        _range(low, high),
        _brief(worst.host_bytes / GIB) if worst.host_bytes else None,
    ]
    if facts.cluster is not None:
        cells.append(answer_of(variant, facts).value)
    return tuple(cells)


def _pages(facts: EstimateFacts) -> Table:
    """Where each strategy is explained, and why one cannot be."""
    return Table(
        name="oom-strategy-pages",
        title="Where each is explained",
        columns=(Column(name="strategy"), Column(name="page"), Column(name="cannot be, because")),
        rows=tuple(
            (variant.label, f"{FOLDER}/{variant.page}.md", variant.why_not or None)
            for variant in facts.variants
        ),
    )


def answer_of(variant: Variant, facts: EstimateFacts) -> Fits:
    """Whether a variant fits the GPU that was named; cannot tell without one."""
    if variant.estimate is None or facts.cluster is None:
        return Fits.UNKNOWN
    return fit_of(variant.estimate, facts.cluster.type).answer


def need_of(variant: Variant) -> float:
    """The most that a variant's worst rank needs."""
    return variant.estimate.need_bytes[1] if variant.estimate is not None else float("inf")


def states_bytes(role: RoleEstimate) -> float:
    """Parameters, gradients and optimizer states of a rank when all of them are there: at the end of the last backward
    pass, or at the optimizer step."""
    last: tuple[MomentBytes, ...] = role.moments[-2:]
    return max(sum(moment.of(category) for category in STATES) for moment in last)


def _roles(facts: EstimateFacts) -> Table:
    rows = tuple(
        (
            role.role,
            role.num_ranks,
            _round(role.local_params / 1e9),
            *(_gib(role.peak_of_step(step).num_bytes) for step in (0, 1, 2)),
            role.peak.moment.value,
        )
        for role in facts.estimate.roles
    )
    return Table(
        name="oom-roles",
        title="Kinds of ranks: parameters in 10^9, peaks in GiB",
        columns=(
            Column(name="rank"),
            Column(name="ranks", align="right"),
            Column(name="parameters", align="right"),
            Column(name="start", align="right"),
            Column(name="step 1", align="right"),
            Column(name="step 2", align="right"),
            Column(name="peak at"),
        ),
        rows=rows,
    )


def _how(facts: EstimateFacts) -> Table:
    worst = facts.estimate.worst
    rows = tuple((amount.category.value, _gib(amount.num_bytes), amount.how) for amount in worst.peak.amounts)
    host = (("host memory", _gib(worst.host_bytes), worst.host_how),) if worst.host_bytes else ()
    return Table(
        name="oom-how",
        title=f"How the peak comes about: step {worst.peak.step}, {worst.peak.moment.value}",
        columns=(Column(name="what"), Column(name="GiB", align="right"), Column(name="how")),
        rows=(*rows, *host),
    )


def _placements(facts: EstimateFacts) -> Table:
    rows = tuple(
        (
            each.group,
            _round(each.numel / 1e9, 4),
            each.parameters,
            each.gradients,
            each.optimizer,
            each.dtensor,
        )
        for each in facts.estimate.placements
    )
    return Table(
        name="oom-placements",
        title="What is sharded over what",
        columns=(
            Column(name="parameters of"),
            Column(name="10^9", align="right"),
            Column(name="parameters"),
            Column(name="gradients"),
            Column(name="optimizer"),
            Column(name="as DTensor"),
        ),
        rows=rows,
        note="whole: every rank has all of it. docs/strategies/dtensor.md explains Shard and Replicate.",
    )


def _outside(facts: EstimateFacts) -> tuple[Table, ...]:
    ranges = [*facts.estimate.outside, *([facts.estimate.slack] if facts.estimate.slack else [])]
    if not ranges:
        return ()
    return (
        Table(
            name="oom-outside",
            title="What torch has not allocated: ranges, not estimates",
            columns=(
                Column(name="what"),
                Column(name="from", unit="GiB", align="right"),
                Column(name="to", unit="GiB", align="right"),
                Column(name="source"),
            ),
            rows=tuple(
                (each.what, _gib(each.low_bytes), _gib(each.high_bytes), each.source) for each in ranges
            ),
        ),
    )


def _deepspeed(facts: EstimateFacts) -> tuple[Table, ...]:
    if not facts.deepspeed:
        return ()
    return (
        Table(
            name="oom-deepspeed-estimator",
            title="What DeepSpeed's own estimator says (model states only)",
            columns=(
                Column(name="stage", align="right"),
                Column(name="options"),
                Column(name="GPU", unit="GiB", align="right"),
                Column(name="host, a node", unit="GiB", align="right"),
            ),
            rows=tuple(
                (row.stage, row.options, _round(row.gpu_bytes / GIB), _round(row.host_bytes / GIB))
                for row in facts.deepspeed
            ),
            note="No activations, buckets or live parameters; DeepSpeed labels these GiB figures GB.",
        ),
    )


def _count_words(job: Job) -> str:
    """`46.70e9 parameters, 12.88e9 of them for one token`."""
    words = f"{job.num_params / 1e9:,.2f}e9 parameters"
    if job.shape is None or job.shape.moe is None:
        return words
    return f"{words}, {count_active_parameters(job.shape) / 1e9:,.2f}e9 of them for one token"


def _assumptions(facts: EstimateFacts) -> Table:
    job = facts.job
    rows = [
        ("model", f"{job.model.name}, {_count_words(job)} ({job.model.source})"),
        ("ranks", f"{job.mesh.num_ranks}: {job.mesh.words()}"),
        ("precision", job.precision.value),
        ("optimizer", f"{job.optimizer.value}, {job.optimizer_loop.value}"),
        (
            "batch",
            f"{job.micro_batch} x {job.seq_len} tokens, {job.num_micro_batches} "
            f"micro-batch{'' if job.num_micro_batches == 1 else 'es'} a step",
        ),
        ("checkpointing", job.checkpointing.value),
    ]
    rows += [("explained in", page) for page in pages_of(job, facts.estimate)]
    rows += [("assumed", text) for text in facts.estimate.assumptions]
    rows += [("note", text) for text in facts.estimate.notes]
    return Table(
        name="oom-job",
        title="The job as it was understood",
        columns=(Column(name="what"), Column(name="value")),
        rows=tuple(rows),
    )


def fit_words(facts: EstimateFacts) -> str:
    """`52 to 66 of 79.1`; without a GPU `52 to 66 GiB`."""
    low, high = facts.estimate.need_bytes
    words = need_words(low, high)
    if facts.cluster is None:
        return f"{words} GiB"
    return f"{words} of {facts.cluster.type.total_bytes / GIB:.1f}"


def is_answered(facts: EstimateFacts) -> bool:
    """Whether the question that was asked has an answer."""
    fit = facts.fit
    return fit is None or fit.answer is not Fits.UNKNOWN


def _gib(num_bytes: float) -> float:
    return _round(num_bytes / GIB)


def _range(low: float, high: float) -> str:
    """`48-60`; what is far beyond any GPU in thousands."""
    if high / GIB >= 10_000:
        return f"{low / GIB / 1000:.0f}-{high / GIB / 1000:.0f}k"
    return f"{_short(low)}-{_short(high)}"


def _short(num_bytes: float) -> str:
    value = num_bytes / GIB
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def _brief(value: float) -> float:
    """For a table of many columns: three digits tell strategies apart."""
    return float(round(value)) if value >= 100 else _round(value)


def _round(value: float, digits: int | None = None) -> float:
    if digits is not None:
        return round(value, digits)
    return round(value) * 1.0 if abs(value) >= 1000 else round(value, 1 if abs(value) >= 1 else 2)
