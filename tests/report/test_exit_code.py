"""The exit code of every kind of report, as docs/report.md has it."""

from __future__ import annotations

import pytest

from distdoctor.report.exit_code import ExitStyle, FailOn, exit_code_for
from distdoctor.report.model import Report, SkipCause, Skipped, Status, Subject, Tool, Verdict


def report(status: Status, *, missing: tuple[int, ...] = (), essential: bool | None = None) -> Report:
    skips = ()
    if essential is not None:
        skips = (Skipped(id="x", what="x", cause=SkipCause.NEEDS_ROOT, reason="x", essential=essential),)
    return Report(
        tool=Tool(name="distdoctor", version="0", command="env"),
        verdict=Verdict(status=status, title="", summary=""),
        subject=Subject(missing_ranks=missing),
        skipped=skips,
    )


@pytest.mark.parametrize(
    ("status", "fail_on", "code"),
    [
        (Status.OK, None, 0),
        (Status.WARNING, None, 0),
        (Status.WARNING, FailOn.WARNING, 10),
        (Status.CRITICAL, None, 11),
        (Status.CRITICAL, FailOn.WARNING, 11),
        (Status.CRITICAL, FailOn.NEVER, 0),
        (Status.UNKNOWN, None, 3),
    ],
)
def test_codes_by_status(status: Status, fail_on: FailOn | None, code: int) -> None:
    assert exit_code_for(report(status), fail_on) == code


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (report(Status.CRITICAL, missing=(3,)), 11),
        (report(Status.WARNING, missing=(3,)), 3),
        (report(Status.WARNING, essential=True), 3),
        (report(Status.WARNING, essential=False), 10),
        (report(Status.OK, essential=False), 0),
    ],
)
def test_critical_before_unanswered_before_warning_before_ok(told: Report, code: int) -> None:
    assert exit_code_for(told, FailOn.WARNING) == code


@pytest.mark.parametrize(
    ("status", "code"), [(Status.OK, 0), (Status.WARNING, 1), (Status.CRITICAL, 2), (Status.UNKNOWN, 3)]
)
def test_nagios_codes(status: Status, code: int) -> None:
    assert exit_code_for(report(status), None, ExitStyle.NAGIOS) == code


def test_under_torchrun_ranks_exit_0_unless_told_otherwise() -> None:
    told = report(Status.CRITICAL)
    assert exit_code_for(told, under_launcher=True) == 0
    assert exit_code_for(told, FailOn.CRITICAL, under_launcher=True) == 11
