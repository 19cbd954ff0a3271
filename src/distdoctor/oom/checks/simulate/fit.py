"""Does what was simulated fit the GPU that was named?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.estimate.base import gib
from distdoctor.oom.checks.simulate.base import SOURCE, SimulationCheck, peak_evidence
from distdoctor.oom.facts.simulated import Capped
from distdoctor.oom.fit import Fit, Fits, gpu_words
from distdoctor.oom.memory.log import Place
from distdoctor.oom.simulation.eager import eager_words
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team


def _run(facts: SimulationFacts) -> Sequence[Outcome]:
    if facts.cluster is None:
        return [NotApplicable(detail="no GPU type was given (--on)")]
    fit = facts.fit
    if fit is None:
        return [
            NotSeen(
                unread=Unread(
                    cause=SkipCause.FAILED,
                    reason="not every kind of rank was simulated",
                    how="see the failure",
                )
            )
        ]
    gpu = gpu_words(facts.cluster.type)
    if fit.answer is Fits.YES:
        return [Passed(detail=f"fits {gpu}: {gib(fit.headroom_low)} to {gib(fit.headroom_high)} are left")]
    return [_found(facts, fit, gpu)]


def _found(facts: SimulationFacts, fit: Fit, gpu: str) -> Found:
    failing, worst = facts.failing, facts.simulation.worst
    confidence = Confidence.MEDIUM
    if failing is not None and (place := failing[1].failed_at) is not None:
        role, capped = failing
        title = f"does not fit {gpu}: out of memory {_when(place)}"
        evidence = (*peak_evidence(role), _refused(facts, capped, gpu))
        explanation = "The allocator's work was replayed within this GPU, cached memory given back first."
        confidence = Confidence.HIGH
        if facts.job is not None and (bound := eager_words(facts.job)):
            explanation = f"It was {bound}. {explanation}"
            confidence = Confidence.MEDIUM
    else:
        title = f"tight on {gpu}: needs {gib(fit.need_low)} to {gib(fit.need_high)} of {gib(fit.capacity)}"
        evidence = (*(peak_evidence(worst) if worst is not None else ()), _needed(facts, fit, gpu))
        explanation = "Context and NCCL are known as ranges only; with most of them there is no room."
        if facts.retries:
            title = f"tight on {gpu}: fits only by giving cached memory back to the driver"
            explanation = (
                f"With room it would hold more than the GPU has; here the allocator gives cached memory back "
                f"{'once' if facts.retries == 1 else f'{facts.retries} times'} in two steps, and each time the GPU waits."
            )
    return Found(
        title=title,
        evidence=evidence,
        explanation=explanation,
        actions=(_what_now(facts),),
        severity=Severity.CRITICAL if fit.answer is Fits.NO else Severity.WARNING,
        confidence=confidence,
        cause_class="capacity",
        fault=Fault.CONFIG,
    )


def _what_now(facts: SimulationFacts) -> Action:
    if facts.job is None:
        text = "let it keep less: --checkpointing full, a smaller batch in its inputs, more ranks (--mesh dp_shard=N)"
        return Action(team=Team.JOB_OWNER, text=text)
    if facts.fit_options is None:
        text = "search for what makes a model of these sizes fit: `distdoctor oom fit --model NAME`"
        return Action(team=Team.JOB_OWNER, text=text)
    return Action(
        team=Team.JOB_OWNER,
        text="search for what makes it fit",
        command=f"distdoctor oom fit {facts.fit_options}",
    )


def _when(place: Place) -> str:
    """`in step 2, backward`."""
    return f"in step {place.step}, {place.phase.value}" if place.step else "at initialisation"


def _refused(facts: SimulationFacts, capped: Capped, gpu: str) -> Evidence:
    """What could not be served, and where the program was."""
    place = capped.failed_at
    where = f" in {place.module}" if place is not None and place.module else ""
    op = place.op.removesuffix(".default") if place is not None else ""
    return Evidence(
        text=f"{gib(capped.requested_bytes)} wanted by {op}{where} with {gib(capped.allocated_bytes)} allocated",
        value=capped.allocated_bytes + capped.requested_bytes,
        unit="B",
        expected=f"at most {gib(capped.capacity_bytes)} for torch's allocator",
        expected_source=f"capacity of {gpu} without context and NCCL: {_source(facts)}",
        source=SOURCE,
    )


def _needed(facts: SimulationFacts, fit: Fit, gpu: str) -> Evidence:
    return Evidence(
        text=f"with room it would hold {gib(fit.need_low)} to {gib(fit.need_high)}: reserved by the allocator, "
        "context and NCCL",
        value=round(fit.need_low),
        unit="B",
        expected=f"at most {gib(fit.capacity)}",
        expected_source=f"capacity of {gpu}: {_source(facts)}",
        source=SOURCE,
    )


def _source(facts: SimulationFacts) -> str:
    return facts.cluster.type.source if facts.cluster else ""


CHECK = SimulationCheck(
    id="oom-simulated-fit", title="simulated need against the GPU's memory", run=_run, essential=True
)
