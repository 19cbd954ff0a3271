"""Do simulations of the proposals agree with the formulas?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.fit.base import FitCheck, card_words, gib
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.fit import need_words
from distdoctor.oom.search.confirm import Confirmation
from distdoctor.oom.search.proposal import Proposal
from distdoctor.oom.search.sentences import short_words
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team


def _run(facts: FitFacts) -> Sequence[Outcome]:
    if not facts.was_simulated or facts.outcome is None or not facts.outcome.proposals:
        return [NotApplicable(detail="no proposal was simulated")]
    proposals = facts.outcome.proposals
    refuted = [each for each in proposals if each.is_refuted]
    confirmed = [each for each in proposals if each.confirmation is Confirmation.FITS]
    impossible = [each for each in proposals if each.confirmation is Confirmation.NOT_POSSIBLE]
    if refuted:
        return [_found(facts, each) for each in refuted[:1]]
    if confirmed:
        return [Passed(detail=f"{len(confirmed)} of the proposals were simulated, and fit")]
    reason = impossible[0].confirmation_words if impossible else "none was tried"
    return [NotSeen(unread=Unread(cause=SkipCause.UNSUPPORTED, reason=reason, how=None))]


def _found(facts: FitFacts, refuted: Proposal) -> Found:
    fit, simulated = refuted.trial.fit, refuted.simulated
    held = simulated.held_bytes if simulated else 0
    return Found(
        title=f"simulated, {short_words(refuted.trial.changes)} does not fit {card_words(facts)}"[:80],
        evidence=(
            Evidence(
                text=f"the simulation holds {gib(held)}, by formula it needs "
                f"{need_words(fit.need_low, fit.need_high)} GiB",
                value=held,
                unit="B",
                expected=f"at most {gib(fit.capacity)}",
                expected_source=f"capacity of {card_words(facts)}",
                source="a simulated step of the job's strategy",
            ),
        ),
        explanation="It stands last in the table; the proposals that were confirmed come before it.",
        actions=(Action(team=Team.JOB_OWNER, text="take a proposal that the simulation confirms"),),
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        cause_class="capacity",
        fault=Fault.CONFIG,
    )


CHECK = FitCheck(id="oom-fit-simulated", title="proposals in simulation", run=_run)
