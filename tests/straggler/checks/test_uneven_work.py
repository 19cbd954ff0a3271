"""Findings about work that is uneven, or input that is slow, with nobody to accuse."""

from __future__ import annotations

import numpy as np
import pytest

from distdoctor.report.model import Confidence, Fault, Scope, Severity, Team
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.data_bound import CHECK as BOUND
from distdoctor.straggler.checks.data_imbalance import CHECK as DATA
from distdoctor.straggler.checks.stage_imbalance import CHECK as STAGES
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from straggler.checks.outcomes import absent, found, passed, why_not
from straggler.worlds import Slow, facts_of, job, only

S = Section


def test_a_heavier_last_stage_is_the_model_s_and_names_no_rank() -> None:
    each = found(STAGES, facts_of(job(32, stages=(1, 1, 1, 1.6))))
    assert each.title == "pipeline stage 3 (the last) has 60 % more work than the others"
    assert (each.severity, each.confidence, each.fault) == (
        Severity.WARNING,
        Confidence.HIGH,
        Fault.CONFIG,
    )
    assert (each.scope, each.cause_class) == (Scope(), "stage_imbalance")
    assert "ranks 24-31" in each.evidence[0].text
    assert "its 8 ranks agree within" in each.evidence[1].text
    assert each.actions[0].team is Team.JOB_OWNER


def test_a_stage_that_is_a_little_heavier_is_to_know() -> None:
    assert found(STAGES, facts_of(job(32, stages=(1, 1, 1, 1.15)))).severity is Severity.INFO


def test_of_a_stage_with_one_rank_nobody_can_say_whose_it_is() -> None:
    each = found(STAGES, facts_of(job(8, stages=(1,) * 7 + (1.5,))))
    assert each.title == "pipeline stage 7 (the last) takes 50 % longer than the others"
    assert (each.severity, each.confidence, each.fault) == (Severity.INFO, Confidence.LOW, Fault.UNKNOWN)
    assert "cannot be told" in each.explanation


@pytest.mark.parametrize(
    "timings",
    [job(32, stages=(1, 1, 1, 1.03)), job(32, stages=(1, 1), slow=[Slow(ranks=[3], ms=90)])],
    ids=["even stages", "one slow rank"],
)
def test_stages_of_equal_work_pass(timings: StepTimings) -> None:
    assert "5 % more work" in passed(STAGES, facts_of(timings))


def test_data_parallel_ranks_have_no_stages() -> None:
    assert "data parallel" in absent(STAGES, facts_of(job()))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (facts_of(), "no times of ranks"),
        (facts_of(job(16, stages=(1, 1.5), tells_coordinates=False)), "no parallel coordinates"),
        (facts_of(only(job(16, stages=(1, 1.5)), S.STEP)), "own times are not in the evidence"),
        (facts_of(only(job(16, stages=(1, 1.5)), S.WAIT)), "own times are not in the evidence"),
    ],
)
def test_stages_that_cannot_be_weighed_are_not_passed(facts: Analysed, reason: str) -> None:
    assert reason in why_not(STAGES, facts)[0]


def rotating(*, together: bool = True, sigma: float = 0.25) -> StepTimings:
    """Another rank has the most work in each step, in both passes alike or in one of them."""
    timings = only(job(8, 200), S.FORWARD, S.BACKWARD)
    length = np.random.default_rng(3).lognormal(0, sigma, (8, 200)).astype(np.float32)
    timings.sections[S.FORWARD][:] *= length
    timings.sections[S.BACKWARD][:] *= length if together else length[:, ::-1]
    return timings


def test_a_slowest_rank_that_changes_with_the_step_is_the_data_s() -> None:
    each = found(DATA, facts_of(rotating()))
    assert each.title.startswith("the slowest rank changes from step to step, ")
    assert (each.severity, each.confidence, each.fault) == (
        Severity.WARNING,
        Confidence.MEDIUM,
        Fault.DATA,
    )
    assert (each.scope, each.cause_class) == (Scope(), "data_imbalance")
    assert each.evidence[0].text.startswith("8 of 8 ranks were the slowest one in some step")
    assert "rank correlation 1.00" in each.evidence[1].text


