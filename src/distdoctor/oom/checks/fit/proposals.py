"""Does the job fit as it is, and which changes make it fit?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.fit.base import FitCheck, card_words, gib, need_evidence
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.fit import Fits
from distdoctor.oom.search.confirm import Confirmation
from distdoctor.oom.search.proposal import Outcome
from distdoctor.oom.search.sentences import sentence
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Passed, Unread
from distdoctor.report.checking import Outcome as CheckOutcome
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

# So many sentences can be pasted; the table has all. Our own choice.
_MAX_ACTIONS = 5


def _run(facts: FitFacts) -> Sequence[CheckOutcome]:
    outcome = facts.outcome
    if outcome is None:
        reason = "the job's settings are not known, only its failure"
        how = "give --model and --on, --config FILE, or the JSON report of `oom estimate`"
        return [NotSeen(unread=Unread(cause=SkipCause.NOT_ASKED, reason=reason, how=how))]
    fit = outcome.start.fit
    match fit.answer:
        case Fits.YES:
            left = f"{gib(fit.headroom_low)} to {gib(fit.headroom_high)} are left"
            return [Passed(detail=f"fits {card_words(facts)} as it is: {left}")]
        case Fits.UNKNOWN:
            reason = "model states fit, but activations are unknown without the model's shape"
            how = "give --model NAME or config.json, or --layers, --hidden, --heads, --vocab"
            if outcome.start.estimate.not_covered:
                reason, how = f"not covered by the formulas: {outcome.start.estimate.not_covered[0]}", ""
            return [NotSeen(unread=Unread(cause=SkipCause.NOT_ASKED, reason=reason, how=how or None))]
        case Fits.TIGHT:
            return [_found(facts, outcome, is_too_large=False)]
        case Fits.NO:
            return [_found(facts, outcome, is_too_large=True)]


def _found(facts: FitFacts, outcome: Outcome, *, is_too_large: bool) -> CheckOutcome:
    if outcome.floor is not None:
        # The other check says why, and what would do.
        return NotApplicable(detail="nothing on the same GPUs makes it fit; see oom-fit-floor")
    fit, holding, today = outcome.start.fit, outcome.holding, outcome.today
    simulated_fits = today is not None and today.confirmation is Confirmation.FITS
    num = len(holding)
    what = "fit" if outcome.start.estimate.is_whole else "fit its states"
    ways = f"{num} way{'s' if num != 1 else ''} to {what}"
    if not num:
        ways = "simulation refutes what was tried" if outcome.proposals else "no change makes it surer"
    if simulated_fits:
        title = f"tight on {card_words(facts)}: by formula it may not fit, simulated it does; {ways}"
    elif is_too_large:
        title = f"does not fit {card_words(facts)}, {gib(-fit.headroom_high)} short at least; {ways}"
    else:
        title = f"tight on {card_words(facts)}: {gib(fit.need_low)} to {gib(fit.need_high)}; {ways}"
    perhaps = "None of these is sure: the most that each may need is above the card."
    return Found(
        title=title,
        evidence=(*need_evidence(facts), *_today(outcome)),
        explanation=perhaps if outcome.is_only_perhaps else "",
        actions=tuple(
            Action(team=Team.JOB_OWNER, text=sentence(each, outcome, facts.configs))
            for each in holding[:_MAX_ACTIONS]
        ),
        severity=Severity.CRITICAL if is_too_large and not simulated_fits else Severity.WARNING,
        confidence=Confidence.MEDIUM,
        key=outcome.start.job.strategy.value,
        cause_class="capacity",
        fault=Fault.CONFIG,
    )


def _today(outcome: Outcome) -> tuple[Evidence, ...]:
    """What a simulation says of the job as it is."""
    today = outcome.today
    if today is None or today.simulated_need is None:
        return ()
    low, high = today.simulated_need
    text = f"simulated as it is: needs {gib(low)} to {gib(high)} with context and NCCL"
    return (
        Evidence(text=text, value=round(high), unit="B", source="a simulated step of the job's strategy"),
    )


CHECK = FitCheck(id="oom-fit-proposals", title="changes that make the job fit", run=_run, essential=True)
