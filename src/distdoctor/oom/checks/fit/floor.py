"""Where nothing on the same GPUs makes it fit: how small it can get, what that consists of, and what would do."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.fit.base import SOURCE, FitCheck, card_words, gib, need_evidence
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.fit import Fits
from distdoctor.oom.search.floor import Floor
from distdoctor.oom.search.host import MAX_HOST_BYTES
from distdoctor.oom.search.proposal import Outcome
from distdoctor.oom.search.sentences import sentence, short_words
from distdoctor.report.checking import Found, NotApplicable, Passed
from distdoctor.report.checking import Outcome as CheckOutcome
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import GIB


def _run(facts: FitFacts) -> Sequence[CheckOutcome]:
    outcome = facts.outcome
    if outcome is None:
        return [NotApplicable(detail="nothing was searched: the job's settings are not known")]
    if outcome.fits_already:
        return [NotApplicable(detail="it fits as it is")]
    if outcome.floor is None and not outcome.on_same_gpus:
        return [NotApplicable(detail="by formula something fits, and simulations refute it")]
    if outcome.floor is None:
        return [Passed(detail=f"{len(outcome.on_same_gpus)} ways to fit without more GPUs")]
    return [_found(facts, outcome, outcome.floor)]


def _found(facts: FitFacts, outcome: Outcome, floor: Floor) -> Found:
    ranks = outcome.start.job.mesh.num_ranks
    # `8 GPUs of h100-80gb`, `8 GPUs of 24.0 GiB`.
    card = card_words(facts).removeprefix("a GPU of ")
    gpus = f"{ranks} GPUs of {card}" if ranks > 1 else f"one GPU of {card}"
    least = floor.smallest
    if floor.missing:
        title = f"nothing known here fits it on {gpus}; {gib(floor.missing)} short"
    else:
        title = f"nothing surely fits it on {gpus}; tight at best"
    made = short_words(least.changes) or "no change lowers it"
    evidence = Evidence(
        text=f"smallest reachable: {gib(least.fit.need_low)} to {gib(least.fit.need_high)} ({made}); "
        f"{floor.what}: {gib(floor.what_bytes)}",
        value=round(least.fit.need_low),
        unit="B",
        expected=f"at most {gib(outcome.room.usable)}",
        expected_source=f"capacity of {card_words(facts)}",
        source=SOURCE,
    )
    is_tight = outcome.start.fit.answer is Fits.TIGHT
    return Found(
        title=title[:80],
        evidence=(evidence, *need_evidence(facts)),
        explanation=f"Every change was tried, offloading of up to {MAX_HOST_BYTES / GIB:.0f} GiB a rank included; what is "
        f"left is mostly {floor.what}.",
        actions=_actions(facts, outcome, floor),
        severity=Severity.WARNING if is_tight else Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        key=outcome.start.job.strategy.value,
        cause_class="capacity",
        fault=Fault.CONFIG,
    )


def _actions(facts: FitFacts, outcome: Outcome, floor: Floor) -> tuple[Action, ...]:
    actions = [
        Action(team=Team.JOB_OWNER, text=sentence(each, outcome, facts.configs))
        for each in outcome.holding[:2]
    ]
    if floor.gpus is not None:
        text = f"{floor.gpus} GPUs of this type would do, with the other changes that help there"
        if not outcome.start.estimate.is_whole:
            text = f"{floor.gpus} GPUs of this type would hold its states; activations are not known"
        actions.append(Action(team=Team.JOB_OWNER, text=text))
    if floor.cards:
        names = " or ".join(f"{card.name} ({gib(card.total_bytes)})" for card in floor.cards)
        actions.append(Action(team=Team.JOB_OWNER, text=f"or a larger card: {names}, with every change made"))
    if not actions:
        actions.append(
            Action(team=Team.JOB_OWNER, text="train fewer of its parameters (adapters), or a smaller model")
        )
    return tuple(actions)


CHECK = FitCheck(id="oom-fit-floor", title="the smallest need that these GPUs can reach", run=_run)
