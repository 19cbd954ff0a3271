"""Memory and CPU limits of a container or job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.cgroup import check_cpu, check_memory
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.process import UNLIMITED, ProcessFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.report.model import Severity
from distdoctor.units import GIB

QUIET: dict[str, Any] = {
    "cgroup_memory_max_bytes": UNLIMITED,
    "cgroup_oom_kills": 0,
    "cgroup_sees_root": True,
}


def facts(num_gpus: int = 8, rank: int | None = None, **process: Any) -> EnvFacts:
    return EnvFacts(
        process=ProcessFacts(**process),
        gpus=GpuFacts(devices=tuple(GpuDevice(index=index) for index in range(num_gpus))),
        scheduler=SchedulerFacts(rank=rank),
    )


def found(outcomes: Sequence[Outcome]) -> list[Found]:
    return [each for each in outcomes if isinstance(each, Found)]


def test_no_limit_and_no_kill_are_passed() -> None:
    assert all(isinstance(each, Passed) for each in check_memory(facts(**QUIET)))


@pytest.mark.parametrize(("rank", "severity"), [(3, Severity.CRITICAL), (None, Severity.WARNING)])
def test_a_kill_is_critical_in_a_running_job(rank: int | None, severity: Severity) -> None:
    (kill,) = found(check_memory(facts(rank=rank, **{**QUIET, "cgroup_oom_kills": 2})))
    assert kill.severity is severity
    assert "since this cgroup was made" in kill.evidence[0].text


def test_a_kill_in_the_job_above_may_be_somebody_elses() -> None:
    (kill,) = found(check_memory(facts(rank=3, **{**QUIET, "cgroup_limit_oom_kills": 1})))
    assert kill.severity is Severity.WARNING
    assert "other members count too" in kill.evidence[0].text


def memory(current: int, cache: int | None, slab: int = 0) -> EnvFacts:
    return facts(
        cgroup_memory_max_bytes=100 * GIB,
        cgroup_memory_current_bytes=current,
        cgroup_memory_file_bytes=cache,
        cgroup_memory_slab_reclaimable_bytes=slab,
        cgroup_oom_kills=0,
    )


def test_memory_that_cannot_be_given_back_is_found() -> None:
    (full,) = found(check_memory(memory(99 * GIB, GIB)))
    assert full.key == "nearly-full"


@pytest.mark.parametrize(("cache", "slab"), [(50 * GIB, 0), (GIB, 50 * GIB)])
def test_memory_full_of_cache_is_passed(cache: int, slab: int) -> None:
    assert not found(check_memory(memory(99 * GIB, cache, slab)))


def test_memory_whose_cache_is_unread_is_not_judged() -> None:
    outcomes = check_memory(memory(99 * GIB, None))
    assert not found(outcomes)
    assert any(isinstance(each, NotSeen) for each in outcomes)


def test_unread_limits_are_not_passed() -> None:
    assert all(isinstance(each, NotSeen) for each in check_memory(facts()))
    assert all(isinstance(each, NotSeen) for each in check_memory(EnvFacts()))
    assert all(isinstance(each, NotSeen) for each in check_cpu(facts()))


def test_a_container_that_hides_its_ancestors_says_so() -> None:
    outcomes = check_memory(facts(**{**QUIET, "cgroup_sees_root": False}))
    assert any(isinstance(each, Passed) and "in sight" in each.detail for each in outcomes)


def cpu(
    quota: float, periods: int | None = 0, throttled: int | None = 0, num_gpus: int = 8
) -> Sequence[Outcome]:
    return check_cpu(
        facts(
            num_gpus,
            cgroup_cpu_quota_cpus=quota,
            cgroup_cpu_periods=periods,
            cgroup_cpu_throttled_periods=throttled,
        )
    )


def test_a_quota_below_two_cpus_a_gpu_is_found() -> None:
    (quota,) = found(cpu(8))
    assert quota.title == "a quota of 8 CPUs for 8 GPUs"


@pytest.mark.parametrize("quota", [16, UNLIMITED])
def test_enough_or_no_quota_is_passed(quota: float) -> None:
    assert all(isinstance(each, Passed) for each in cpu(quota))


def test_a_throttled_container_is_found() -> None:
    (throttled,) = found(cpu(64, periods=20000, throttled=5000))
    assert "25%" in throttled.title


@pytest.mark.parametrize(("periods", "throttled"), [(10, 9), (20000, 900)])
def test_few_periods_or_little_throttling_are_passed(periods: int, throttled: int) -> None:
    assert not found(cpu(64, periods=periods, throttled=throttled))


def test_unread_periods_and_unread_gpus_are_skipped() -> None:
    assert any(isinstance(each, NotSeen) for each in cpu(64, periods=None))
    no_gpu_facts = EnvFacts(process=ProcessFacts(cgroup_cpu_quota_cpus=4.0, cgroup_cpu_periods=0))
    assert any(isinstance(each, NotSeen) for each in check_cpu(no_gpu_facts))


def test_a_quota_on_a_host_without_gpus_is_not_compared() -> None:
    assert any(isinstance(each, NotApplicable) for each in cpu(1, num_gpus=0))
