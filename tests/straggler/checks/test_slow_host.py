"""Findings about hosts whose ranks are slow together."""

from __future__ import annotations

import pytest

from distdoctor.report.model import Confidence, Fault, Severity
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.slow_host import CHECK
from distdoctor.straggler.facts.sections import Section
from straggler.checks.outcomes import found, passed, why_not
from straggler.worlds import NOON_S, Slow, facts_of, job, only

HOST_1 = range(8, 16)


def slow_host(**more: int) -> Analysed:
    return facts_of(job(32, 300, gpus_per_host=8, started_s=NOON_S, slow=[Slow(ranks=HOST_1, ms=40, **more)]))


def test_a_slow_host_is_a_finding_with_its_ranks() -> None:
    each = found(CHECK, slow_host())
    assert each.title == "host-1: all of its ranks work 13 % longer than their peers"
    assert (each.severity, each.confidence, each.fault) == (Severity.WARNING, Confidence.HIGH, Fault.HOST)
    assert (each.scope.hosts, each.scope.ranks) == (("host-1",), tuple(HOST_1))
    assert each.cause_class == "slow_host:compute"
    assert "8 of its 8 ranks (ranks 8-15)" in each.evidence[0].text
    assert "in all 299 steps" in each.evidence[0].text
    assert any(action.command and "nvidia-smi" in action.command for action in each.actions)


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"start": 150}, "since step 150 (2026-11-30T12:00:5"),
        ({"end": 150}, "up to step 149"),
        ({"start": 100, "end": 200}, "from step 100 (2026-11-30T12:00:3"),
    ],
)
def test_when_it_was_slow_is_told(when: dict[str, int], words: str) -> None:
    assert words in found(CHECK, slow_host(**when)).evidence[0].text


def test_some_of_its_ranks_are_counted() -> None:
    each = found(CHECK, facts_of(job(32, gpus_per_host=8, slow=[Slow(ranks=range(8, 15), ms=40)])))
    assert each.title == "host-1: 7 of 8 ranks work 13 % longer"


def test_a_host_that_costs_a_fifth_of_the_job_is_critical() -> None:
    each = found(CHECK, facts_of(job(32, gpus_per_host=8, slow=[Slow(ranks=HOST_1, ms=160)])))
    assert each.severity is Severity.CRITICAL


def test_of_waiting_alone_its_ranks_come_late() -> None:
    timings = job(32, gpus_per_host=8, slow=[Slow(ranks=HOST_1, ms=40)])
    each = found(CHECK, facts_of(only(timings, Section.WAIT)))
    assert each.title == "host-1: all of its ranks come late"
    assert "of the time in collectives" in each.evidence[0].text


@pytest.mark.parametrize("slow", [[], [Slow(ranks=[12], ms=60)]])
def test_hosts_that_are_not_slow_as_a_whole_pass(slow: list[Slow]) -> None:
    assert (
        passed(CHECK, facts_of(job(32, gpus_per_host=8, slow=slow))) == "none of 4 hosts is slow as a whole"
    )


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (facts_of(), "no times of ranks"),
        (facts_of(job(16)), "which rank runs on which host"),
        (facts_of(job(16, gpus_per_host=8)), "2 hosts"),
        (facts_of(job(8, gpus_per_host=8)), "1 host:"),
        (facts_of(only(job(32, gpus_per_host=8), Section.STEP)), "equal on all ranks"),
    ],
)
def test_what_cannot_be_seen_is_not_passed(facts: Analysed, reason: str) -> None:
    assert reason in why_not(CHECK, facts)[0]
