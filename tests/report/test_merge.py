"""One incident report of several: the gravest verdict, contradictions shown."""

from __future__ import annotations

from distdoctor.report.merge import NamedReport, merge_reports
from distdoctor.report.model import Confidence, Fault, Report, Status, Subject, Tool, Verdict


def part(
    label: str, status: Status, *, fault: Fault = Fault.UNKNOWN, command: str = "env", **verdict: object
) -> NamedReport:
    values: dict[str, object] = {"status": status, "title": f"{label} says so", "summary": "", "fault": fault}
    return NamedReport(
        label=label,
        report=Report(
            tool=Tool(name="distdoctor", version="0", command=command),
            verdict=Verdict(**{**values, **verdict}),  # type: ignore[arg-type]
            subject=Subject(hosts=("host-a",)),
        ),
    )


def test_the_gravest_and_surest_part_leads() -> None:
    merged = merge_reports(
        [
            part("a", Status.WARNING),
            part("b", Status.CRITICAL, confidence=Confidence.LOW),
            part("c", Status.CRITICAL, confidence=Confidence.HIGH),
        ]
    )
    assert merged.verdict.title == "c says so"
    assert merged.verdict.status is Status.CRITICAL


def test_an_unanswered_part_keeps_the_whole_from_being_ok() -> None:
    assert merge_reports([part("a", Status.OK), part("b", Status.UNKNOWN)]).verdict.status is Status.UNKNOWN


def test_two_critical_parts_that_blame_different_things_are_shown_and_lower_the_confidence() -> None:
    merged = merge_reports(
        [part("a", Status.CRITICAL, fault=Fault.GPU), part("b", Status.CRITICAL, fault=Fault.NETWORK)]
    )
    assert merged.verdict.confidence is Confidence.MEDIUM
    (missing,) = merged.missing_evidence
    assert "a puts it on gpu" in missing.why
    assert "b on network" in missing.why


def test_parts_that_agree_are_no_contradiction() -> None:
    merged = merge_reports(
        [part("a", Status.CRITICAL, fault=Fault.GPU), part("b", Status.CRITICAL, fault=Fault.GPU)]
    )
    assert merged.missing_evidence == ()
    assert merged.verdict.confidence is Confidence.HIGH


def test_the_same_command_that_found_nothing_on_that_host_is_a_contradiction() -> None:
    merged = merge_reports([part("before", Status.OK), part("after", Status.CRITICAL)])
    assert "before found no fault where after found" in merged.missing_evidence[0].why
