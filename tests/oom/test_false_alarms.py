"""Words about memory that are no failure, or a failure of something else."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from distdoctor.oom.explain.build import explain_report
from distdoctor.oom.facts.events import Family, Phase
from distdoctor.oom.messages.from_files import events_from_text
from distdoctor.oom.messages.read import read_messages
from distdoctor.report.model import Status, Verdict
from distdoctor.report.request import ReportRequest
from distdoctor.units import GIB
from oom.oom_texts import FULL, IN_BACKWARD, legacy, modern, traceback


@pytest.mark.parametrize(
    "text",
    [
        "A worker that ended with exit code 137 was most likely out of host memory.",
        "If the pod shows exit code 137, give it more memory.",
        "retries: 3  # exit code 137 happens with 16 workers",
        "  batch: 2   # 8 gives torch.OutOfMemoryError: CUDA out of memory on small cards",
        "# RuntimeError: CUDA error: out of memory -> pin_memory: false",
        "// OOMKilled below 64 GiB",
        "How do I fix RuntimeError: CUDA out of memory?",
        "**Q: RuntimeError: CUDA error: out of memory?** Take a smaller batch.",
        "if [ $? -eq 137 ]; then echo 'OOMKilled, once more'; fi",
        "+ grep -c 'Out of memory: Killed process 12' dmesg.txt",
        "    logger.warning('worker exited with code 137')",
        "Larger values may lead to CUDA error: out of memory",
    ],
)
def test_comments_and_advice_are_no_failure(text: str) -> None:
    assert read_messages("x.log", text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "command terminated with exit code 137",
        "Error: container exited with code 137",
        "2026-02-02 10:00:00 logger.train ERROR worker exited with code 137",
        "E0202 logging.py:61] worker exited with code 137",
        "Message: The node was low on resource: memory. Container trainer was using 410Gi",
        "Worker #3: RuntimeError: CUDA error: out of memory",
        # A heading that holds the whole message is pasted by somebody who wants it explained.
        f"# {FULL}",
        f"How do I fix this? {FULL}",
    ],
)
def test_what_is_reported_is_a_failure(text: str) -> None:
    assert len(read_messages("x.log", text)) == 1


def test_a_step_of_slurm_is_no_step_of_training() -> None:
    text = "slurmstepd: error: Detected 1 oom-kill event(s) in step 812.0 cgroup.\nsrun: error: node-7: task 5: Out Of Memory\n"
    (event,) = read_messages("slurm.out", text)
    assert event.steps_before is None
    assert event.phase is Phase.UNKNOWN
    (named,) = read_messages("slurm.out", text.split("\n")[1])
    assert named.host == "node-7"
    assert named.rank is None  # a task of srun may be a launcher for several ranks


def test_a_class_without_a_message_is_an_event_without_sizes() -> None:
    (event,) = read_messages(
        "x.log", "[rank5]: Traceback (most recent call last):\n[rank5]: torch.OutOfMemoryError\n"
    )
    assert (event.rank, event.requested_bytes) == (5, None)


def test_a_block_that_may_not_be_so_large_is_read() -> None:
    text = (
        "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 5.00 GiB "
        "(GPU  1; 15.00 GiB total capacity; 2.00 GiB already allocated; 2.10 GiB reserved in total by PyTorch)"
    )
    (event,) = read_messages("x.log", text)
    assert event.family is Family.XPU
    assert event.is_block_limit
    assert (event.gpu, event.requested_bytes, event.total_bytes) == (1, 5 * GIB, 15 * GIB)
    assert (event.allocated_bytes, event.free_bytes) == (2 * GIB, None)


def test_tensorrt_speaks_of_the_runtime() -> None:
    text = '[defaultAllocator.cpp::allocateAsync::44] Error Code 1: Cuda Runtime (out of memory)"'
    assert read_messages("x.log", text)[0].family is Family.DRIVER


def test_a_line_of_json_names_its_rank() -> None:
    message = modern("1.50 GiB", "79.15 GiB", "610.12 MiB", "76.20 GiB", "621.00 MiB", process="78.50 GiB")
    line = json.dumps({"level": "error", "rank": 7, "local_rank": "3", "msg": message})
    (event,) = read_messages("x.jsonl", line)
    assert (event.rank, event.local_rank) == (7, 3)
    (bare,) = read_messages("x.jsonl", json.dumps({"level": "error", "msg": message}))
    assert bare.rank is None


def verdict_of(text: str) -> Verdict:
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    return explain_report(request, events_from_text("job.log", text)).verdict


def log_with(message: str, steps: tuple[int, ...], end: str = "") -> str:
    return "\n".join(["step 10 loss 2.5", message, *(f"step {step} loss 2.4" for step in steps), end])


def test_a_failure_that_was_caught_is_a_warning() -> None:
    assert verdict_of(log_with(f"WARNING {FULL}", (11, 12, 40))).status is Status.WARNING
    assert verdict_of(log_with(f"WARNING {FULL}", (11,), "Training completed")).status is Status.WARNING
    # Ranks are a step apart; a launcher's word counts more; so does a failure that is not followed by anything.
    assert verdict_of(log_with(FULL, (11,))).status is Status.CRITICAL
    assert verdict_of(
        log_with(FULL, (11, 12, 40), "srun: error: n1: task 0: Exited with exit code 1")
    ).status is (Status.CRITICAL)
    assert (
        verdict_of(log_with(f"WARNING {FULL}", (11, 12, 40)) + f"\nRuntimeError: {FULL}").status
        is Status.CRITICAL
    )


def test_steps_behind_a_traceback_prove_nothing() -> None:
    """Output that was buffered is written when the process ends."""
    text = traceback(*IN_BACKWARD) + "\n" + FULL
    assert verdict_of(log_with(text, (11, 12, 40))).status is Status.CRITICAL


def test_a_question_in_the_data_of_a_job_that_works_is_no_failure() -> None:
    text = log_with(f"sample: How do I fix '{FULL}'?", (11, 12, 40))
    assert read_messages("x.log", text) == ()


def test_a_slice_that_the_log_names_explains_its_size() -> None:
    message = modern("96.00 MiB", "9.50 GiB", "47.56 MiB", "8.71 GiB", "130.22 MiB", process="9.45 GiB")
    card = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)"
    assert verdict_of(f"{card}\n  MIG 1g.10gb Device 0\n{message}").cause_class == "capacity"
    assert verdict_of(f"{card}\n{message}").cause_class == "wrong-visible-capacity"
    assert verdict_of(f"{card}\n  MIG 3g.40gb Device 0\n{message}").cause_class == "wrong-visible-capacity"


KILLED = "failed (exitcode: -9) local_rank: 0 (pid: 140) of binary: /usr/bin/python3"


def test_sigkill_after_a_time_limit_is_not_put_down_to_memory() -> None:
    limit = "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-02-11T08:00:31 DUE TO TIME LIMIT ***\n"
    ended = verdict_of(limit + KILLED)
    assert (ended.status, ended.cause_class) == (Status.UNKNOWN, "unknown")
    assert "scheduler" in ended.title
    assert verdict_of(KILLED).cause_class == "host-ram"
    # A cancelled step follows any failure; the kernel's word counts more than the limit's.
    assert verdict_of(limit.replace(" DUE TO TIME LIMIT", "") + KILLED).cause_class == "host-ram"
    told = "Memory cgroup out of memory: Killed process 140 (python3) anon-rss:100kB\n"
    assert verdict_of(limit + told).cause_class == "host-ram"


def test_cublas_after_an_assertion_is_not_put_down_to_memory() -> None:
    blas = "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    fault = "Indexing.cu:1290: block: [4,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
    assert verdict_of(fault + blas).cause_class == "unknown"
    assert verdict_of(blas).cause_class == "capacity:cublas-workspace"


def test_ranks_on_one_gpu_are_peers_where_their_pools_add_up() -> None:
    def of(rank: int, allocated: float) -> str:
        text = legacy(
            "40.00 MiB", "24.00 GiB", f"{allocated:.2f} GiB", "20.00 MiB", f"{allocated + 0.1:.2f} GiB"
        )
        return f"[rank{rank}]: {text}"

    # 8 x (2.1 + 0.9) GiB make 24; two ranks with 3 GiB do not.
    assert verdict_of("\n".join(of(rank, 2.0) for rank in range(8))).cause_class == "other-process:peer-ranks"
    assert verdict_of("\n".join(of(rank, 3.0) for rank in range(2))).cause_class == "other-process"
    assert verdict_of(of(0, 2.0)).cause_class == "other-process"


@pytest.mark.parametrize(
    ("device", "tool"), [("CUDA", "nvidia-smi"), ("HIP", "rocm-smi"), ("NPU", "npu-smi"), ("XPU", "xpu-smi")]
)
def test_processes_are_looked_for_with_the_vendors_tool(device: str, tool: str) -> None:
    text = legacy("22.00 MiB", "60.97 GiB", "10.24 GiB", "19.52 MiB", "10.65 GiB", device=device)
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    (found,) = (
        each for each in explain_report(request, events_from_text("x", text)).findings if each.cause_class
    )
    assert (found.actions[0].command or "").startswith(tool)
