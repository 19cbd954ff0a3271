"""Proposals as tables: a short one for a screen, one with everything, and one in bytes for programs."""

from __future__ import annotations

import math

from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.search.confirm import Confirmation
from distdoctor.oom.search.costs import brief_costs
from distdoctor.oom.search.limits import Limit, Limited
from distdoctor.oom.search.proposal import Outcome, Proposal
from distdoctor.oom.search.sentences import sentence, short_words, what_to_do
from distdoctor.report.model import Column, Scalar, Table
from distdoctor.units import GIB

# Rows that leave room for the verdict and the first sentence on a screen of 24. Our own choice.
MAX_FIRST = 5


def fit_tables(facts: FitFacts) -> tuple[Table, ...]:
    """All tables of the search, what answers first."""
    tables: list[Table] = []
    outcome = facts.outcome
    if facts.limits:
        tables.append(_limits(facts))
    if outcome is not None and outcome.proposals:
        tables += [_first(outcome), _sentences(outcome, facts), _costs(outcome), _data(outcome)]
    if outcome is not None and outcome.floor is not None:
        tables.append(_floor(outcome))
    return tuple(tables)


def _first(outcome: Outcome) -> Table:
    shown = outcome.proposals[:MAX_FIRST]
    left = len(outcome.proposals) - len(shown)
    counted = f"; all {len(outcome.proposals)} with -v" if left > 0 else ""
    simulated = any(each.confirmation is not Confirmation.NOT_ASKED for each in outcome.proposals)
    columns = [
        Column(name="change"),
        Column(name="needs", align="right"),
        Column(name="left", align="right"),
        *([Column(name="simulated")] if simulated else []),
        Column(name="costs"),
    ]
    return Table(
        name="oom-fit",
        title=f"What makes it fit {outcome.room.usable / GIB:.1f} GiB; needs and room in GiB{counted}",
        columns=tuple(columns),
        rows=tuple(_row(each, simulated=simulated) for each in shown),
        note="needs: by formula; simulated: by torch's own code; both with context and NCCL"
        if simulated
        else None,
        place="first",
    )


def _row(proposal: Proposal, *, simulated: bool) -> tuple[Scalar, ...]:
    fit = proposal.trial.fit
    cells: list[Scalar] = [
        short_words(proposal.trial.changes),
        range_words(fit.need_low, fit.need_high),
        f"{math.floor(fit.headroom_low / GIB)} ({proposal.headroom_share:.0%})",
    ]
    if simulated:
        cells.append(_simulated(proposal))
    return (*cells, brief_costs(proposal.costs))


def _simulated(proposal: Proposal) -> str | None:
    if proposal.confirmation is Confirmation.NOT_ASKED:
        return None
    if proposal.simulated_need is None:
        return "not possible"
    return f"{range_words(*proposal.simulated_need)}{', too large' if proposal.is_refuted else ', fits'}"


def _sentences(outcome: Outcome, facts: FitFacts) -> Table:
    """What to send to the job's owner."""
    return Table(
        name="oom-fit-sentences",
        title="Each as a sentence for the job's owner",
        columns=(Column(name="#", align="right"), Column(name="sentence"), Column(name="simulation")),
        rows=tuple(
            (number, sentence(each, outcome, facts.configs), each.confirmation_words or None)
            for number, each in enumerate(outcome.proposals, 1)
        ),
        note="The need is a range: allocated bytes by formula, and ranges for context, NCCL and the allocator.",
    )


def _costs(outcome: Outcome) -> Table:
    return Table(
        name="oom-fit-costs",
        title="What each costs, of the rank that sends most; GiB are of one optimizer step",
        columns=(
            Column(name="#", align="right"),
            Column(name="change"),
            Column(name="compute", align="right"),
            Column(name="sent", unit="GiB", align="right"),
            Column(name="PCIe", unit="GiB", align="right"),
            Column(name="waiting", align="right"),
            Column(name="host", unit="GiB", align="right"),
            Column(name="GPUs", align="right"),
            Column(name="micro x steps"),
            Column(name="batch", align="right"),
            Column(name="numerics"),
        ),
        rows=tuple(_cost_row(number, each) for number, each in enumerate(outcome.proposals, 1)),
        note=f"today: {outcome.start.job.mesh.words()}, {_gib(_sent_today(outcome))} GiB sent a step. Compute: more than "
        "today's. Waiting: the pipeline's bubble. Formulas and sources: docs/oom.md, fit",
    )


