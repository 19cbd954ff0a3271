"""Monitoring of the same GPUs stands beside the timing of a slow rank."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.report.model import Confidence, GpuRef
from distdoctor.straggler.checks import slow_rank
from distdoctor.straggler.checks.telemetry import unlike_gpus
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.facts.telemetry import Metric
from straggler.checks.outcomes import found
from straggler.monitored_gpus import telemetry
from straggler.worlds import Slow, facts_of, job

THROTTLED = {Metric.SM_CLOCK: 1065, Metric.THROTTLE_REASONS: 0x40}


def on_monitored_hosts(timings: StepTimings, *, uuid: bool = False, index: bool = True) -> StepTimings:
    """The ranks on the GPUs of `telemetry()`: eight on host-a."""

    def place(old: Place) -> Place:
        gpu = GpuRef(uuid=f"GPU-{old.rank:04d}") if uuid else GpuRef(index=old.rank) if index else None
        return replace(old, host=None if uuid else "host-a", local_rank=old.rank, gpu=gpu)

    return replace(timings, places=tuple(place(each) for each in timings.places))


def lines(timings: StepTimings, *, unlike: int) -> list[str]:
    facts = facts_of(timings, telemetry=(telemetry(unlike={unlike: THROTTLED}),))
    return [each.text for each in found(slow_rank.CHECK, facts).evidence]


def test_a_throttled_gpu_is_told_with_the_rank_that_runs_on_it() -> None:
    slow = job(slow=[Slow(ranks=[5], ms=60)])
    for timings in (on_monitored_hosts(slow), on_monitored_hosts(slow, uuid=True)):
        (line,) = [text for text in lines(timings, unlike=5) if text.startswith("monitoring agrees:")]
        assert "GPU 5 of host-a" in line and "thermal" in line


def test_a_local_rank_that_stands_for_the_gpu_is_said_to() -> None:
    timings = on_monitored_hosts(job(slow=[Slow(ranks=[5], ms=60)]), index=False)
    assert any("GPU 5 by its local rank" in text for text in lines(timings, unlike=5))


def test_another_gpu_that_is_throttled_is_not_the_slow_ranks() -> None:
    timings = on_monitored_hosts(job(slow=[Slow(ranks=[5], ms=60)]))
    assert not any("monitoring" in text for text in lines(timings, unlike=2))


def test_beside_step_times_telemetry_is_medium_at_most() -> None:
    export = (telemetry(unlike={2: THROTTLED}),)
    timed = facts_of(on_monitored_hosts(job(slow=[Slow(ranks=[5], ms=60)])), telemetry=export)

    assert found(unlike_gpus.CHECK, timed).confidence is Confidence.MEDIUM
    assert found(unlike_gpus.CHECK, facts_of(telemetry=export)).confidence is Confidence.HIGH


def test_a_rank_whose_gpu_is_not_known_is_not_joined_to_one() -> None:
    timings = job(slow=[Slow(ranks=[5], ms=60)])
    assert not any("monitoring" in text for text in lines(timings, unlike=5))
