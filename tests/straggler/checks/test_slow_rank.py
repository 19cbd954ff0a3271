"""Findings about single slow ranks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from distdoctor.report.model import Confidence, Fault, Severity, Team
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.base import Found, NotSeen, Passed
from distdoctor.straggler.checks.slow_rank import CHECK, MAX_SINGLE
from distdoctor.straggler.facts.sections import Section
from straggler.checks.outcomes import found, passed, run, why_not
from straggler.worlds import NOON_S, Slow, facts_of, job, only

S = Section


def evidence(each: Found) -> str:
    return "\n".join(line.text for line in each.evidence)


def test_a_slow_rank_is_a_finding_with_its_numbers() -> None:
    each = found(CHECK, facts_of(job(gpus_per_host=8, gpu_model="H100", slow=[Slow(ranks=[3], ms=40)])))
    assert each.title == "rank 3 (host-0, GPU 3) computes 13 % longer than its peers"
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.HIGH)
    assert (each.scope.ranks, each.scope.hosts, each.scope.gpus[0].index) == ((3,), ("host-0",), 3)
    assert (each.cause_class, each.fault) == ("slow_rank:compute", Fault.GPU)
    text = evidence(each)
    assert "in all 119 steps" in text
    assert "less in collectives than its peers" in text
    assert re.search(r"longer than its peers in: backward (39|40)\.\d ms", text)
    assert "estimated: the job would take" in text
    assert each.evidence[0].value == pytest.approx(40, abs=3)
    assert each.evidence[0].expected == "at most 3.0 % among 8 ranks like these"


@pytest.mark.parametrize(
    ("section", "cause", "fault", "words", "team"),
    [
        (S.BACKWARD, "compute", Fault.GPU, "computes", Team.HARDWARE),
        (S.DATA, "data_loader", Fault.DATA, "waits for its data loader", Team.JOB_OWNER),
        (S.H2D, "host_to_device_copies", Fault.HOST, "copies to its device", Team.HARDWARE),
        (S.CHECKPOINT, "checkpoint_io", Fault.USER_CODE, "on checkpoints", Team.JOB_OWNER),
        (None, "outside_of_timed_parts", Fault.USER_CODE, "outside of all timed parts", Team.PLATFORM),
    ],
)
def test_the_cause_decides_whose_it_is_and_who_acts(
    section: Section | None, cause: str, fault: Fault, words: str, team: Team
) -> None:
    each = found(CHECK, facts_of(job(slow=[Slow(ranks=[3], ms=60, section=section)])))
    assert (each.cause_class, each.fault) == (f"slow_rank:{cause}", fault)
    assert words in each.title
    assert each.actions[0].team is team


def test_collecting_garbage_inside_the_parts_is_told_as_that() -> None:
    slow = [Slow(ranks=[3], ms=50, section=S.BACKWARD), Slow(ranks=[3], ms=50, section=S.GC)]
    each = found(CHECK, facts_of(job(slow=slow)))
    assert each.cause_class == "slow_rank:garbage_collector"
    assert "gc.collect(1)" in each.actions[0].text


def test_the_command_looks_at_the_rank_s_gpu() -> None:
    each = found(CHECK, facts_of(job(gpus_per_host=4, gpu_model="H100", slow=[Slow(ranks=[5], ms=40)])))
    assert each.actions[0].command == "nvidia-smi -i 1 -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"
    assert "on host-1" in each.actions[0].text


def test_since_when_is_told_with_the_time_of_day() -> None:
    each = found(CHECK, facts_of(job(8, 300, started_s=NOON_S, slow=[Slow(ranks=[3], ms=60, start=150)])))
    assert "since step 150 (2026-11-30T12:00:5" in evidence(each)


def test_what_costs_a_fifth_of_the_job_is_critical() -> None:
    assert found(CHECK, facts_of(job(slow=[Slow(ranks=[3], ms=80)]))).severity is Severity.WARNING
    assert found(CHECK, facts_of(job(slow=[Slow(ranks=[3], ms=160)]))).severity is Severity.CRITICAL


@pytest.mark.parametrize(
    "facts",
    [
        facts_of(job(8, 40, slow=[Slow(ranks=[3], ms=40)])),
        facts_of(only(job(slow=[Slow(ranks=[3], ms=40)]), S.DATA, S.FORWARD, S.BACKWARD)),
        facts_of(job(16, tells_coordinates=False, slow=[Slow(ranks=[3], ms=40)])),
    ],
    ids=["few steps", "waiting not measured", "no coordinates"],
)
def test_what_is_less_sure_is_told_so(facts: Analysed) -> None:
    assert found(CHECK, facts).confidence is Confidence.MEDIUM


def test_of_waiting_alone_lateness_is_told_and_no_longer_work() -> None:
    each = found(CHECK, facts_of(only(job(slow=[Slow(ranks=[3], ms=40)]), S.WAIT)))
    assert re.fullmatch(r"rank 3 comes (39|4[01])\.\d ms a step later than its peers", each.title)
    assert "work" not in each.title + evidence(each)
    assert "was not measured" in each.explanation
    assert each.confidence is Confidence.MEDIUM


def test_a_step_timer_that_leaves_waiting_out_is_told_as_that() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=80)])
    own = sum(timings.sections[each] for each in (S.DATA, S.FORWARD, S.BACKWARD, S.OPTIMIZER))
    each = found(CHECK, facts_of(replace(timings, sections={S.STEP: own})))
    assert each.scope.ranks == (3,)
    assert each.confidence is Confidence.MEDIUM
    assert "its timer leaves the waiting out" in each.explanation


def test_many_slow_ranks_are_one_finding() -> None:
    ranks = (3, 10, 17, 24, 31, 38, 45, 52, 59)
    timings = job(64, slow=[Slow(ranks=ranks, ms=40)], gpus_per_host=8)
    each = found(CHECK, facts_of(timings))
    assert len(ranks) > MAX_SINGLE
    assert each.scope.ranks == ranks
    assert each.key == "many"


def test_a_rank_above_the_threshold_that_failed_a_gate_is_a_lead() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=40)])
    timings.sections[S.WAIT][3] += 40
    outcomes = run(CHECK, facts_of(timings))
    lead = outcomes[0]
    assert isinstance(lead, Found)
    assert (lead.severity, lead.confidence, lead.actions) == (Severity.INFO, Confidence.LOW, ())
    assert lead.title == "not accused: rank 3 takes 13 % longer"
    assert "it waits as long as its peers do" in evidence(lead)
    assert isinstance(outcomes[-1], NotSeen)


def test_a_group_that_may_be_a_stage_is_one_lead_that_names_all_of_it() -> None:
    timings = job(32, stages=(1, 1, 1, 1.5), tells_coordinates=False)
    lead = found(CHECK, facts_of(timings))
    assert lead.title.startswith("not accused: ranks 24-31 take")
    assert (lead.severity, lead.scope.ranks) == (Severity.INFO, ())


def test_ranks_of_a_slow_host_are_told_with_it() -> None:
    timings = job(32, gpus_per_host=8, slow=[Slow(ranks=range(8, 16), ms=40)])
    outcomes = run(CHECK, facts_of(timings))
    assert not any(isinstance(each, Found) for each in outcomes)
    assert isinstance(outcomes[-1], Passed)


def test_a_healthy_job_passes_with_what_would_have_been_seen() -> None:
    detail = passed(CHECK, facts_of(job()))
    assert detail == "no rank is slower than its peers by more than 3.0 %, over 119 steps of 8 ranks"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (facts_of(), "no times of ranks"),
        (facts_of(only(job(), S.STEP)), "equal on all ranks"),
        (facts_of(job(1)), "one rank only"),
        (facts_of(job(3)), "3 ranks of one kind"),
        (facts_of(job(8, stages=(1,) * 4)), "2 ranks of one kind"),
        (facts_of(job(8, 3)), "3 steps"),
        (facts_of(job(world_size=16)), "8 of 16 ranks have no times"),
        (facts_of(job(8, 8, noise=0.4)), "too noisy"),
    ],
)
def test_silence_that_says_nothing_is_not_passed(facts: Analysed, reason: str) -> None:
    why, how = why_not(CHECK, facts)
    assert reason in why
    assert how


def test_ranks_whose_values_are_missing_are_not_ruled_out() -> None:
    timings = job()
    for times in timings.sections.values():
        times[6] = float("nan")
    why, _ = why_not(CHECK, facts_of(timings))
    assert "1 of 8 ranks have no times" in why
    for times in timings.sections.values():
        times[3:] = float("nan")
    why, _ = why_not(CHECK, facts_of(timings))
    assert "3 ranks of one kind" in why
    for times in timings.sections.values():
        times[:] = float("nan")
    why, _ = why_not(CHECK, facts_of(timings))
    assert "no ranks of one kind" in why


def test_a_slow_rank_is_named_even_where_others_are_missing() -> None:
    assert found(CHECK, facts_of(job(world_size=16, slow=[Slow(ranks=[3], ms=40)]))).scope.ranks == (3,)


def test_the_last_rank_may_be_a_stage_of_a_pipeline_that_nobody_told() -> None:
    """One rank a stage, the last one heavier: named with a doubt, and never at high confidence."""
    heavier = job(8, slow=[Slow(ranks=[7], ms=60)], tells_coordinates=False)
    told = found(CHECK, facts_of(heavier))
    assert told.confidence is Confidence.MEDIUM
    assert "--mesh pp=8" in told.explanation
    of_six = job(6, slow=[Slow(ranks=[5], ms=60)], tells_coordinates=False)
    assert "--mesh pp=6" in found(CHECK, facts_of(of_six)).explanation
    inside = job(8, slow=[Slow(ranks=[4], ms=60)], tells_coordinates=False)
    assert "--mesh" not in found(CHECK, facts_of(inside)).explanation


def test_what_is_slow_inside_and_outside_of_the_parts_is_told_as_a_whole() -> None:
    both = [Slow(ranks=[3], ms=12), Slow(ranks=[3], ms=40, section=None)]
    value = found(CHECK, facts_of(job(slow=both))).evidence[0].value
    assert isinstance(value, float) and value == pytest.approx(52, abs=2)


def test_own_work_that_nothing_splits_has_no_cause_and_no_advice_about_gpus() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=60)])
    own = sum(timings.sections[each] for each in (Section.DATA, Section.FORWARD, Section.BACKWARD))
    sections = {Section.UNSPLIT: own, Section.WAIT: timings.sections[Section.WAIT]}
    told = found(CHECK, facts_of(replace(timings, sections=sections)))
    assert told.title == "rank 3 works 20 % longer than its peers"
    assert told.cause_class == "slow_rank:unknown"
    assert not any("nvidia-smi" in (each.command or "") for each in told.actions)


def test_a_rank_that_longer_work_hides_is_not_said_to_be_waited_for() -> None:
    timings = job(16, stages=(1.0, 1.5), slow=[Slow(ranks=[2], ms=60)])
    told = found(CHECK, facts_of(timings))
    assert "hides it" in told.explanation and "who wait for it" not in told.explanation
