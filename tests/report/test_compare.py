"""Two hosts, before and after, the odd one of five: the difference that matters comes first."""

from __future__ import annotations

from distdoctor.env.catalog.relevance import env_relevance
from distdoctor.report.compare import compare_holders, holders_of, unique_names
from distdoctor.report.model import (
    Confidence,
    Fact,
    Finding,
    Ignored,
    Report,
    Scalar,
    Scope,
    Severity,
    Status,
    Tool,
    Verdict,
)


def report(
    facts: dict[str, Scalar] | None = None, findings: tuple[Finding, ...] = (), **rows: object
) -> Report:
    return Report(
        tool=Tool(name="distdoctor", version="0", command="env"),
        verdict=Verdict(status=Status.OK, title="", summary=""),
        facts=tuple(Fact(key=key, value=value) for key, value in (facts or {}).items()),
        findings=findings,
    )


def lost_gpu(**changes: object) -> Finding:
    values: dict[str, object] = {
        "id": "gpu-lost",
        "severity": Severity.CRITICAL,
        "confidence": Confidence.HIGH,
        "title": "gpu 3 is lost",
        "fingerprint": "gpu-lost:3",
    }
    return Finding(**{**values, **changes})  # type: ignore[arg-type]


def compare(**reports: Report) -> tuple[Finding, ...]:
    holders = [holder for label, each in reports.items() for holder in holders_of(each, label)]
    return compare_holders(holders, env_relevance)[0]


def test_a_fault_of_one_side_comes_before_versions_and_kernels() -> None:
    findings = compare(
        a=report({"torch.version": "2.9.1", "host.kernel": "5.15"}),
        b=report({"torch.version": "2.8.0", "host.kernel": "6.1"}, (lost_gpu(),)),
    )
    assert [each.fingerprint for each in findings] == ["compare:gpu-lost:3", "compare-differs:torch.version"]
    assert findings[0].title == "only b: gpu 3 is lost"


def test_one_fault_that_all_have_is_no_difference_whatever_name_or_figure_its_title_holds() -> None:
    assert (
        compare(
            a=report(findings=(lost_gpu(title="gpu 3 of a is lost"),)),
            b=report(findings=(lost_gpu(title="gpu 3 of b is lost"),)),
        )
        == ()
    )


def test_a_fault_that_is_worse_on_one_side_names_that_side() -> None:
    (found,) = compare(
        a=report(findings=(lost_gpu(severity=Severity.INFO),)), b=report(findings=(lost_gpu(),))
    )
    assert found.title == "worst on b: gpu 3 is lost"
    assert found.severity is Severity.CRITICAL
    assert found.evidence[-1].text == "a: less severe"


def test_the_odd_one_of_five_is_named() -> None:
    same = {"gpus.driver_version": "570.86.15", "host.cpu_model": "EPYC"}
    reports = {name: report(same) for name in "abcde"}
    reports["c"] = report({**same, "gpus.driver_version": "535.54.03"})
    (finding,) = compare(**reports)
    assert finding.scope.hosts == ("c",)
    assert finding.confidence is Confidence.HIGH
    assert "535.54.03" in finding.evidence[1].text


def test_what_differs_by_nature_is_left_out() -> None:
    assert (
        compare(
            a=report(
                {"gpus.devices.0.temperature_c": 30, "scheduler.rank": 0, "variables.environment.RANK": "0"}
            ),
            b=report(
                {"gpus.devices.0.temperature_c": 60, "scheduler.rank": 1, "variables.environment.RANK": "1"}
            ),
        )
        == ()
    )


def test_an_ignored_finding_is_no_difference() -> None:
    assert compare(a=report(), b=report(findings=(lost_gpu(ignored=Ignored(by="x")),))) == ()


def test_a_gathered_report_is_split_into_its_hosts() -> None:
    gathered = Report(
        tool=Tool(name="distdoctor", version="0", command="env"),
        verdict=Verdict(status=Status.OK, title="", summary=""),
        facts=(
            Fact(key="torch.version", value="2.9.1", hosts=("host-a", "host-c")),
            Fact(key="torch.version", value="2.8.0", hosts=("host-b",)),
        ),
        findings=(lost_gpu(scope=Scope(hosts=("host-b",))),),
    )
    holders = holders_of(gathered, "job")
    assert [holder.name for holder in holders] == ["host-a", "host-c", "host-b"]
    assert holders[2].facts["torch.version"] == "2.8.0"
    assert list(holders[2].findings) == ["gpu-lost:3"]
    assert holders[0].findings == {}


def test_two_reports_of_one_host_get_distinct_names() -> None:
    assert unique_names(["a", "b", "a"]) == ["a (1)", "b", "a (2)"]
