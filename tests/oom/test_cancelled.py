"""SIGKILL after the job was told to end is no lack of memory; SIGKILL before it may be."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from distdoctor.oom.explain.build import explain_report
from distdoctor.oom.messages.from_files import events_from_text
from distdoctor.report.model import Confidence, Status, Verdict
from distdoctor.report.request import ReportRequest

KILLED = "failed (exitcode: -9) local_rank: 0 (pid: 140) of binary: /usr/bin/python3"


def verdict_of(*lines: str) -> Verdict:
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    return explain_report(request, events_from_text("job.log", "\n".join(lines))).verdict


ORDERS = (
    "slurmstepd: error: *** JOB 8123 ON gpu-07 CANCELLED AT 2026-03-04T11:20:05 ***",
    "slurmstepd-gpu-07: error: *** JOB 8123_4 ON gpu-07 CANCELLED AT 2026-03-04T11:20:05 DUE to SIGNAL Terminated ***",
    "8123 CANCELLED by 1042",
    "the run was cancelled from the web page",
    "+ scancel 8123",
    "Killed by user",
    "worker 3 was terminated by signal 15",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 88 got signal: 15",
    "W0304 11:20:05.100 88 torch/distributed/elastic/agent/server/api.py:719] Received Signals.SIGTERM death signal, shutting down workers",
    "2026-03-04 11:20:05 INFO caught SIGTERM, saving a checkpoint",
    "Normal   Killing    2m   kubelet   Stopping container trainer",
    "Normal  Preempted  3m  default-scheduler  Preempted by a pod on node gpu-07",
    "Warning  Unhealthy: container trainer failed liveness probe, will be restarted",
    "Termination: TERM_OWNER",
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kill", [KILLED, "command terminated with exit code 137", "Killed"])
def test_a_kill_behind_an_order_to_end_is_no_lack_of_memory(order: str, kill: str) -> None:
    verdict = verdict_of("step 40 | loss 2.1", order, kill)
    assert (verdict.status, verdict.cause_class) == (Status.UNKNOWN, "unknown")
    assert "no sign of memory" in verdict.title


def test_kubectl_prints_the_end_above_the_events_that_led_to_it() -> None:
    end = ("    State:       Terminated", "      Reason:    Error", "      Exit Code: 137", "Events:")
    stopped = "  Normal   Killing   2m   kubelet   Stopping container trainer"
    assert verdict_of(*end, stopped).cause_class == "unknown"
    assert verdict_of(*end, "  Normal   Pulled    9m   kubelet   Image is present").cause_class == "host-ram"


@pytest.mark.parametrize("order", [each for each in ORDERS if "Preempted" not in each])
def test_a_kill_before_the_order_is_not_explained_by_it(order: str) -> None:
    assert verdict_of("step 40 | loss 2.1", KILLED, order).cause_class == "host-ram"


@pytest.mark.parametrize("order", ORDERS)
def test_the_kernels_word_counts_more_than_an_order(order: str) -> None:
    told = "Memory cgroup out of memory: Killed process 140 (python3) anon-rss:100kB"
    assert verdict_of(order, told).cause_class == "host-ram"


@pytest.mark.parametrize(
    "launcher",
    [
        "W0304 11:20:05.100 88 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 141 closing signal SIGTERM\n"
        "[rank: 1] Received SIGTERM: 15",
        "srun: Terminating StepId=8123.0\n[rank: 1] Received SIGTERM: 15",
        "# scancel ends the job, and exit code 137 follows",
    ],
)
def test_what_a_launcher_does_after_a_failure_explains_no_kill(launcher: str) -> None:
    assert verdict_of("step 40 | loss 2.1", launcher, KILLED).cause_class == "host-ram"


def test_a_cancelled_step_alone_lowers_the_confidence() -> None:
    step = "slurmstepd: error: *** STEP 8123.0 ON gpu-07 CANCELLED AT 2026-03-04T11:20:05 ***"
    assert verdict_of(KILLED).confidence is Confidence.MEDIUM
    verdict = verdict_of(step, KILLED)
    assert (verdict.cause_class, verdict.confidence) == ("host-ram", Confidence.LOW)
