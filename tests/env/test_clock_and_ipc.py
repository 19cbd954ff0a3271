"""Clock synchronisation, and shared memory that systemd removes."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.clock import check_clock
from distdoctor.env.checks.remove_ipc import check_remove_ipc
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.host import ContainerFacts, HostFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.report.model import Confidence, Severity, SkipCause


def clock(synchronised: bool | None, source: str, num_nodes: int | None = None) -> Outcome:
    host = HostFacts(clock_synchronised=synchronised, sources={"clock_synchronised": source})
    (outcome,) = check_clock(EnvFacts(host=host, scheduler=SchedulerFacts(num_nodes=num_nodes)))
    return outcome


@pytest.mark.parametrize(
    ("source", "num_nodes", "severity", "confidence"),
    [
        ("adjtimex()", None, Severity.INFO, Confidence.MEDIUM),
        ("adjtimex()", 2, Severity.WARNING, Confidence.MEDIUM),
        ("chronyc tracking", None, Severity.WARNING, Confidence.HIGH),
    ],
)
def test_an_unsynchronised_clock_is_judged_by_who_says_so(
    source: str, num_nodes: int | None, severity: Severity, confidence: Confidence
) -> None:
    found = clock(False, source, num_nodes)
    assert isinstance(found, Found)
    assert (found.severity, found.confidence) == (severity, confidence)


def test_a_synchronised_clock_is_passed_and_an_unread_one_is_not() -> None:
    assert isinstance(clock(True, "adjtimex()"), Passed)
    assert isinstance(clock(None, "adjtimex()"), NotSeen)


def ipc(
    remove: bool | None,
    *,
    kind: str = "none",
    scheduler: SchedulerFacts | None = None,
    unread: Unread | None = None,
) -> Outcome:
    host = HostFacts(remove_ipc=remove, unread={"remove_ipc": unread} if unread else {})
    facts = EnvFacts(
        host=host,
        container=ContainerFacts(kind=kind),
        scheduler=scheduler or SchedulerFacts(scheduler="none", launcher="none"),
    )
    (outcome,) = check_remove_ipc(facts)
    return outcome


SLURM = SchedulerFacts(scheduler="slurm", launcher="slurm")


@pytest.mark.parametrize(
    "scheduler",
    [
        SLURM,
        SchedulerFacts(scheduler="none", launcher="openmpi"),
        SchedulerFacts(scheduler="none", launcher="none", on_login_node=True),
    ],
)
def test_removal_is_found_where_jobs_run_without_a_login(scheduler: SchedulerFacts) -> None:
    found = ipc(True, scheduler=scheduler)
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


def test_no_removal_or_no_scheduler_is_passed() -> None:
    assert isinstance(ipc(False, scheduler=SLURM), Passed)
    assert isinstance(ipc(True), Passed)


def test_a_container_of_its_own_is_not_touched() -> None:
    assert isinstance(ipc(True, kind="docker", scheduler=SLURM), NotApplicable)


def test_an_image_that_hides_the_hosts_settings_is_not_passed() -> None:
    assert isinstance(ipc(False, kind="enroot", scheduler=SLURM), NotSeen)


def test_unread_settings_are_not_passed_and_no_logind_removes_nothing() -> None:
    unsure = Unread(cause=SkipCause.UNSUPPORTED, reason="not written there")
    assert isinstance(ipc(None, scheduler=SLURM, unread=unsure), NotSeen)
    absent = Unread(cause=SkipCause.ABSENT, reason="no logind.conf here")
    assert isinstance(ipc(None, scheduler=SLURM, unread=absent), NotApplicable)