def test_without_forward_and_backward_apart_its_cause_is_open() -> None:
    timings = rotating()
    timings.sections[S.COMPUTE] = timings.sections[S.FORWARD] + timings.sections[S.BACKWARD]  # type: ignore[index]
    each = found(DATA, facts_of(only(timings, S.COMPUTE)))
    assert (each.severity, each.confidence, each.fault) == (
        Severity.WARNING,
        Confidence.LOW,
        Fault.UNKNOWN,
    )


def test_passes_that_are_long_in_different_steps_have_another_cause_than_input() -> None:
    each = found(DATA, facts_of(rotating(together=False, sigma=0.4)))
    assert (each.confidence, each.fault) == (Confidence.LOW, Fault.UNKNOWN)
    assert "garbage" in each.explanation


def test_what_hardly_costs_a_step_is_a_lead() -> None:
    """The slowest of 8 draws of a normal law is 1.42 standard deviations above their median: some 17 %."""
    timings = job(8, 400)
    length = 1 + 0.11 * np.random.default_rng(5).standard_normal((8, 400)).astype(np.float32)
    timings.sections[S.COMPUTE] = (300 * length).astype(np.float32)  # type: ignore[index]
    each = found(DATA, facts_of(only(timings, S.COMPUTE)))
    assert (each.severity, each.confidence) == (Severity.INFO, Confidence.LOW)


@pytest.mark.parametrize(
    "timings", [job(), job(slow=[Slow(ranks=[3], ms=80)]), job(64, noise=0.05)], ids=["even", "one", "noise"]
)
def test_the_same_slow_rank_or_noise_is_no_rotation(timings: StepTimings) -> None:
    assert passed(DATA, facts_of(timings)).startswith("no rotating slowness")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (facts_of(), "no times of ranks"),
        (facts_of(job(8, 10)), "10 steps: too few"),
        (facts_of(only(job(), S.STEP)), "own times are not in the evidence"),
    ],
)
def test_rotation_that_cannot_be_seen_is_not_passed(facts: Analysed, reason: str) -> None:
    assert reason in why_not(DATA, facts)[0]


@pytest.mark.parametrize(("data_ms", "severity"), [(60.0, Severity.INFO), (150.0, Severity.WARNING)])
def test_a_job_that_waits_for_its_input_is_bound_by_it(data_ms: float, severity: Severity) -> None:
    each = found(BOUND, facts_of(job(more_parts={S.DATA: data_ms})))
    share = data_ms / (data_ms + 306 + 30)
    assert (
        each.title
        == f"all ranks wait {share:.0%}".replace("%", " %") + " of each step for their data loaders"
    )
    assert (each.severity, each.confidence, each.fault) == (severity, Confidence.HIGH, Fault.DATA)
    assert (each.scope, each.cause_class) == (Scope(), "data_bound")
    assert each.evidence[0].value == pytest.approx(data_ms, rel=0.02)


def test_a_job_with_little_waiting_for_input_passes() -> None:
    assert "not bound by its input" in passed(BOUND, facts_of(job()))


def test_one_rank_that_waits_for_its_input_does_not_bind_the_job() -> None:
    assert "not bound by its input" in passed(
        BOUND, facts_of(job(slow=[Slow(ranks=[2], ms=200, section=S.DATA)]))
    )


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (facts_of(), "how long ranks wait"),
        (facts_of(only(job(), S.FORWARD, S.STEP)), "how long ranks wait"),
        (facts_of(only(job(), S.DATA, S.FORWARD)), "no step has both"),
    ],
)
def test_input_that_was_not_timed_is_not_passed(facts: Analysed, reason: str) -> None:
    assert reason in why_not(BOUND, facts)[0]
