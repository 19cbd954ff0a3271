"""Flight recorder and watchdog settings by torch version."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.env.checks.hang_evidence import check_hang_evidence
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.host import ContainerFacts
from distdoctor.env.facts.torch import TorchFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Severity


def facts(torch: str | None, container: str = "none", **environment: str) -> EnvFacts:
    return EnvFacts(
        torch=TorchFacts(found=True, version=torch, cuda_build="12.8"),
        variables=VariableFacts(environment=environment),
        container=ContainerFacts(kind=container),
    )


def lines(given: EnvFacts) -> list[str]:
    (found,) = check_hang_evidence(given)
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    return (found.actions[0].command or "").splitlines()


@pytest.mark.parametrize(
    ("torch", "wanted"),
    [
        ("2.6.0", ["export TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "export TORCH_NCCL_DUMP_ON_TIMEOUT=1"]),
        ("2.7.1", ["export TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "export TORCH_NCCL_DUMP_ON_TIMEOUT=1"]),
        ("2.9.0+cu128", ["export TORCH_NCCL_TRACE_BUFFER_SIZE=2000"]),
    ],
)
def test_older_versions_need_the_exact_lines(torch: str, wanted: list[str]) -> None:
    assert lines(facts(torch)) == wanted


def test_since_2_11_the_defaults_are_enough() -> None:
    (outcome,) = check_hang_evidence(facts("2.11.0"))
    assert isinstance(outcome, Passed)


def test_older_versions_pass_once_it_is_set() -> None:
    given = facts("2.6.0", TORCH_NCCL_TRACE_BUFFER_SIZE="2000", TORCH_NCCL_DUMP_ON_TIMEOUT="1")
    (outcome,) = check_hang_evidence(given)
    assert isinstance(outcome, Passed)


def test_the_new_name_is_not_read_by_2_7() -> None:
    given = facts("2.7.0", TORCH_FR_BUFFER_SIZE="2000", TORCH_NCCL_DUMP_ON_TIMEOUT="1")
    assert lines(given) == ["export TORCH_NCCL_TRACE_BUFFER_SIZE=2000"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_FR_BUFFER_SIZE", "0"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "0"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "false"),
        ("TORCH_NCCL_ENABLE_MONITORING", "0"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"),
        ("NCCL_ASYNC_ERROR_HANDLING", "0"),
    ],
)
def test_what_is_switched_off_is_named(name: str, value: str) -> None:
    (found,) = check_hang_evidence(facts("2.13.0", **{name: value}))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert any(name in each.text for each in found.evidence)


def test_in_a_container_the_record_needs_a_volume() -> None:
    (found,) = check_hang_evidence(facts("2.13.0", container="kubernetes"))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    (outcome,) = check_hang_evidence(
        facts("2.13.0", container="kubernetes", TORCH_FR_DUMP_TEMP_FILE="/mnt/fr_")
    )
    assert isinstance(outcome, Passed)


def test_a_cpu_build_and_an_ancient_torch_have_no_recorder() -> None:
    cpu = EnvFacts(
        torch=TorchFacts(found=True, version="2.13.0", is_cpu_build=True), variables=VariableFacts()
    )
    assert isinstance(check_hang_evidence(cpu)[0], NotApplicable)
    assert isinstance(check_hang_evidence(facts("2.1.0"))[0], NotApplicable)


def test_an_unknown_torch_or_unread_variables_are_not_passed() -> None:
    assert isinstance(check_hang_evidence(facts(None))[0], NotSeen)
    assert isinstance(check_hang_evidence(EnvFacts(torch=TorchFacts(version="2.9.0")))[0], NotSeen)
