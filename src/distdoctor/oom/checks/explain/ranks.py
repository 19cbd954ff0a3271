"""Which ranks ran out: one, some or all; which was first, and is one more loaded than the others?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from distdoctor.oom.checks.explain.base import ExplainCheck
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.evidence import source_of
from distdoctor.oom.explain.judged import Explained, is_consequence
from distdoctor.oom.explain.words import MAX_TITLE, rank_words, scope_of
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team
from distdoctor.units import format_bytes

# A rank whose live tensors exceed the others' median by this much is loaded unevenly; ranks of one role differ by less.
# Our own threshold.
UNEVEN_SHARE = 0.15

# Ranks with numbers that it takes to speak of a median.
MIN_RANKS = 3

_OF_THE_JOB = frozenset(
    (
        Cause.CAPACITY,
        Cause.LOGITS,
        Cause.ACTIVATIONS,
        Cause.OPTIMIZER,
        Cause.OPTIMIZER_FOREACH,
        Cause.SHARDING_INEFFECTIVE,
    )
)


def check_ranks(facts: Explained) -> Sequence[Outcome]:
    """Info: who was first and who followed; a warning when one rank holds clearly more than the others."""
    named = [
        each for each in facts.judged if each.event.rank is not None and not is_consequence(each, facts.facts)
    ]
    if not named:
        if len(facts.judged) == 1:
            return [NotApplicable(detail="one message, of one process")]
        unread = Unread(
            cause=SkipCause.NOT_IN_EVIDENCE,
            reason="the messages do not say which rank they are of",
            how="torchrun --log-dir LOGS --redirects 3 …, or srun --label, and give all files",
        )
        return [NotSeen(unread=unread)]
    uneven = _uneven(named)
    if uneven is not None:
        return [uneven]
    num_ranks = facts.facts.hints.num_ranks
    failed = sorted({each.event.rank for each in named if each.event.rank is not None})
    if num_ranks and num_ranks > 1 and len(failed) == 1 and len(facts.facts.events) == 1:
        return [_only_one(named[0], num_ranks)]
    return [Passed(detail=_who_failed(failed, num_ranks, facts))]


def _who_failed(failed: Sequence[int], num_ranks: int | None, facts: Explained) -> str:
    first = facts.lead.event.rank if facts.lead is not None and facts.facts.first_order_known else None
    text = (
        f"{len(failed)} of {num_ranks} ranks"
        if num_ranks
        else f"{len(failed)} rank{'s' if len(failed) > 1 else ''}"
    )
    text += " ran out" if num_ranks else " ran out; how many there are is not told"
    return text + (f", rank {first} first" if first is not None and len(failed) > 1 else "")


def _uneven(named: Sequence[Judged]) -> Found | None:
    """One rank that holds clearly more than the median of the others, in the same phase."""
    lively = {
        each.event.rank: each
        for each in named
        if each.event.allocated_bytes is not None and each.cause in _OF_THE_JOB
    }
    if len(lively) < MIN_RANKS:
        return None
    ordered = sorted(lively.values(), key=lambda each: each.event.allocated_bytes or 0, reverse=True)
    top, others = ordered[0], ordered[1:]
    middle = median(each.event.allocated_bytes or 0 for each in others)
    most = top.event.allocated_bytes or 0
    if (
        most <= (1 + UNEVEN_SHARE) * middle
        or (others[0].event.allocated_bytes or 0) > (1 + UNEVEN_SHARE / 2) * middle
    ):
        return None
    rank = top.event.rank
    return Found(
        key="uneven",
        title=f"rank {rank} holds {most / middle - 1:.0%} more than the other ranks that ran out"[:MAX_TITLE],
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"rank {rank}: tensors {format_bytes(most)}",
                value=most,
                unit="B",
                expected=f"{format_bytes(middle)}, the median of {len(others)} other ranks",
                expected_source="the other ranks' messages",
                source=source_of(top.event),
            ),
        ),
        explanation=(
            "Ranks of one role hold the same. More on one rank: a pipeline stage with the embedding or the loss, longer sequences, a router "
            "that sends it more tokens, or work that only this rank does (logging, gathering, evaluation)."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="what this rank does that the others do not: its stage, its batch, and code under `if rank == 0`",
                command="distdoctor oom estimate --config LAUNCH_CONFIG --on 8xGPU_TYPE   # names the worst stage",
            ),
        ),
        scope=scope_of([top.event]),
        fault=Fault.CONFIG,
    )


def _only_one(judged: Judged, num_ranks: int) -> Found:
    event = judged.event
    whose = rank_words([event])
    return Found(
        key="one",
        title=f"only {whose} of {num_ranks} reported running out"[:MAX_TITLE],
        severity=Severity.INFO,
        confidence=Confidence.LOW,
        evidence=(
            Evidence(
                text=f"one message, of {whose}; the log speaks of {num_ranks} ranks", source=source_of(event)
            ),
        ),
        explanation=(
            "The first rank that fails makes the launcher end the others, so one message may stand for all. That the others had room, only their "
            "own logs or a snapshot show."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="memory of all ranks at one moment; equal: the job is too large; one larger: it is that rank",
                command="nvidia-smi --query-gpu=index,memory.used --format=csv   # on each host, in the last step before",
            ),
        ),
        scope=scope_of([event]),
        fault=Fault.UNKNOWN,
    )


CHECK = ExplainCheck(id="oom-ranks", title="which ranks ran out", run=check_ranks)
