"""Jobs by the names of their pods, where the evidence tells no job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from distdoctor.report.checking import Found, NotSeen, Passed
from distdoctor.report.model import Confidence
from distdoctor.straggler.analysis.telemetry.pod_names import job_of_pod, jobs_of_pods
from distdoctor.straggler.checks.telemetry.findings import telemetry_outcomes
from distdoctor.straggler.facts.telemetry import Metric, Telemetry
from straggler.monitored_gpus import Values, telemetry


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        ("llama-worker-3", "llama"),
        ("llama-master-0", "llama"),
        ("llama-launcher-x7k2p", "llama"),
        ("llama-workers-0-3-x7k2p", "llama"),
        ("llama-3-x7k2p", "llama"),
        ("llama-12", "llama"),
        ("llama-7b-1-worker-0", "llama-7b-1"),
        ("llama-7b-1-0", "llama-7b-1"),
        ("serve-6d4cf56db6-x7k2p", "serve"),
        ("ray-abc-worker-gpu-group-x7k2p", "ray-abc"),
        ("ray-abc-head-x7k2p", "ray-abc"),
        ("node-classifier-3", "node-classifier"),
        ("worker-3", "worker"),
        ("notebook", "notebook"),
        ("7", "7"),
        ("", ""),
        ("-", "-"),
    ],
)
def test_what_tells_pods_of_one_job_apart_is_taken_off(pod: str, job: str) -> None:
    assert job_of_pod(pod) == job


def test_names_that_group_no_pods_part_nothing() -> None:
    assert jobs_of_pods(["a", "b", "c", "d", "e"]) == [None] * 5
    # Each host a pod of its own name.
    assert jobs_of_pods([f"run-{name}" for name in "abcd" for _ in range(8)]) == [None] * 32
    # Pairs.
    assert jobs_of_pods([f"run{n // 2}-worker-{n % 2}" for n in range(8)]) == [None] * 8
    assert jobs_of_pods([None, None]) == [None, None]
    assert jobs_of_pods([]) == []


def in_pods(export: Telemetry, pod_of: Callable[[int], str | None]) -> Telemetry:
    """`pod_of` the number of the GPU."""
    parts = (replace(each, pod=pod_of(int((each.gpu.uuid or "")[-4:]))) for each in export.series)
    return replace(export, series=tuple(parts))


HEAVY: Mapping[Metric, Values] = {Metric.POWER: 690, Metric.SM_ACTIVE: 0.85, Metric.SM_CLOCK: 1620}


def two_jobs(gpu: int) -> str:
    return f"{'light' if gpu < 32 else 'heavy'}-worker-{gpu // 8}"


def test_jobs_by_the_names_of_pods_are_not_compared_with_one_another() -> None:
    export = telemetry(
        40, everybody={Metric.POWER: 560}, unlike=dict.fromkeys(range(32, 40), HEAVY), job=None
    )

    assert any(isinstance(each, Found) for each in telemetry_outcomes(export))
    first, second = telemetry_outcomes(in_pods(export, two_jobs))
    assert isinstance(first, Passed) and "32 NVIDIA H100 80GB HBM3 of pods light-…" in first.detail
    assert isinstance(second, Passed) and "8 NVIDIA H100 80GB HBM3 of pods heavy-…" in second.detail


def test_a_job_by_the_names_of_pods_is_no_certain_job() -> None:
    export = telemetry(40, unlike={3: {Metric.SM_CLOCK: 1200}}, job=None)
    (found,) = [each for each in telemetry_outcomes(in_pods(export, two_jobs)) if isinstance(each, Found)]

    assert found.confidence is Confidence.LOW
    assert "taken from the names of pods (light-…)" in found.explanation


def test_a_job_in_the_evidence_goes_before_the_names_of_pods() -> None:
    (outcome,) = telemetry_outcomes(in_pods(telemetry(40), two_jobs))

    assert isinstance(outcome, Passed) and "40 NVIDIA H100 80GB HBM3 of llm-train" in outcome.detail


def test_small_jobs_beside_a_large_one_are_told_once() -> None:
    def pod_of(gpu: int) -> str | None:
        return f"llama-worker-{gpu // 8}" if gpu < 32 else f"notebook-{'abcdefgh'[gpu - 32]}"

    outcomes = telemetry_outcomes(in_pods(telemetry(40, job=None), pod_of))
    not_seen = [each.unread.reason for each in outcomes if isinstance(each, NotSeen)]

    assert not_seen == ["8 GPUs of pods that by their names are jobs of fewer than 4 GPUs"]
