"""Did the program of a strategy raise an error that is no lack of memory?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.reproduce.base import ReproduceCheck, scope_of, who
from distdoctor.oom.facts.reproduced import Outcome, RankPart, Reproduced, ReproduceFacts
from distdoctor.report.assemble import clip_title
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Passed, Unread
from distdoctor.report.checking import Outcome as CheckOutcome
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

# Ranks whose words are shown. Our own bound.
_MAX_SHOWN = 3


def _run(facts: ReproduceFacts) -> Sequence[CheckOutcome]:
    begun = [each for each in facts.combinations if not each.not_begun]
    outcomes: list[CheckOutcome] = [
        _found(facts, each, failed) for each in begun if (failed := each.own_failures)
    ]
    outcomes += [_cannot_run(each) for each in begun if each.outcome is Outcome.CANNOT_RUN]
    outcomes += [_left_out(each) for each in facts.combinations if each.not_begun]
    if outcomes:
        return outcomes
    if not begun:
        return [NotApplicable(detail="nothing was begun")]
    return [Passed(detail="no program raised an error of its own")]


def _found(facts: ReproduceFacts, combination: Reproduced, failed: Sequence[RankPart]) -> Found:
    ranks = tuple(part.rank for part in failed)
    first = failed[0]
    return Found(
        key=combination.name,
        title=clip_title(f"{who(facts, ranks)} could not run {combination.name}: {first.error}"),
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=tuple(
            Evidence(
                text=f"rank {part.rank}, {part.at.words() or 'before its first step'}: {part.error}",
                source=f"the error of rank {part.rank}",
            )
            for part in failed[:_MAX_SHOWN]
        ),
        explanation=(
            "The program raised an error that is no lack of memory, so that its memory is known up to there only. "
            "Other strategies of the run are not touched by it."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="run this one alone; if it fails again, this version of torch may not support the combination",
                command="python -c 'import torch; print(torch.__version__)'",
            ),
        ),
        scope=scope_of(facts, ranks),
        cause_class="rank_died:python_exception",
        fault=Fault.SOFTWARE,
    )


def _cannot_run(combination: Reproduced) -> NotSeen:
    why = next(part.error for part in combination.parts if part.outcome is Outcome.CANNOT_RUN)
    return NotSeen(unread=Unread(cause=SkipCause.UNSUPPORTED, reason=why), what=combination.name)


def _left_out(combination: Reproduced) -> NotSeen:
    return NotSeen(unread=Unread(cause=SkipCause.FAILED, reason=combination.not_begun), what=combination.name)


CHECK = ReproduceCheck(id="oom-reproduce-failed", title="errors of the training programs", run=_run)
