"""The checks that may run before a job: what has not answered by the time limit is skipped and named."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import replace as replace_struct

from distdoctor.env.build import Request, env_report
from distdoctor.env.collect.all import Collection, Wanted
from distdoctor.env.collect.world import this_world
from distdoctor.env.expect import (
    Expected,
    check_expect_names,
    compare_with_baseline,
    compare_with_expected,
    parse_expect,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.members import Member
from distdoctor.errors import InputError
from distdoctor.evidence import read_bounded
from distdoctor.report.codec import MAX_REPORT_BYTES, decode
from distdoctor.report.model import Confidence, Drain, Report, Severity

# Left for checks, rendering and writing once collecting has ended. Our own choice: they take a tenth of it.
MARGIN_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What a prolog asks for."""

    expect: str | None = None
    baseline: Path | None = None
    time_limit_s: float = 10.0
    site_expect: Mapping[str, str] = field(default_factory=dict)


def run_checkup(request: Request, host: str, checkup: Checkup) -> Report:
    """The report of the preflight checks on this host, within the time limit.

    Raises UsageError for a malformed expectation, InputError for a baseline that is no report.
    """
    began = time.monotonic()
    wanted = {**checkup.site_expect, **(parse_expect(checkup.expect) if checkup.expect is not None else {})}
    check_expect_names(wanted, "[expect] of the site file")
    baseline = _read_baseline(checkup.baseline) if checkup.baseline else None
    facts, timings = _collect(host, max(0.1, checkup.time_limit_s - MARGIN_S - (time.monotonic() - began)))
    outcomes = [compare_with_expected(facts, wanted, "--expect" if checkup.expect else "the site file")]
    if baseline is not None:
        outcomes.append(compare_with_baseline(facts, baseline, str(checkup.baseline)))
    preflight = replace(request, checks=tuple(check for check in request.checks if check.preflight))
    report = env_report(
        preflight,
        [Member(rank=None, host=host, facts=facts)],
        extra=Expected(
            findings=tuple(each for outcome in outcomes for each in outcome.findings),
            checks=tuple(each for outcome in outcomes for each in outcome.checks),
            skipped=tuple(each for outcome in outcomes for each in outcome.skipped),
        ),
        timings=timings,
    )
    return replace_struct(report, drain=(_drain(report, host),))


def is_certain(report: Report) -> bool:
    """True when a critical finding that is not ignored has high confidence."""
    return any(
        each.severity is Severity.CRITICAL and each.confidence is Confidence.HIGH and each.ignored is None
        for each in report.findings
    )


def _drain(report: Report, host: str) -> Drain:
    if is_certain(report):
        return Drain(
            host=host,
            answer="yes",
            why=report.verdict.title,
            command=f"scontrol update NodeName={host} State=DRAIN Reason='{report.findings[0].id}'",
        )
    if any(each.severity is Severity.CRITICAL and each.ignored is None for each in report.findings):
        return Drain(host=host, answer="not enough evidence", why="the finding is not certain")
    return Drain(host=host, answer="no", why="no critical finding")


def _collect(host: str, limit_s: float) -> tuple[EnvFacts, dict[str, float]]:
    """Facts collected within the limit. What hangs in the kernel cannot be ended: its thread is left behind."""
    tool_s = max(0.1, min(3.0, limit_s / 2))
    collection = Collection(this_world(), Wanted(host_name=host, timeout_s=limit_s, tool_timeout_s=tool_s))
    done = threading.Event()

    def work() -> None:
        try:
            collection.software()
            collection.early()
        finally:
            done.set()

    try:
        threading.Thread(target=work, daemon=True, name="checkup").start()
    except RuntimeError:  # the limit on processes is reached: what needs no thread is collected at once
        work()
    done.wait(limit_s)
    return collection.facts_so_far(), dict(collection.timings)


def _read_baseline(path: Path) -> Report:
    try:
        data = read_bounded(path, MAX_REPORT_BYTES)
    except OSError as error:
        raise InputError(f"cannot read --baseline `{path}`: {error.strerror}") from error
    return decode(data, str(path))