def _sent_today(outcome: Outcome) -> float:
    return outcome.proposals[0].costs.sent_before


def _cost_row(number: int, proposal: Proposal) -> tuple[Scalar, ...]:
    costs, job = proposal.costs, proposal.trial.job
    return (
        number,
        short_words(proposal.trial.changes),
        f"{costs.extra_compute:+.0%}",
        _gib(costs.sent),
        _gib(costs.pcie) if costs.pcie else None,
        f"{costs.bubble:.0%}" if costs.bubble else None,
        _gib(costs.host_bytes) if costs.host_bytes else None,
        costs.num_gpus,
        f"{job.micro_batch} x {job.num_micro_batches}",
        costs.global_batch,
        "; ".join(costs.numerics) or "same",
    )


def _data(outcome: Outcome) -> Table:
    """Bytes, for programs."""
    numbers = ("need_low", "need_high", "headroom", "sent", "host")
    return Table(
        name="oom-fit-proposals",
        title="proposals",
        columns=(
            Column(name="changes"),
            *(Column(name=name, unit="B", align="right") for name in numbers),
            Column(name="extra_compute", align="right"),
            Column(name="bubble", align="right"),
            Column(name="answer"),
            Column(name="confirmation"),
            Column(name="what_to_do"),
        ),
        rows=tuple(
            (
                short_words(each.trial.changes),
                round(each.trial.fit.need_low),
                round(each.trial.fit.need_high),
                round(each.trial.fit.headroom_low),
                round(each.costs.sent),
                round(each.costs.host_bytes),
                round(each.costs.extra_compute, 4),
                round(each.costs.bubble, 4),
                each.trial.fit.answer.value,
                each.confirmation.value,
                what_to_do(each),
            )
            for each in outcome.proposals
        ),
        place="data",
    )


def _floor(outcome: Outcome) -> Table:
    floor = outcome.floor
    rows: list[tuple[Scalar, ...]] = []
    if floor is not None:
        peak = floor.smallest.estimate.worst.peak
        rows = [(each.category.value, _gib(each.num_bytes), each.how) for each in peak.amounts]
    return Table(
        name="oom-fit-floor",
        title="What the smallest need that was found consists of",
        columns=(Column(name="what"), Column(name="GiB", align="right"), Column(name="how")),
        rows=tuple(rows),
        note=f"with {short_words(floor.smallest.changes)}" if floor and floor.smallest.changes else None,
    )


def _limits(facts: FitFacts) -> Table:
    simulated = any(each.confirmation is not Confirmation.NOT_ASKED for each in facts.limits)
    title = (
        f"The largest that fits, by estimate{' and simulation' if simulated else ''}"
        if facts.limited is not None
        else "What would use the room, by estimate: each alone"
    )
    return Table(
        name="oom-fit-limits",
        title=title,
        columns=(
            Column(name="what"),
            Column(name="now", align="right"),
            Column(name="largest", align="right"),
            Column(name="then needs", align="right"),
            Column(name="next", align="right"),
            Column(name="needs", align="right"),
            *([Column(name="simulated", align="right")] if simulated else []),
        ),
        rows=tuple(
            (*_limit_row(each), *([_simulated_limit(each)] if simulated else [])) for each in facts.limits
        ),
        note="All other settings stay"
        + (
            "; the global batch grows with the micro-batch."
            if any(each.what is Limited.MICRO_BATCH for each in facts.limits)
            else "."
        ),
        place="first",
    )


def _limit_row(limit: Limit) -> tuple[Scalar, ...]:
    beyond = limit.beyond_fit
    return (
        limit.what.value,
        limit.now,
        limit.largest,
        range_words(limit.fit.need_low, limit.fit.need_high) if limit.largest is not None else None,
        limit.beyond,
        range_words(beyond.need_low, beyond.need_high) if beyond is not None else None,
    )


def _simulated_limit(limit: Limit) -> str | None:
    if limit.simulated_need is None:
        return "not possible" if limit.confirmation is Confirmation.NOT_POSSIBLE else None
    return range_words(*limit.simulated_need)


def range_words(low: float, high: float) -> str:
    """`29-36`, in GiB."""
    return f"{_short(low)}-{_short(high)}"


def _short(num_bytes: float) -> str:
    value = num_bytes / GIB
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def _gib(num_bytes: float) -> float:
    value = num_bytes / GIB
    return float(round(value)) if value >= 100 else round(value, 1)
