"""NUMA balancing, CPU governor, huge pages, swap."""

from __future__ import annotations

from typing import Any

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.env.checks.host_tuning import (
    check_governor,
    check_huge_pages,
    check_numa_balancing,
    check_swap,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.host import HostFacts, NumaNode
from distdoctor.report.model import Confidence, Severity, SkipCause
from distdoctor.units import GIB

TWO_NODES = (NumaNode(node=0, cpus=(0, 1)), NumaNode(node=1, cpus=(2, 3)))
ABSENT = Unread(cause=SkipCause.ABSENT, reason="No such file or directory")


def facts(num_gpus: int = 8, **host: Any) -> EnvFacts:
    devices = tuple(GpuDevice(index=index) for index in range(num_gpus))
    return EnvFacts(host=HostFacts(**host), gpus=GpuFacts(devices=devices, num_pci_gpus=num_gpus))


def test_numa_balancing_on_two_nodes_is_an_info() -> None:
    (found,) = check_numa_balancing(facts(numa_balancing=1, numa_nodes=TWO_NODES))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO


def test_numa_balancing_off_is_passed() -> None:
    (outcome,) = check_numa_balancing(facts(numa_balancing=0, numa_nodes=TWO_NODES))
    assert isinstance(outcome, Passed)


def test_numa_balancing_without_gpu_node_or_kernel_support_does_not_matter() -> None:
    for each in (
        facts(num_gpus=0, numa_balancing=1, numa_nodes=TWO_NODES),
        facts(numa_balancing=1, numa_nodes=TWO_NODES[:1]),
        facts(kernel="6.8.0", unread={"numa_balancing": ABSENT}),
    ):
        (outcome,) = check_numa_balancing(each)
        assert isinstance(outcome, NotApplicable)


def test_numa_balancing_unread_is_not_passed() -> None:
    for each in (facts(), facts(unread={"numa_balancing": ABSENT}), EnvFacts()):
        (outcome,) = check_numa_balancing(each)
        assert isinstance(outcome, NotSeen)


@pytest.mark.parametrize(
    ("driver", "severity", "confidence"),
    [
        ("intel_pstate", Severity.INFO, Confidence.MEDIUM),
        ("amd-pstate-epp", Severity.INFO, Confidence.MEDIUM),
        ("acpi-cpufreq", Severity.WARNING, Confidence.HIGH),
        ("intel_cpufreq", Severity.WARNING, Confidence.HIGH),
        (None, Severity.INFO, Confidence.MEDIUM),
    ],
)
def test_powersave_is_judged_by_its_driver(
    driver: str | None, severity: Severity, confidence: Confidence
) -> None:
    (found,) = check_governor(facts(cpu_governors={"powersave": 96}, cpu_frequency_driver=driver))
    assert isinstance(found, Found)
    assert (found.severity, found.confidence) == (severity, confidence)


@pytest.mark.parametrize("governor", ["performance", "schedutil", "ondemand"])
def test_other_governors_are_passed(governor: str) -> None:
    (outcome,) = check_governor(facts(cpu_governors={governor: 96}, cpu_frequency_driver="acpi-cpufreq"))
    assert isinstance(outcome, Passed)


def test_a_virtual_machine_has_no_governor() -> None:
    (outcome,) = check_governor(facts(num_cpus=8, unread={"cpu_governors": ABSENT}))
    assert isinstance(outcome, NotApplicable)


def test_an_unread_governor_is_not_passed() -> None:
    (outcome,) = check_governor(facts(num_cpus=8))
    assert isinstance(outcome, NotSeen)


def test_huge_pages_turned_off_are_a_lead_only() -> None:
    (found,) = check_huge_pages(facts(transparent_hugepage="never"))
    assert isinstance(found, Found)
    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)


def test_huge_pages_allowed_or_unread() -> None:
    for setting in ("always", "madvise"):
        (outcome,) = check_huge_pages(facts(transparent_hugepage=setting))
        assert isinstance(outcome, Passed)
    (outcome,) = check_huge_pages(facts())
    assert isinstance(outcome, NotSeen)


def swap(used: int | None, available: int = 900 * GIB, total: int = 64 * GIB) -> EnvFacts:
    return facts(
        swap_total_bytes=total,
        swap_used_bytes=used,
        memory_total_bytes=1000 * GIB,
        memory_available_bytes=available,
    )


@pytest.mark.parametrize(
    ("available", "severity"), [(10 * GIB, Severity.WARNING), (900 * GIB, Severity.INFO)]
)
def test_swap_in_use_is_judged_by_the_memory_left(available: int, severity: Severity) -> None:
    (found,) = check_swap(swap(20 * GIB, available))
    assert isinstance(found, Found)
    assert found.severity is severity


def test_little_or_no_swap_is_fine_and_unread_is_not() -> None:
    assert isinstance(check_swap(swap(GIB // 2))[0], Passed)
    assert isinstance(check_swap(swap(0, total=0))[0], NotApplicable)
    assert isinstance(check_swap(swap(None))[0], NotSeen)
    assert isinstance(check_swap(facts())[0], NotSeen)
