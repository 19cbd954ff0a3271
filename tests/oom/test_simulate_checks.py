"""What is concluded from a simulation: each check where it fires, where it is silent, and where something is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from distdoctor.oom.catalog.gpus import parse_cluster
from distdoctor.oom.checks.simulate import estimate as against_estimate
from distdoctor.oom.checks.simulate import failed, fit, segments, self_check
from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import (
    Capped,
    PhasePeak,
    Reserved,
    RoleSimulation,
    SelfCheck,
    Simulation,
    SimulationFailure,
)
from distdoctor.oom.job import resolve
from distdoctor.oom.memory.log import Phase, Place
from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.build import simulation_report
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.report.model import Confidence, Report, Severity, Status
from distdoctor.report.request import ReportRequest
from distdoctor.units import GIB

REQUEST = ReportRequest(command="oom-simulate", argv=(), started=datetime(2026, 11, 30, tzinfo=timezone.utc))
JOB = resolve(Settings(model=preset("llama3-8b"), world_size=8))
ESTIMATE = estimate(JOB)
AT = Place(step=2, phase=Phase.BACKWARD, module="layers.31.feed_forward", op="aten.mm.default")


def role(
    allocated: float,
    *,
    reserved: float | None = None,
    expandable: float | None = None,
    capped: Sequence[Capped] = (),
) -> RoleSimulation:
    """Every rank, in GiB."""
    replays = [(False, reserved), (True, expandable)]
    return RoleSimulation(
        role="every rank",
        rank=0,
        num_ranks=8,
        peaks=(
            PhasePeak(
                step=2,
                phase=Phase.BACKWARD,
                place=AT,
                num_bytes=int(allocated * GIB),
                by_category={Category.ACTIVATIONS: int(allocated * GIB)},
            ),
        ),
        reserved=tuple(
            Reserved(expandable_segments=kind, peak_bytes=int(amount * GIB), allocated_then_bytes=0)
            for kind, amount in replays
            if amount is not None
        ),
        capped=tuple(capped),
    )


def facts(*roles: RoleSimulation, on: str | None = "8xh100-80gb", **more: object) -> SimulationFacts:
    simulation = Simulation(
        roles=roles,
        failures=more.pop("failures", ()),  # type: ignore[arg-type]
        self_check=more.pop("self_check", None),  # type: ignore[arg-type]
    )
    return SimulationFacts(
        simulation=simulation,
        title=ESTIMATE.title,
        model="llama3-8b",
        job=JOB,
        estimate=ESTIMATE,
        cluster=parse_cluster(on) if on else None,
        **more,  # type: ignore[arg-type]
    )


def refused(*, capacity: float = 77.0, retries: int = 0) -> Capped:
    return Capped(
        expandable_segments=False,
        capacity_bytes=int(capacity * GIB),
        num_retries=retries,
        failed_at=AT,
        requested_bytes=2 * GIB,
        allocated_bytes=76 * GIB,
    )


def served(*, retries: int = 0) -> Capped:
    return Capped(expandable_segments=False, capacity_bytes=77 * GIB, num_retries=retries)


def one(outcomes: Sequence[Outcome]) -> Outcome:
    assert len(outcomes) == 1
    return outcomes[0]


def report_of(found: SimulationFacts) -> Report:
    return simulation_report(REQUEST, found)


# --- does it fit


def test_a_request_that_the_gpu_cannot_serve_is_an_out_of_memory_there() -> None:
    found = one(
        fit.CHECK.run(facts(role(80, reserved=85, capped=[refused()]), fit_options="--model llama3-8b"))
    )
    assert isinstance(found, Found)
    assert found.title == "does not fit h100-80gb: out of memory in step 2, backward"
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.HIGH)
    assert (
        "2.0 GiB wanted by aten.mm in layers.31.feed_forward with 76.0 GiB allocated"
        in found.evidence[1].text
    )
    assert found.actions[0].command == "distdoctor oom fit --model llama3-8b"


def test_an_upper_bound_that_does_not_fit_is_less_sure() -> None:
    compiled = replace(JOB, said=replace(JOB.said, compiled=True))
    found = one(fit.CHECK.run(replace(facts(role(80, reserved=85, capped=[refused()])), job=compiled)))
    assert isinstance(found, Found)
    assert found.confidence is Confidence.MEDIUM
    assert "without torch.compile, which keeps less: an upper bound" in found.explanation


def test_the_least_room_alone_refusing_is_tight_and_not_an_out_of_memory() -> None:
    capped = [refused(capacity=75), served()]
    found = one(fit.CHECK.run(facts(role(74, reserved=78, capped=capped))))
    assert isinstance(found, Found)
    assert found.title.startswith("tight on h100-80gb")
    assert found.severity is Severity.WARNING


def test_cached_memory_that_is_given_back_is_told() -> None:
    found = one(fit.CHECK.run(facts(role(74, reserved=79, capped=[served(retries=3)]))))
    assert isinstance(found, Found)
    assert found.title == "tight on h100-80gb: fits only by giving cached memory back to the driver"
    assert "3 times" in found.explanation


def test_what_fits_passes_with_what_is_left() -> None:
    passed = one(fit.CHECK.run(facts(role(40, reserved=45, capped=[served()]))))
    assert isinstance(passed, Passed)
    report = report_of(facts(role(40, reserved=45, capped=[served()]), self_check=SelfCheck(simulated_bytes=1000, measured_bytes=1000)))  # fmt: skip
    assert report.verdict.status is Status.OK
    assert report.verdict.title.startswith("fits: needs ")
    assert report.verdict.confidence is Confidence.HIGH


def test_a_small_module_is_told_in_a_unit_that_shows_it() -> None:
    title = report_of(facts(role(0.005, reserved=0.0078125), on=None)).verdict.title
    assert title == "allocates 5.1 MiB and reserves 8 MiB on the worst rank"


def test_without_a_gpu_nothing_is_said_of_fitting() -> None:
    assert isinstance(one(fit.CHECK.run(facts(role(4000), on=None))), NotApplicable)
    assert "fits" not in report_of(facts(role(4000), on=None)).verdict.title


def test_a_kind_of_rank_that_was_not_simulated_may_be_the_worst() -> None:
    missing = SimulationFailure(
        role="pipeline stage 3 of 4 (loss)", rank=6, reason="it was not done after 5 s"
    )
    found = facts(role(10, reserved=11), failures=(missing,))
    assert isinstance(one(fit.CHECK.run(found)), NotSeen)
    report = report_of(found)
    assert report.verdict.status is not Status.OK
    assert "fits" not in report.verdict.title


def test_a_module_of_ones_own_is_not_sent_to_a_search_that_cannot_take_it() -> None:
    own = replace(facts(role(80, reserved=85, capped=[refused()])), job=None, estimate=None)
    found = one(fit.CHECK.run(own))
    assert isinstance(found, Found)
    assert found.actions[0].command is None
    assert "oom fit" not in found.actions[0].text


# --- formula against simulation


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.08, True), (1.2, False), (0.8, False)])
def test_formula_and_simulation_are_compared(factor: float, *, agrees: bool) -> None:
    simulated = ESTIMATE.worst.peak.num_bytes / GIB / factor
    outcome = one(against_estimate.CHECK.run(facts(role(simulated))))
    assert isinstance(outcome, Passed if agrees else Found)
    if isinstance(outcome, Found):
        assert outcome.severity is Severity.INFO
        assert ("20% more" if factor > 1 else "20% less") in outcome.title


def test_an_estimate_of_states_alone_is_no_comparison() -> None:
    found = replace(facts(role(10)), estimate=replace(ESTIMATE, is_whole=False))
    assert isinstance(one(against_estimate.CHECK.run(found)), NotApplicable)


# --- expandable segments


def test_a_gain_of_expandable_segments_is_told_where_it_does_not_fit() -> None:
    found = one(segments.CHECK.run(facts(role(70, reserved=85, expandable=72, capped=[refused()]))))
    assert isinstance(found, Found)
    assert found.title == "expandable segments would save 13.0 GiB of 85.0 GiB reserved"
    assert found.actions[0].command == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def test_a_small_gain_or_a_job_that_fits_is_left_alone() -> None:
    small = facts(role(78, reserved=85, expandable=84, capped=[refused()]))
    fits = facts(role(40, reserved=50, expandable=41, capped=[served()]))
    assert isinstance(one(segments.CHECK.run(small)), Passed)
    assert isinstance(one(segments.CHECK.run(fits)), Passed)


def test_segments_do_not_help_where_the_allocated_alone_is_too_much() -> None:
    found = facts(role(90, reserved=120, expandable=95, capped=[refused()]))
    assert isinstance(one(segments.CHECK.run(found)), NotApplicable)


def test_without_both_replays_there_is_no_gain_to_speak_of() -> None:
    assert isinstance(one(segments.CHECK.run(facts(role(70, reserved=85)))), NotApplicable)
    assert isinstance(one(segments.CHECK.run(facts())), NotApplicable)


# --- the self-check


def test_a_simulation_that_is_off_on_this_torch_is_not_trusted() -> None:
    found = facts(role(40, reserved=45), self_check=SelfCheck(simulated_bytes=900, measured_bytes=1000))
    outcome = one(self_check.CHECK.run(found))
    assert isinstance(outcome, Found)
    assert outcome.title == "simulation is 10.0% off on this torch: trust the estimate instead"
    report = report_of(found)
    assert report.verdict.status is Status.WARNING


def test_a_self_check_within_a_thousandth_passes() -> None:
    found = facts(role(40), self_check=SelfCheck(simulated_bytes=99_950, measured_bytes=100_000))
    assert isinstance(one(self_check.CHECK.run(found)), Passed)


def test_a_self_check_that_could_not_run_is_not_a_passed_one() -> None:
    reason = "this torch has no profiler of memory"
    found = facts(
        role(40, reserved=45), self_check=SelfCheck(simulated_bytes=900, measured_bytes=None, reason=reason)
    )
    outcome = one(self_check.CHECK.run(found))
    assert isinstance(outcome, NotSeen)
    assert reason in outcome.unread.reason
    assert report_of(found).verdict.confidence is Confidence.MEDIUM


# --- what could not be simulated


def test_the_op_that_stood_in_the_way_is_named_and_the_formula_stands_in() -> None:
    missing = SimulationFailure(role="every rank", rank=0, reason="no fake kernel", op="mylib.route.default")
    found = facts(failures=(missing,))
    outcome = one(failed.CHECK.run(found))
    assert isinstance(outcome, Found)
    assert "mylib.route" in outcome.title
    assert "estimated by formula" in outcome.explanation
    report = report_of(found)
    assert report.verdict.status is Status.UNKNOWN
    assert report.verdict.title == "cannot tell by simulation: mylib.route cannot run under fake tensors"
    assert "By formula the worst rank needs" in report.verdict.summary


def test_kinds_of_ranks_with_one_reason_are_one_finding() -> None:
    missing = [SimulationFailure(role=f"stage {rank}", rank=rank, reason="too slow") for rank in range(3)]
    outcome = one(failed.CHECK.run(facts(failures=tuple(missing))))
    assert isinstance(outcome, Found)
    assert outcome.title == "3 kinds of ranks: not simulated"
    assert isinstance(one(failed.CHECK.run(facts(role(1)))), Passed)
