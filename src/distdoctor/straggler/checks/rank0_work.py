"""Does the first rank lose time with work that no other rank has: logging, evaluation, saving?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.report.model import Action, Fault, Scope, Severity, Team
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.judgement import Gate, Suspect
from distdoctor.straggler.checks.base import Found, Outcome, Passed, StragglerCheck, not_seen
from distdoctor.straggler.checks.own_work import is_own_work_of_first_rank
from distdoctor.straggler.checks.slow_rank import confidence_of, evidence_of
from distdoctor.straggler.checks.unjudged import why_not_judged, why_silence_says_nothing
from distdoctor.straggler.words import ms, percent, when


def check_rank0_work(facts: Analysed) -> Sequence[Outcome]:
    """A finding where rank 0 is slow outside of computing and loading."""
    if not facts.judged:
        reason, how = why_not_judged(facts)
        return [not_seen(reason, how=how)]
    outcomes: list[Outcome] = []
    for judged in facts.judged:
        if 0 not in judged.timings.ranks:
            outcomes.append(not_seen("rank 0 is not in the evidence", how="give its file too"))
            continue
        outcomes += [
            _found(judged, each)
            for each in judged.judgement.suspects
            if set(each.failed) <= {Gate.SHARE} and is_own_work_of_first_rank(each)
        ] or [_nothing(judged)]
    return outcomes


def _nothing(judged: Judged) -> Outcome:
    reason = why_silence_says_nothing(judged)
    if reason is not None:
        return not_seen(reason[0], how=reason[1])
    return Passed(detail="rank 0 has no work of its own that shows")


def _found(judged: Judged, suspect: Suspect) -> Found:
    cost = judged.judgement.cost.alone.get(suspect.row) if judged.judgement.cost is not None else None
    place = judged.timings.places[suspect.row]
    minor = not suspect.is_accused
    costs = f", {percent(cost)} of the job's time" if cost is not None else ""
    return Found(
        key=f"{judged.label}rank-0",
        title=judged.titled(
            f"rank 0 does work that no other rank has: {ms(suspect.excess_ms)} a {judged.unit}{costs}"
        ),
        severity=Severity.INFO if minor else Severity.WARNING,
        confidence=confidence_of(judged, suspect),
        evidence=evidence_of(judged, suspect),
        explanation=f"All others wait for it, {when(judged, suspect)}. The excess lies outside of forward, backward and "
        "the data loader, where a slow GPU or host would show: rank 0 usually logs, evaluates and saves for all.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="log less often, save asynchronously, and keep evaluation and uploads off the training loop of rank 0",
            ),
        ),
        scope=Scope(ranks=(0,), hosts=(place.host,) if place.host else ()),
        cause_class="rank0_extra_work",
        fault=Fault.USER_CODE,
    )


CHECK = StragglerCheck(id="straggler-rank0-work", title="extra work of rank 0", run=check_rank0_work)
