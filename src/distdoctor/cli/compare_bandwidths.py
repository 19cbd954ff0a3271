"""Bandwidths of reports that are compared: those of each against the first that has any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec.structs import replace as replace_struct

from distdoctor.nccl_bench.checks.regression import CHECK
from distdoctor.nccl_bench.readers.own_report import facts_of_report
from distdoctor.report.checking import run_check
from distdoctor.report.compare_report import Side
from distdoctor.report.model import CheckResult, Finding, Skipped


def compare_bandwidths(
    sides: Sequence[Side],
) -> tuple[tuple[Finding, ...], tuple[CheckResult, ...], tuple[Skipped, ...]]:
    """What `nccl-bench --baseline` would say of each later side against the first; empty with fewer than two."""
    measured = [
        (side.label, facts)
        for side in sides
        if (facts := facts_of_report(side.report, side.label)) is not None
    ]
    if len(measured) < 2:
        return (), (), ()
    (_, base), *others = measured
    findings: list[Finding] = []
    checks: list[CheckResult] = []
    skips: list[Skipped] = []
    for label, facts in others:
        found, skipped, check = run_check(CHECK, replace(facts, baseline=base), is_live=False)
        several = len(others) > 1
        findings += [replace_struct(each, fingerprint=f"{each.fingerprint}:{label}") for each in found]
        skips += [
            replace_struct(each, what=f"{each.what}, {label}" if several else each.what) for each in skipped
        ]
        checks.append(check)
    return tuple(findings), tuple(checks), tuple(skips)
