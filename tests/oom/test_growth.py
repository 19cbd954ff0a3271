"""Memory of step lines before a failure: steady growth is the cause, a flat line rules it out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import pytest

from distdoctor.oom.explain.build import explain_report
from distdoctor.oom.messages.from_files import events_from_text
from distdoctor.report.model import CheckState, Confidence, Report
from distdoctor.report.request import ReportRequest
from oom.oom_texts import IN_MLP, modern, traceback

OOM = modern("448.00 MiB", "79.15 GiB", "220.56 MiB", "77.02 GiB", "101.05 MiB", process="78.92 GiB")
FAILED = traceback(*IN_MLP) + OOM

STYLES: dict[str, Callable[[int, float], str]] = {
    "plain": lambda step, gib: f"step {step} loss 2.1 memory {gib:.1f}GiB",
    "titan": lambda step, gib: (
        f"[titan] 2026-03-04 11:20:05,101 - root - INFO - step: {step:2}  loss:  2.1  memory: {gib:.2f}GiB({gib / 0.8:.2f}%)  tps: 1,200"
    ),
    "torch": lambda step, gib: f"step={step} loss=2.1 max_memory_allocated={gib:.2f}GB",
    "megatron": lambda step, gib: (
        f" iteration {step:8}/    5000 | lm loss: 2.1E+00 | mem-reserved-bytes: {90e9:.0f} | mem-allocated-bytes: {gib * 2**30:.0f} |"
    ),
    "deepspeed": lambda step, gib: (
        f"[2026-03-04 11:20:05,101] [INFO] [utils.py:782:see_memory_usage] MA {gib:.1f} GB         Max_MA 79.0 GB         CA 79.2 GB"
        f"         Max_CA 79 GB \nstep {step} done"
    ),
    "axolotl": lambda step, gib: (
        f"{{'loss': 2.1, 'memory/max_mem_allocated(gib)': {gib:.2f}, 'epoch': 0.{step}}}"
    ),
    "allocated": lambda step, gib: (
        f"step {step} | torch.cuda.memory_allocated: {gib * 1024:,.0f} MiB | lr 1e-4"
    ),
}
ALLOCATED = ("megatron", "deepspeed", "allocated")


def report_of(style: str, values: list[float], failed: str = FAILED) -> Report:
    lines = [STYLES[style](10 * (number + 1), value) for number, value in enumerate(values)]
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    return explain_report(request, events_from_text("job.log", "\n".join([*lines, failed])))


def state(report: Report) -> CheckState:
    return next(each.state for each in report.checks if each.id == "oom-growth")


RISING = [40 + 2.5 * number + (0.3 if number % 3 == 0 else 0) for number in range(15)]
FLAT = [61.2, 61.4, 61.2, 61.3, 61.4, 61.2, 61.3, 61.2, 61.4]


@pytest.mark.parametrize("style", STYLES)
def test_memory_that_rises_over_many_steps_is_a_leak(style: str) -> None:
    report = report_of(style, RISING)
    assert (report.verdict.cause_class, report.verdict.confidence) == ("capacity:leak", Confidence.MEDIUM)
    assert "rose steadily" in str(report.findings)


@pytest.mark.parametrize("style", STYLES)
def test_a_flat_line_rules_growth_out(style: str) -> None:
    report = report_of(style, FLAT)
    assert report.verdict.cause_class == "capacity:activations"
    assert state(report) is CheckState.PASSED
    assert any("did not grow" in each.why for each in report.ruled_out)


@pytest.mark.parametrize("style", STYLES)
def test_one_jump_is_no_leak(style: str) -> None:
    """States of the optimizer, a longer batch, the first evaluation."""
    report = report_of(style, [*([41.0] * 7), *([72.0] * 7)])
    assert report.verdict.cause_class == "capacity:activations"
    assert state(report) is CheckState.SKIPPED


@pytest.mark.parametrize("style", ALLOCATED)
def test_what_a_step_takes_and_gives_back_is_no_growth(style: str) -> None:
    report = report_of(style, [30.0, 55.0, 71.0, 40.0] * 12)
    assert state(report) is CheckState.PASSED


def test_growth_of_a_pool_alone_is_a_lead() -> None:
    """The live tensors of the message are no more than what the pool was at first."""
    little = modern("448.00 MiB", "79.15 GiB", "220.56 MiB", "40.02 GiB", "3.05 GiB", process="78.92 GiB")
    report = report_of("titan", RISING, traceback(*IN_MLP) + little)
    assert report.verdict.confidence is not Confidence.MEDIUM or report.verdict.cause_class != "capacity:leak"


def test_growth_smaller_than_what_was_missing_is_not_the_cause() -> None:
    large = modern("30.00 GiB", "79.15 GiB", "220.56 MiB", "77.02 GiB", "101.05 MiB", process="78.92 GiB")
    report = report_of("allocated", [40 + 0.3 * number for number in range(15)], traceback(*IN_MLP) + large)
    assert report.verdict.cause_class != "capacity:leak"


def test_few_readings_show_no_trend() -> None:
    report = report_of("allocated", [40.0, 50.0, 60.0])
    assert report.verdict.cause_class == "capacity:activations"
    assert state(report) is CheckState.SKIPPED


def test_memory_of_the_host_or_left_over_is_not_followed() -> None:
    lines = [
        f"step {10 * number} | cpu mem {40 + 3 * number} GB | free memory {70 - number} GB"
        for number in range(15)
    ]
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    report = explain_report(request, events_from_text("job.log", "\n".join([*lines, FAILED])))
    assert report.verdict.cause_class == "capacity:activations"


@pytest.mark.once
def test_a_run_of_many_thousand_steps_is_followed_from_its_beginning() -> None:
    report = report_of("allocated", [40 + number / 400 for number in range(12_000)])
    assert report.verdict.cause_class == "capacity:leak"
    assert "from 40.0" in str(report.findings)


def test_memory_that_rises_while_the_model_is_placed_is_no_growth_over_steps() -> None:
    lines = [
        f"[utils.py:782:see_memory_usage] MA {4 * number + 2}.0 GB         Max_MA 79.0 GB         CA 79 GB "
        for number in range(14)
    ]
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    for step in ("", "step 1 | loss 2.1"):
        report = explain_report(request, events_from_text("job.log", "\n".join([*lines, step, FAILED])))
        assert report.verdict.cause_class == "capacity:activations"


def test_growth_is_read_in_linear_time() -> None:
    text = "mem " * 50_000 + "step 3 " + "alloc_" * 20_000
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    assert explain_report(request, events_from_text("job.log", f"{text}\n{FAILED}")).verdict.cause_class
