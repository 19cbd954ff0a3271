"""How large can the micro-batch or the sequence be made?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.fit.base import SOURCE, FitCheck, card_words, gib
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.fit import need_words
from distdoctor.oom.search.confirm import Confirmation
from distdoctor.oom.search.limits import Limit
from distdoctor.report.assemble import clip_title
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team


def _run(facts: FitFacts) -> Sequence[Outcome]:
    if facts.limited is None:
        return [NotApplicable(detail="no limit was asked for (--find-limit)")]
    if not facts.limits:
        reason = "activations grow with it, and nothing is known of them"
        how = "give --model NAME or config.json, or --layers, --hidden, --heads, --vocab"
        return [NotSeen(unread=Unread(cause=SkipCause.NOT_ASKED, reason=reason, how=how))]
    limit = facts.limits[0]
    if limit.largest is None:
        return [_found(facts, limit)]
    if limit.confirmation is Confirmation.TOO_LARGE and limit.simulated_need is not None:
        return [_refuted(facts, limit, limit.simulated_need)]
    left = gib(limit.fit.headroom_low)
    return [
        Passed(detail=f"{limit.what.value} {limit.largest} fits {card_words(facts)}, {left} or more are left")
    ]


def _found(facts: FitFacts, limit: Limit) -> Found:
    fit = limit.fit
    return Found(
        title=f"even {limit.what.value} {limit.beyond} does not surely fit {card_words(facts)}"[:80],
        evidence=(
            Evidence(
                text=f"needs {need_words(fit.need_low, fit.need_high)} GiB with context, NCCL and allocator slack",
                value=round(fit.need_low),
                unit="B",
                expected=f"at most {gib(fit.capacity)}",
                expected_source=f"capacity of {card_words(facts)}",
                source=SOURCE,
            ),
        ),
        explanation="What does not depend on it is too much already.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="search for what makes it fit: the same command without --find-limit",
            ),
        ),
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        key=limit.what.value,
        cause_class="capacity",
        fault=Fault.CONFIG,
    )


def _refuted(facts: FitFacts, limit: Limit, simulated: tuple[float, float]) -> Found:
    return Found(
        title=clip_title(
            f"{limit.what.value} {limit.largest} fits {card_words(facts)} by formula, simulated it does not"
        ),
        evidence=(
            Evidence(
                text=f"simulated, the last try needs {need_words(*simulated)} GiB with context and NCCL",
                value=round(simulated[1]),
                unit="B",
                expected=f"at most {gib(limit.fit.capacity)}",
                expected_source=f"capacity of {card_words(facts)}",
                source="a simulated step of the job's strategy",
            ),
        ),
        explanation="Lower values were simulated, too, and none of them is sure to fit.",
        actions=(Action(team=Team.JOB_OWNER, text="take less, and simulate it: `distdoctor oom simulate`"),),
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        key=limit.what.value,
        cause_class="capacity",
        fault=Fault.CONFIG,
    )


CHECK = FitCheck(id="oom-fit-limit", title="the largest micro-batch or sequence", run=_run, essential=True)
