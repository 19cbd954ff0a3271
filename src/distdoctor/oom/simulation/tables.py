"""A simulation as tables: the peak by category with the estimate beside it, phases, ranks, modules."""

from __future__ import annotations

from collections.abc import Iterable

from distdoctor.oom.checks.simulate.base import place_words
from distdoctor.oom.facts.estimate import Category, RoleEstimate
from distdoctor.oom.facts.simulated import PhasePeak, RoleSimulation
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report.model import Column, Scalar, Table
from distdoctor.units import GIB

# Of the table of modules; the JSON has no more either.
_MAX_MODULES = 24


def simulation_tables(facts: SimulationFacts) -> tuple[Table, ...]:
    """All tables, the breakdown of the worst rank first."""
    worst = facts.simulation.worst
    if worst is None:
        return ()
    tables = [_breakdown(facts, worst)]
    if len(facts.simulation.roles) > 1:
        tables.append(_roles(facts))
    return (*tables, _phases(worst), _modules(worst), _how(facts))


def _breakdown(facts: SimulationFacts, worst: RoleSimulation) -> Table:
    """Start, step 1, step 2, and the estimate of the peak."""
    estimated = _estimated(facts, worst)
    moments = [_peak_of_step(worst, step) for step in (0, 1, 2)]
    known = [moment for moment in moments if moment is not None]
    peak = estimated.peak if estimated is not None else None
    rows: list[tuple[Scalar, ...]] = []
    for category in Category:
        by_formula = peak.of(category) if peak is not None else 0.0
        simulated = [moment.by_category.get(category, 0) for moment in known]
        if any(_gib(num_bytes) for num_bytes in (*simulated, by_formula)):
            cells = [_gib(moment.by_category.get(category, 0)) if moment else None for moment in moments]
            rows.append((category.value, *cells, *_of(estimated, by_formula)))
    rows.append(
        (
            "allocated",
            *(_gib(moment.num_bytes) if moment else None for moment in moments),
            *_of(estimated, peak.num_bytes if peak is not None else 0.0),
        )
    )
    blank: tuple[Scalar, ...] = (None, None)
    low, high = facts.outside_bytes
    reserved = facts.reserved_bytes(worst)
    for each in worst.reserved:
        kind = "expandable" if each.expandable_segments else "fixed"
        slack = facts.estimate.slack if facts.estimate and not each.expandable_segments else None
        beside = None
        if slack is not None and peak is not None:
            beside = _range(peak.num_bytes + slack.low_bytes, peak.num_bytes + slack.high_bytes)
        rows.append(
            (f"reserved, {kind} segments", *blank, _gib(each.peak_bytes), *((beside,) if estimated else ()))
        )
    if facts.estimate is not None or facts.outside:
        rows.append(
            ("outside torch: context, NCCL", *blank, _range(low, high), *((None,) if estimated else ()))
        )
        needed = facts.estimate.need_bytes if facts.estimate is not None else (0.0, 0.0)
        rows.append(
            (
                "held on the GPU, with room",
                *blank,
                _range(reserved + low, reserved + high),
                *((_range(*needed),) if estimated else ()),
            )
        )
    columns = [
        Column(name="what"),
        *(Column(name=name, align="right") for name in ("start", "step 1", "step 2")),
    ]
    if estimated is not None:
        columns.append(Column(name="by formula", align="right"))
    return Table(
        name="oom-simulated",
        title=f"Where the memory goes, in GiB, simulated: {worst.role}",
        columns=tuple(columns),
        rows=tuple(rows),
        note="; ".join((f"peak: {place_words(worst.peak)}", *worst.caveats)),
        place="first",
    )


def _of(estimated: RoleEstimate | None, num_bytes: float) -> tuple[Scalar, ...]:
    return (_gib(num_bytes),) if estimated is not None else ()


def _estimated(facts: SimulationFacts, role: RoleSimulation) -> RoleEstimate | None:
    """The estimate of the same kind of rank."""
    if facts.estimate is None or facts.job is None:
        return None
    stage = role.rank // max(1, facts.job.mesh.num_ranks // facts.job.mesh.pp)
    return next((each for each in facts.estimate.roles if each.stage == stage), None)


