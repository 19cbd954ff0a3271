"""What exit code does a report give? Critical before unanswered before warning before ok."""

from __future__ import annotations

from enum import Enum

from distdoctor.exit_codes import ExitCode
from distdoctor.report.model import Report, Status


class FailOn(str, Enum):
    """From which severity on findings make the exit code non-zero."""

    NEVER = "never"
    WARNING = "warning"
    CRITICAL = "critical"


class ExitStyle(str, Enum):
    """`distdoctor`: 0, 3, 10, 11. `nagios`: 0 ok, 1 warning, 2 critical, 3 everything else."""

    DISTDOCTOR = "distdoctor"
    NAGIOS = "nagios"


_NAGIOS = {ExitCode.OK: 0, ExitCode.WARNING: 1, ExitCode.CRITICAL: 2}
_NAGIOS_UNKNOWN = 3


def exit_code_for(
    report: Report,
    fail_on: FailOn | None = None,
    style: ExitStyle = ExitStyle.DISTDOCTOR,
    *,
    under_launcher: bool = False,
) -> int:
    """The process' exit code for `report`.

    `fail_on` None means not given: `critical`, except that nagios plugins also report warnings, and that under
    torchrun (`under_launcher`), which turns every non-zero code into 1 and pages of traceback, it is 0. `never`
    gives 0 for any report, answered or not.
    """
    if fail_on is FailOn.NEVER or (fail_on is None and under_launcher):
        return 0
    if fail_on is None:
        fail_on = FailOn.WARNING if style is ExitStyle.NAGIOS else FailOn.CRITICAL
    code = _code(report, fail_on)
    return int(code) if style is ExitStyle.DISTDOCTOR else _NAGIOS.get(code, _NAGIOS_UNKNOWN)


def _code(report: Report, fail_on: FailOn) -> ExitCode:
    status = report.verdict.status
    if status is Status.CRITICAL:
        return ExitCode.CRITICAL
    if status is Status.UNKNOWN or is_unanswered(report):
        return ExitCode.UNANSWERED
    if status is Status.WARNING and fail_on is FailOn.WARNING:
        return ExitCode.WARNING
    return ExitCode.OK


def is_unanswered(report: Report) -> bool:
    """True when a rank or host is missing, an input was not read or only in part, or an essential check not be done.

    Other skipped checks alone never leave the question unanswered.
    """
    missing = report.subject.missing_ranks or report.subject.missing_hosts
    unread = any(not each.read or each.why_not for each in report.inputs)
    return bool(missing) or unread or any(skip.essential for skip in report.skipped)
