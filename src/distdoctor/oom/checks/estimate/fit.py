"""Does the estimate fit the GPU that was named?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.estimate.base import SOURCE, EstimateCheck, gib, peak_evidence
from distdoctor.oom.facts.estimate import RoleEstimate
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.oom.fit import Fit, Fits, gpu_words
from distdoctor.oom.knobs import Knob, knobs_of
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

_MAX_KNOBS = 4


def _run(facts: EstimateFacts) -> Sequence[Outcome]:
    fit = facts.fit
    if fit is None or facts.cluster is None:
        return [NotApplicable(detail="no GPU type was given (--on)")]
    gpu = gpu_words(facts.cluster.type)
    match fit.answer:
        case Fits.YES:
            return [
                Passed(detail=f"fits {gpu}: {gib(fit.headroom_low)} to {gib(fit.headroom_high)} are left")
            ]
        case Fits.UNKNOWN:
            reason = "model states fit, but activations are unknown without the model's shape"
            how: str | None = "give --model NAME or config.json, or --layers, --hidden, --heads, --vocab"
            if facts.estimate.not_covered:
                reason, how = f"what is counted fits, but not covered: {facts.estimate.not_covered[0]}", None
            return [NotSeen(unread=Unread(cause=SkipCause.NOT_ASKED, reason=reason, how=how))]
        case Fits.TIGHT:
            return [_found(facts, fit, gpu, is_too_large=False)]
        case Fits.NO:
            return [_found(facts, fit, gpu, is_too_large=True)]


def _found(facts: EstimateFacts, fit: Fit, gpu: str, *, is_too_large: bool) -> Found:
    if is_too_large:
        title = f"does not fit {gpu}: {gib(-fit.headroom_high)} short on each GPU, at least"
        why = _when(facts.estimate.worst, fit)
    else:
        title = f"tight on {gpu}: needs {gib(fit.need_low)} to {gib(fit.need_high)} of {gib(fit.capacity)}"
        why = (
            "Whether it fits depends on the allocator, NCCL and the context, which are known as ranges only."
        )
    cluster = facts.cluster
    knobs = knobs_of(facts.job, facts.estimate, cluster.type)[:_MAX_KNOBS] if cluster else ()
    return Found(
        title=title,
        evidence=(
            *peak_evidence(facts),
            Evidence(
                text=f"needs {gib(fit.need_low)} to {gib(fit.need_high)} with context, NCCL and allocator slack",
                value=round(fit.need_low),
                unit="B",
                expected=f"at most {gib(fit.capacity)}",
                expected_source=f"capacity of {gpu}: {facts.cluster.type.source if facts.cluster else ''}",
                source=SOURCE,
            ),
        ),
        explanation=why,
        actions=tuple(_action(knob) for knob in knobs),
        severity=Severity.CRITICAL if is_too_large else Severity.WARNING,
        confidence=Confidence.MEDIUM,
        key=facts.job.strategy.value,
        cause_class="capacity",
        fault=Fault.CONFIG,
    )


def _when(worst: RoleEstimate, fit: Fit) -> str:
    """The first moment that does not fit even at its least."""
    beyond = fit.need_low - worst.peak.num_bytes
    for moment in worst.moments:
        if moment.num_bytes + beyond > fit.capacity:
            when = (
                "at initialisation"
                if not moment.step
                else f"in step {moment.step}, at: {moment.moment.value}"
            )
            return f"It would run out {when}."
    return "It would run out at its peak."


_THEN = {Fits.YES: "then it fits", Fits.TIGHT: "then it is tight", Fits.NO: "not enough alone"}


def _action(knob: Knob) -> Action:
    """The answer before the price: a screen may cut the end."""
    then = _THEN.get(knob.answer, "then activations decide")
    cost = f" ({knob.cost})" if knob.cost else ""
    text = f"{knob.text}: {then}; saves {gib(knob.saves_bytes)}{cost}"
    return Action(team=Team.JOB_OWNER, text=text)


CHECK = EstimateCheck(
    id="oom-estimate-fit", title="estimate against the GPU's memory", run=_run, essential=True
)
