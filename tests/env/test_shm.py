"""Shared memory: too small, nearly full, fine, unreadable."""

from __future__ import annotations

from distdoctor.env.checks.base import Found, NotSeen, Passed
from distdoctor.env.checks.shm import check_shm
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.process import ProcessFacts
from distdoctor.report.model import Severity, SkipCause
from distdoctor.units import GIB, MIB


def facts(total: int, free: int, num_gpus: int = 8) -> EnvFacts:
    return EnvFacts(
        host_name="host-a",
        process=ProcessFacts(shm_total_bytes=total, shm_free_bytes=free),
        gpus=GpuFacts(devices=tuple(GpuDevice(index=index) for index in range(num_gpus))),
    )


def test_dockers_default_is_critical_with_several_gpus() -> None:
    (found,) = check_shm(facts(64 * MIB, 64 * MIB))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert "64 MiB" in found.title


def test_dockers_default_is_a_warning_with_one_gpu() -> None:
    (found,) = check_shm(facts(64 * MIB, 64 * MIB, num_gpus=1))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


def test_a_nearly_full_one_is_a_warning() -> None:
    (found,) = check_shm(facts(64 * GIB, GIB))
    assert isinstance(found, Found)
    assert found.key == "full"


def test_a_host_with_16_gpus_needs_twice_as_much() -> None:
    (found,) = check_shm(facts(GIB, GIB, num_gpus=16))
    assert isinstance(found, Found)
    assert found.evidence[0].expected == "at least 2 GiB"


def test_enough_is_passed() -> None:
    (outcome,) = check_shm(facts(64 * GIB, 60 * GIB))
    assert isinstance(outcome, Passed)


def test_unreadable_is_not_passed() -> None:
    unread = Unread(cause=SkipCause.NEEDS_ROOT, reason="/dev/shm: Permission denied")
    (outcome,) = check_shm(EnvFacts(process=ProcessFacts(unread={"shm_total_bytes": unread})))
    assert outcome == NotSeen(unread=unread)
