"""Findings about ranks that are slow now and then, and about what rank 0 alone does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdoctor.report.model import Confidence, Fault, Severity, Team
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.base import Found
from distdoctor.straggler.checks.intermittent import CHECK
from distdoctor.straggler.checks.rank0_work import CHECK as RANK_0
from distdoctor.straggler.checks.slow_rank import CHECK as SLOW_RANK
from distdoctor.straggler.facts.sections import Section
from straggler.checks.outcomes import found, passed, run, why_not
from straggler.worlds import NOON_S, Slow, facts_of, job, only

S = Section


def bursts(section: Section | None = S.DATA, *, rank: int = 6, ms: float = 250, **more: object) -> Analysed:
    return facts_of(
        job(8, 200, started_s=NOON_S, slow=[Slow(ranks=[rank], ms=ms, section=section, every=10, **more)])  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("section", "words", "cause", "fault"),
    [
        (S.DATA, "waits for its data loader", "data_loader", Fault.DATA),
        (S.CHECKPOINT, "writes a checkpoint", "checkpoint_io", Fault.USER_CODE),
        (S.BACKWARD, "stalls", "compute", Fault.GPU),
        (None, "stalls", "outside_of_timed_parts", Fault.USER_CODE),
    ],
)
def test_bursts_are_a_finding_with_rhythm_and_cause(
    section: Section | None, words: str, cause: str, fault: Fault
) -> None:
    each = found(CHECK, bursts(section, start=4))
    assert each.title.startswith(f"rank 6 {words} every 10 steps, 2")
    assert (each.severity, each.cause_class, each.fault) == (
        Severity.WARNING,
        f"intermittent:{cause}",
        fault,
    )
    where = each.evidence[-1].text
    assert "20 times in 199 steps, every 10 steps: steps 4, 14, 24" in where
    assert "; the first at 2026-11-30T12:00:0" in where
    assert each.actions


def test_a_loader_whose_rhythm_is_its_number_of_workers_is_explained() -> None:
    assert "number of loader workers" in found(CHECK, bursts()).explanation


def test_bursts_that_cost_little_are_minor() -> None:
    each = found(CHECK, facts_of(job(8, 400, slow=[Slow(ranks=[6], ms=60, steps=range(7, 400, 60))])))
    assert each.title.startswith("minor: rank 6")
    assert (each.severity, each.confidence, each.actions) == (Severity.INFO, Confidence.LOW, ())


def test_bursts_that_cost_a_fifth_are_critical() -> None:
    assert found(CHECK, bursts(ms=1500)).severity is Severity.CRITICAL


def test_a_rank_that_is_always_slow_is_not_told_again() -> None:
    facts = facts_of(job(slow=[Slow(ranks=[6], ms=80)]))
    assert passed(CHECK, facts) == "no rank has more slow steps than the others"


def test_without_bursts_the_check_passes() -> None:
    assert passed(CHECK, facts_of(job())) == "no rank has more slow steps than the others"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (facts_of(), "no times of ranks"),
        (facts_of(only(job(), S.STEP)), "equal on all ranks"),
        (facts_of(job(3)), "3 ranks"),
    ],
)
@pytest.mark.parametrize("check", [CHECK, RANK_0], ids=lambda check: check.id)
def test_what_cannot_be_seen_is_not_passed(check: object, facts: Analysed, reason: str) -> None:
    assert reason in why_not(check, facts)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "facts",
    [
        facts_of(job(slow=[Slow(ranks=[0], ms=40, section=None)])),
        facts_of(job(slow=[Slow(ranks=[0], ms=40, section=S.CHECKPOINT)])),
        bursts(None, rank=0),
    ],
    ids=["between the parts", "checkpoints", "now and then"],
)
def test_what_rank_0_does_alone_is_its_own_work_and_no_slow_rank(facts: Analysed) -> None:
    each = found(RANK_0, facts)
    assert each.title.startswith("rank 0 does work that no other rank has: ")
    assert (each.severity, each.fault) == (Severity.WARNING, Fault.USER_CODE)
    assert (each.cause_class, each.scope.ranks) == ("rank0_extra_work", (0,))
    assert each.actions[0].team is Team.JOB_OWNER
    for other in (SLOW_RANK, CHECK):
        assert not any(isinstance(each, Found) for each in run(other, facts))


@pytest.mark.parametrize("section", [S.BACKWARD, S.DATA])
def test_a_rank_0_that_computes_or_loads_longer_is_a_slow_rank(section: Section) -> None:
    facts = facts_of(job(slow=[Slow(ranks=[0], ms=40, section=section)]))
    assert not any(isinstance(each, Found) for each in run(RANK_0, facts))
    assert found(SLOW_RANK, facts).scope.ranks == (0,)


def test_another_rank_that_loses_time_between_the_parts_is_a_slow_rank() -> None:
    facts = facts_of(job(slow=[Slow(ranks=[4], ms=40, section=None)]))
    assert not any(isinstance(each, Found) for each in run(RANK_0, facts))
    assert found(SLOW_RANK, facts).scope.ranks == (4,)


def test_a_rank_0_that_does_what_all_do_passes() -> None:
    assert passed(RANK_0, facts_of(job())) == "rank 0 has no work of its own that shows"


def test_a_rank_0_that_is_not_here_is_not_passed() -> None:
    timings = job()
    moved = replace(timings, places=tuple(replace(each, rank=each.rank + 8) for each in timings.places))
    assert why_not(RANK_0, facts_of(moved))[0] == "rank 0 is not in the evidence"
