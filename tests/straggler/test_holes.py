"""A hole in the numbers of ranks is a rank of which nothing was given: it may be the slow one."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.verdict import inconclusive_reason
from straggler.worlds import facts_of, job


def without(timings: StepTimings, *ranks: int) -> StepTimings:
    rows = [row for row, rank in enumerate(timings.ranks) if rank not in ranks]
    return replace(
        timings,
        places=tuple(timings.places[row] for row in rows),
        sections={section: times[rows] for section, times in timings.sections.items()},
    )


def missing(facts: Analysed) -> list[str]:
    return [note.text for note in facts.reading.notes if note.kind is NoteKind.MISSING_RANKS]


def test_a_rank_between_others_is_missed() -> None:
    facts = facts_of(without(job(16, 60), 5))
    assert missing(facts) == ["rank 5 of 0-15 is not in the evidence"]
    reason = inconclusive_reason(facts)
    assert reason is not None and "1 of 16 ranks" in reason[0]


def test_the_first_ranks_are_missed_too() -> None:
    assert missing(facts_of(without(job(16, 60), 0, 1))) == ["ranks 0-1 of 0-15 are not in the evidence"]


def test_all_ranks_miss_nobody() -> None:
    facts = facts_of(job(16, 60))
    assert missing(facts) == []
    assert inconclusive_reason(facts) is None


def test_one_rank_a_host_is_a_choice() -> None:
    every_eighth = [rank for rank in range(64) if rank % 8]
    facts = facts_of(without(job(64, 60), *every_eighth))
    assert missing(facts) == []
    assert inconclusive_reason(facts) is None