def _peak_of_step(role: RoleSimulation, step: int) -> PhasePeak | None:
    return max(
        (peak for peak in role.peaks if peak.step == step), key=lambda peak: peak.num_bytes, default=None
    )


def _roles(facts: SimulationFacts) -> Table:
    rows = []
    for role in facts.simulation.roles:
        estimated = _estimated(facts, role)
        rows.append(
            (
                role.role,
                role.num_ranks,
                _gib(role.peak.num_bytes),
                _gib(estimated.peak.num_bytes) if estimated is not None else None,
                _gib(facts.reserved_bytes(role)),
                place_words(role.peak),
            )
        )
    return Table(
        name="oom-simulated-roles",
        title="Kinds of ranks, peaks in GiB",
        columns=(
            Column(name="rank"),
            Column(name="ranks", align="right"),
            Column(name="allocated", align="right"),
            Column(name="by formula", align="right"),
            Column(name="reserved", align="right"),
            Column(name="peak at"),
        ),
        rows=tuple(rows),
    )


def _phases(worst: RoleSimulation) -> Table:
    second = worst.second
    note = ""
    if second is not None:
        note = f"second-highest phase: {place_words(second)}, {_gib(second.num_bytes):g} GiB"
    return Table(
        name="oom-simulated-phases",
        title=f"The peak of each phase, in GiB: {worst.role}",
        columns=(
            Column(name="step", align="right"),
            Column(name="phase"),
            Column(name="allocated", align="right"),
            Column(name="largest part"),
            Column(name="module"),
            Column(name="op"),
        ),
        rows=tuple(
            (
                peak.step,
                peak.phase.value,
                _gib(peak.num_bytes),
                _largest(peak.by_category.items()),
                peak.place.module or None,
                peak.place.op.removesuffix(".default") or None,
            )
            for peak in worst.peaks
        ),
        note=note,
    )


def _largest(parts: Iterable[tuple[Category, int]]) -> str | None:
    category, num_bytes = max(parts, key=lambda each: each[1], default=(None, 0))
    return f"{category.value} {_gib(num_bytes):g}" if category is not None else None


def _modules(worst: RoleSimulation) -> Table:
    rows = tuple(
        (each.module or "(outside all modules)", each.category.value, _gib(each.num_bytes))
        for each in worst.modules[:_MAX_MODULES]
    )
    return Table(
        name="oom-simulated-modules",
        title="What was alive at the peak, by the module that made it",
        columns=(Column(name="module"), Column(name="what"), Column(name="GiB", align="right")),
        rows=rows,
    )


def _how(facts: SimulationFacts) -> Table:
    """How each number was found."""
    rows: list[tuple[Scalar, ...]] = [
        (role.role, f"{role.how}; {'; '.join(role.notes)}" if role.notes else role.how)
        for role in facts.simulation.roles
    ]
    rows += [
        (
            f"{role.role}: cost",
            f"{role.cpu_seconds:.1f} s CPU, {role.max_rss_bytes / GIB:.2f} GiB of this host, torch {role.torch_version}",
        )
        for role in facts.simulation.roles
    ]
    rows += [(failure.role, f"not simulated: {failure.reason}") for failure in facts.simulation.failures]
    check = facts.simulation.self_check
    if check is not None and check.measured_bytes is not None:
        rows.append(
            (
                "self-check",
                f"a tiny model: simulated {check.simulated_bytes:,} bytes, the real allocator counted {check.measured_bytes:,}",
            )
        )
    if facts.estimate is not None:
        rows += [("assumed", text) for text in facts.estimate.assumptions]
    rows += [("note", text) for text in facts.simulation.notes]
    return Table(
        name="oom-simulated-how",
        title="How it was simulated",
        columns=(Column(name="what"), Column(name="value")),
        rows=tuple(rows),
    )


def _gib(num_bytes: float) -> float:
    value = num_bytes / GIB
    return round(value, 1) if value >= 1 else round(value, 3)


def _range(low: float, high: float) -> str:
    first, last = (f"{each / GIB:.1f}" for each in (low, high))
    return first if first == last else f"{first}-{last}"
