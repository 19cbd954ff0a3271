"""Variables of another version of NCCL or torch."""

from __future__ import annotations

from distdoctor.env.checks.base import Found, NotSeen, Passed
from distdoctor.env.checks.nccl_variable_stale import check_stale
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.torch import TorchFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Severity


def facts(nccl: str | None = "2.27.5", torch: str | None = "2.9.0", **environment: str) -> EnvFacts:
    return EnvFacts(
        variables=VariableFacts(environment=environment),
        nccl=NcclFacts(loaded_version=nccl),
        torch=TorchFacts(found=True, version=torch),
    )


def test_a_variable_that_is_gone_is_a_warning_with_its_successor() -> None:
    (found,) = check_stale(facts(NCCL_TREE_THRESHOLD="0"))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert "2.4.8" in found.explanation
    assert "NCCL_ALGO" in found.explanation


def test_a_variable_that_is_gone_still_works_in_the_last_release_with_it() -> None:
    (outcome,) = check_stale(facts("2.4.8", NCCL_TREE_THRESHOLD="0"))
    assert isinstance(outcome, Passed)


def test_a_variable_that_is_not_there_yet_is_a_warning() -> None:
    (found,) = check_stale(facts("2.21.5", NCCL_RAS_ENABLE="0"))
    assert isinstance(found, Found)
    assert "2.24" in found.explanation


def test_an_old_torch_name_still_works_and_is_said_so() -> None:
    (found,) = check_stale(facts(NCCL_ASYNC_ERROR_HANDLING="1"))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING" in found.title
    assert "still takes the old name" in found.explanation


def test_the_old_name_was_the_right_one_before_the_renaming() -> None:
    (outcome,) = check_stale(facts(torch="2.1.2", NCCL_ASYNC_ERROR_HANDLING="1"))
    assert isinstance(outcome, Passed)


def test_a_newer_torch_than_was_read_is_not_claimed_to_work() -> None:
    (found,) = check_stale(facts(torch="2.20.0", NCCL_BLOCKING_WAIT="1"))
    assert isinstance(found, Found)
    assert "was not checked" in found.explanation


def test_of_both_names_with_different_values_the_old_one_goes() -> None:
    """The check of contradictions warns of it; the remedy here must not undo the other's."""
    (found,) = check_stale(facts(NCCL_BLOCKING_WAIT="1", TORCH_NCCL_BLOCKING_WAIT="0"))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert found.actions[0].command == "unset NCCL_BLOCKING_WAIT"


def test_the_new_allocator_name_is_not_read_by_an_older_torch() -> None:
    (found,) = check_stale(facts(torch="2.7.1", PYTORCH_ALLOC_CONF="expandable_segments:True"))
    assert isinstance(found, Found)
    assert "PYTORCH_CUDA_ALLOC_CONF" in found.explanation


def test_an_unknown_nccl_version_is_not_passed() -> None:
    (outcome,) = check_stale(facts(None, NCCL_TREE_THRESHOLD="0"))
    assert isinstance(outcome, NotSeen)


def test_current_variables_pass() -> None:
    (outcome,) = check_stale(facts(NCCL_DEBUG="WARN", NCCL_IB_HCA="mlx5"))
    assert isinstance(outcome, Passed)


def test_no_variables_is_not_passed() -> None:
    (outcome,) = check_stale(EnvFacts())
    assert isinstance(outcome, NotSeen)
