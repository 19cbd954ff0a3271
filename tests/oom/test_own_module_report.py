"""What a report says of a user's own module that could not be simulated: never that it fits."""

from __future__ import annotations

from datetime import datetime, timezone

from distdoctor.exit_codes import ExitCode
from distdoctor.oom.catalog.gpus import parse_cluster
from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import ModelStates, Simulation, SimulationFailure
from distdoctor.oom.simulation.build import simulation_report
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.report.exit_code import exit_code_for
from distdoctor.report.model import Report
from distdoctor.report.request import ReportRequest

REQUEST = ReportRequest(command="oom-simulate", argv=(), started=datetime(2026, 11, 30, tzinfo=timezone.utc))
STATES = ModelStates(
    num_params=7_000_000_000,
    num_trainable=7_000_000_000,
    by_category={Category.PARAMETERS: 28 << 30, Category.GRADIENTS: 28 << 30, Category.OPTIMIZER: 56 << 30},
    how="model states only: parameters as counted, gradients and adamw by formula",
)


def report_of(failure: SimulationFailure) -> Report:
    facts = SimulationFacts(
        simulation=Simulation(failures=(failure,)),
        title="one copy, nothing sharded",
        model="my_pkg.model:build",
        cluster=parse_cluster("h100-80gb"),
    )
    return simulation_report(REQUEST, facts)


def test_states_are_a_floor_and_nothing_is_said_to_fit() -> None:
    report = report_of(
        SimulationFailure(
            role="your module",
            rank=0,
            reason="forward: the shape of a result depends on values: aten.nonzero, at model.py line 9",
            op="aten.nonzero.default",
            module="layers.0.router",
            advice="use static shapes",
            states=STATES,
        )
    )
    finding = next(each for each in report.findings if each.id == "oom-simulation-failed")
    words = " ".join(each.text for each in finding.evidence)
    assert "7,000,000,000 parameters, at least 112 GiB on a rank without activations" in words
    assert "layers.0.router" in words
    assert finding.actions[0].text == "use static shapes"
    assert "fits" not in report.verdict.title
    assert exit_code_for(report) == ExitCode.UNANSWERED


def test_without_states_nothing_is_claimed_of_memory() -> None:
    report = report_of(
        SimulationFailure(role="your module", rank=0, reason="build(): ValueError: depth must be even")
    )
    finding = next(each for each in report.findings if each.id == "oom-simulation-failed")
    assert "nothing is known of its memory" in finding.explanation
    assert exit_code_for(report) == ExitCode.UNANSWERED
