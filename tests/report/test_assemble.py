"""The verdict follows from findings, skips and who is missing; hosts with one fault share a finding."""

from __future__ import annotations

import pytest

from distdoctor.report.assemble import coverage, fold_checks, fold_findings, make_verdict
from distdoctor.report.model import (
    CheckResult,
    CheckState,
    Confidence,
    Evidence,
    Finding,
    Ignored,
    Scope,
    Severity,
    SkipCause,
    Skipped,
    Status,
    Subject,
    Verdict,
)


def finding(severity: Severity = Severity.WARNING, **changes: object) -> Finding:
    values: dict[str, object] = {
        "id": "some-check",
        "severity": severity,
        "confidence": Confidence.HIGH,
        "title": "something is wrong",
        "fingerprint": "some-check",
    }
    return Finding(**{**values, **changes})  # type: ignore[arg-type]


def skip(*, essential: bool = False) -> Skipped:
    return Skipped(
        id="kernel-xid", what="kernel log", cause=SkipCause.NEEDS_ROOT, reason="denied", essential=essential
    )


def verdict(
    findings: list[Finding] | None = None,
    skipped: list[Skipped] | None = None,
    subject: Subject | None = None,
) -> Verdict:
    checks = [
        CheckResult(id="a", title="a", state=CheckState.PASSED),
        CheckResult(id="b", title="b", state=CheckState.SKIPPED),
        CheckResult(id="c", title="c", state=CheckState.NOT_APPLICABLE),
    ]
    return make_verdict(findings or [], checks, skipped or [], subject or Subject(), about="host-a")


def test_nothing_found_says_how_much_was_seen() -> None:
    result = verdict(skipped=[skip()])
    assert result.status is Status.OK
    assert result.title == "no fault found in 1 of 2 checks; kernel log not seen"
    assert result.confidence is Confidence.MEDIUM


def test_an_essential_skip_is_unknown_not_ok() -> None:
    result = verdict(skipped=[skip(essential=True)])
    assert result.status is Status.UNKNOWN
    assert result.title == "cannot tell: kernel log not seen"


def test_a_missing_rank_is_unknown_not_ok() -> None:
    result = verdict(subject=Subject(missing_ranks=(3,)))
    assert result.status is Status.UNKNOWN
    assert "rank 3" in result.title


def test_the_worst_finding_gives_the_verdict() -> None:
    findings = list(
        fold_findings(
            [
                finding(Severity.INFO, fingerprint="i", title="a note"),
                finding(Severity.CRITICAL, fingerprint="low", confidence=Confidence.LOW, title="a lead"),
                finding(Severity.CRITICAL, fingerprint="high", title="the cause"),
            ]
        )
    )
    result = verdict(findings)
    assert (result.status, result.title) == (Status.CRITICAL, "the cause")


def test_an_ignored_finding_does_not_count() -> None:
    result = verdict([finding(Severity.CRITICAL, ignored=Ignored(by="--ignore"))])
    assert result.status is Status.OK


def test_an_info_alone_is_ok() -> None:
    assert verdict([finding(Severity.INFO)]).status is Status.OK


@pytest.mark.parametrize("subject", [Subject(), Subject(missing_ranks=tuple(range(100)))])
def test_titles_fit_and_no_verdict_calls_anything_healthy(subject: Subject) -> None:
    result = verdict(subject=subject)
    assert len(result.title) <= 80
    assert "healthy" not in (result.title + result.summary).lower()


def test_equal_findings_of_hosts_become_one_with_all_hosts() -> None:
    folded = fold_findings(
        [
            finding(scope=Scope(hosts=(host,)), evidence=(Evidence(text=f"{number} MiB"),))
            for number, host in enumerate(["a", "b", "c"])
        ]
    )
    (result,) = folded
    assert result.scope.hosts == ("a", "b", "c")
    assert [each.text for each in result.evidence] == ["0 MiB", "1 MiB", "2 MiB"]


def test_a_lead_and_a_certainty_are_not_mixed() -> None:
    folded = fold_findings(
        [finding(confidence=Confidence.LOW, scope=Scope(hosts=("a",))), finding(scope=Scope(hosts=("b",)))]
    )
    assert [(each.confidence, each.scope.hosts) for each in folded] == [
        (Confidence.HIGH, ("b",)),
        (Confidence.LOW, ("a",)),
    ]


def test_a_check_that_failed_on_one_host_is_found_there() -> None:
    (result,) = fold_checks(
        [
            CheckResult(id="x", title="x", state=CheckState.PASSED, hosts=("a",)),
            CheckResult(id="x", title="x", state=CheckState.FOUND, detail="bad", hosts=("b",)),
        ]
    )
    assert (result.state, result.hosts, result.detail) == (CheckState.FOUND, ("b",), "bad")


def test_what_does_not_apply_counts_neither_as_seen_nor_as_unseen() -> None:
    checks = [CheckResult(id=str(state), title="", state=state) for state in CheckState]
    assert coverage(checks) == "2 of 3 checks"
