"""Every family of out-of-memory messages is read, whoever printed it and however it was wrapped."""

from __future__ import annotations

import json

import pytest

from distdoctor.oom.facts.events import Family, OomEvent, Phase
from distdoctor.oom.messages.read import read_messages
from distdoctor.oom.messages.sizes import parse_size
from distdoctor.oom.messages.sniff import sniff_oom
from distdoctor.units import GIB, MIB
from oom.oom_texts import (
    EVALUATES,
    FULL,
    IN_BACKWARD,
    IN_FOREACH,
    IN_MLP,
    MOVES_MODEL,
    SAVES,
    cuda_async,
    legacy,
    modern,
    mps,
    prefixed,
    torchrun_table,
    traceback,
)


def only(text: str, path: str = "job.log") -> OomEvent:
    events = read_messages(path, text)
    assert len(events) == 1, [event.sentence for event in events]
    return events[0]


def gib(number: float) -> int:
    return round(number * GIB)


def test_a_message_of_1_x_is_read() -> None:
    event = only(legacy("274.00 MiB", "23.70 GiB", "20.10 GiB", "25.69 MiB", "22.30 GiB", gpu=3))
    assert event.family is Family.CUDA
    assert event.gpu == 3
    assert event.requested_bytes == 274 * MIB
    assert event.total_bytes == gib(23.70)
    assert event.free_bytes == round(25.69 * MIB)
    assert event.allocated_bytes == gib(20.10)
    assert event.unallocated_bytes == gib(22.30) - gib(20.10)
    assert event.process_bytes is None


def test_cached_before_1_4_is_what_is_reserved_beyond_the_allocated() -> None:
    text = "RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.90 GiB total capacity; 12.00 GiB already allocated; 1.00 GiB free; 2.25 GiB cached)"
    assert only(text).unallocated_bytes == gib(2.25)


def test_a_limit_stands_between_free_and_reserved() -> None:
    event = only(legacy("30.00 MiB", "23.87 GiB", "4.51 GiB", "18.40 GiB", "4.74 GiB", allowed="4.77 GiB"))
    assert event.allowed_bytes == gib(4.77)
    assert event.free_bytes == gib(18.40)


@pytest.mark.parametrize("capacity", ["capacty", "capacity"])
def test_a_message_of_2_x_is_read_with_its_processes(capacity: str) -> None:
    text = modern(
        "138.00 MiB",
        "15.90 GiB",
        "8.44 MiB",
        "13.12 GiB",
        "410.41 MiB",
        process="14.32 GiB",
        others=((77, "577.00 MiB"), (78, "1.00 GiB")),
        private="64.00 MiB",
        allowed="15.00 GiB",
        capacity=capacity,
    )
    event = only(text)
    assert event.process_bytes == gib(14.32)
    assert [(each.pid, each.num_bytes) for each in event.others] == [(77, 577 * MIB), (78, GIB)]
    assert event.private_pool_bytes == 64 * MIB
    assert event.allowed_bytes == gib(15)
    assert event.unallocated_bytes == round(410.41 * MIB)


@pytest.mark.parametrize(
    ("device", "family"),
    [("HIP", Family.HIP), ("XPU", Family.XPU), ("NPU", Family.NPU), ("MUSA", Family.OTHER_DEVICE)],
)
def test_other_devices_speak_alike(device: str, family: Family) -> None:
    assert (
        only(modern("2.00 GiB", "63.98 GiB", "1.00 GiB", "60.00 GiB", "1.00 GiB", device=device)).family
        is family
    )
    assert (
        only(legacy("2.00 GiB", "63.98 GiB", "60.00 GiB", "1.00 GiB", "61.00 GiB", device=device, gpu=2)).gpu
        == 2
    )


def test_numbers_that_cannot_be_are_set_aside_with_the_reason() -> None:
    none = only(modern("2.00 GiB", "23.43 GiB", "1.20 GiB", "21.41 GiB", "206.09 MiB", process="0 bytes"))
    assert none.process_bytes is None
    assert "container" in none.bogus[0].why
    unset = only(
        modern("2.00 GiB", "23.43 GiB", "1.20 GiB", "21.41 GiB", "206.09 MiB", process="17179869184.00 GiB")
    )
    assert unset.process_bytes is None
    assert unset.bogus


def test_cuda_malloc_async_is_read() -> None:
    event = only(cuda_async("10.24 GiB", "114.00 MiB", "23.57 GiB", "16.12 MiB"))
    assert event.family is Family.CUDA_ASYNC
    assert (event.gpu, event.requested_bytes, event.total_bytes) == (0, 114 * MIB, gib(23.57))
    assert event.allowed_bytes is None
    assert event.bogus[0].field == "allowed_bytes"
    assert only(
        cuda_async("9.70 GiB", "1.00 GiB", "23.57 GiB", "13.12 GiB", "10.00 GiB")
    ).allowed_bytes == gib(10)


def test_mps_is_read() -> None:
    event = only(mps("9.57 GB", "17.35 GB", "27.20 GB", "292.50 MB"))
    assert event.family is Family.MPS
    assert (event.allocated_bytes, event.allowed_bytes) == (gib(9.57), gib(27.20))
    assert event.other_allocations_bytes == gib(17.35)


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("RuntimeError: CUDA error: out of memory", Family.DRIVER),
        ("torch.AcceleratorError: CUDA error: out of memory", Family.DRIVER),
        ("RuntimeError: CUDA driver error: out of memory", Family.DRIVER),
        ("RuntimeError: HIP error: out of memory", Family.DRIVER),
        ("cuda runtime error (2) : out of memory at /b/THCStorage.cu:58", Family.DRIVER),
        ("RuntimeError: Triton Error [CUDA]: out of memory", Family.DRIVER),
        ("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", Family.DRIVER),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            Family.BLAS,
        ),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Family.DNN),
        ("n1:31:77 [3] include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'", Family.NCCL),
        ("n1:31:77 [3] NCCL WARN Failed to CUDA calloc async 608 bytes", Family.NCCL),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)",
            Family.HOST_ALLOCATOR,
        ),
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 29.8 GiB for an array with shape (4000000000,) and data type float64",
            Family.HOST_ALLOCATOR,
        ),
        ("OSError: [Errno 12] Cannot allocate memory", Family.HOST_ALLOCATOR),
        ("slurmstepd: error: Detected 2 oom_kill events in StepId=9.0.", Family.HOST_KILL),
        ("      Reason:       OOMKilled", Family.HOST_KILL),
        (
            "[ 12.5] Out of memory: Killed process 417 (python3) total-vm:1kB, anon-rss:2048kB",
            Family.HOST_KILL,
        ),
        ("RuntimeError: DataLoader worker (pid 8) is killed by signal: Killed. ", Family.HOST_KILL),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
            Family.HOST_KILL,
        ),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error.", Family.SHARED_MEMORY),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.", Family.XLA),
    ],
)
def test_messages_without_pytorchs_sentence_are_read(text: str, family: Family) -> None:
    assert only(text).family is family


@pytest.mark.parametrize(
    "text",
    [
        "hint: to avoid CUDA out of memory errors, lower the micro-batch",
        "exitcode  : 1 (pid: 7)",
        "n1:31:77 [3] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 264192, Hardware limit: 232448",
        "INFO step 3 loss 2.1",
        "process finished with exit code 0",
    ],
)
def test_other_lines_are_no_event(text: str) -> None:
    assert read_messages("job.log", text) == ()
    assert sniff_oom("job.log", text.encode()) == 0.0


@pytest.mark.parametrize(
    ("prefix", "rank", "local_rank", "pid"),
    [
        ("[rank5]: ", 5, None, None),
        ("[default3]:", None, 3, None),
        ("[default3]:[rank19]: ", 19, 3, None),
        ("12: ", 12, None, None),
        ("[1,6]<stderr>:", 6, None, None),
        ("(WorkerDict pid=4711, ip=10.0.0.7) ", None, None, 4711),
        ("(Worker_TP3 pid=88) ERROR 10-22 04:05:06 [multiproc.py:71] ", None, 3, 88),
        ("2026-06-12T04:11:08.123456Z [rank2]: ", 2, None, None),
        ("[pod/train-worker-1/main] [rank9]: ", 9, None, None),
    ],
)
def test_prefixes_of_launchers_tell_whose_a_message_is(
    prefix: str, rank: int | None, local_rank: int | None, pid: int | None
) -> None:
    event = only(prefixed(prefix, traceback(*IN_MLP) + FULL))
    assert (event.rank, event.local_rank, event.pid) == (rank, local_rank, pid)
    assert event.allocated_bytes == gib(76.40)
    assert event.frames[-1].function == "silu"


@pytest.mark.parametrize("width", [37, 60, 80, 100, 133])
def test_a_message_wrapped_anywhere_is_read(width: int) -> None:
    wrapped = "\n".join(FULL[start : start + width] for start in range(0, len(FULL), width))
    event = only(wrapped)
    assert (event.requested_bytes, event.total_bytes) == (512 * MIB, gib(79.15))
    assert (event.allocated_bytes, event.process_bytes) == (gib(76.40), gib(78.90))


def test_a_wrapped_message_of_one_rank_is_read_among_lines_of_others() -> None:
    parts = FULL.split(". ")
    lines = []
    for part in parts:
        lines += [f"[rank1]: {part}.", '[rank2]:   File "/job/train.py", line 3, in main']
    event = only("\n".join(lines))
    assert event.rank == 1
    assert event.process_bytes == gib(78.90)


def test_only_the_first_line_of_a_pasted_message_kept_its_prefix() -> None:
    first, second = FULL[:90], FULL[90:]
    assert only(f"[rank4]: {first}\n{second}\n").process_bytes == gib(78.90)


def test_torchruns_error_file_is_read_with_its_traceback() -> None:
    whole = {
        "message": {
            "message": FULL.replace("torch.", ""),
            "extraInfo": {"py_callstack": traceback(*IN_MLP) + FULL, "timestamp": "1781237468"},
        }
    }
    event = only(json.dumps(whole), "logs/none_x/attempt_0/5/error.json")
    assert event.total_bytes == gib(79.15)
    assert any(frame.function == "forward" for frame in event.frames)


def test_a_message_printed_by_several_hands_is_one_event() -> None:
    text = prefixed("[rank3]: ", traceback(*IN_MLP) + FULL) * 2 + FULL + "\n"
    event = only(text)
    assert event.rank == 3
    assert event.times_seen == 3


def test_ranks_with_equal_numbers_are_events_of_their_own() -> None:
    text = "".join(prefixed(f"[rank{rank}]: ", FULL) for rank in range(8))
    assert [event.rank for event in read_messages("job.log", text)] == list(range(8))


def test_torchruns_table_names_the_rank_that_was_killed() -> None:
    event = only(torchrun_table(11, 3, 4444))
    assert (event.rank, event.local_rank, event.pid, event.host) == (11, 3, 4444, "node-c")
    assert event.exit_code == -9


def test_a_kill_by_the_launcher_itself_is_no_event() -> None:
    text = (
        "W0612 torch/elastic/api.py:868] Unable to shutdown process 77 via 15, forcefully exiting via 9\n"
        "E0612 torch/elastic/api.py:826] failed (exitcode: -9) local_rank: 1 (pid: 77) of binary: /opt/env/bin/python\n"
    )
    assert read_messages("job.log", text) == ()


@pytest.mark.parametrize(
    ("frames", "before", "phase"),
    [
        (MOVES_MODEL, "", Phase.INITIALISATION),
        (IN_MLP, "", Phase.FORWARD),
        (IN_MLP, "  0%|          | 0/500 [00:00<?, ?it/s]\n", Phase.FIRST_FORWARD),
        (IN_BACKWARD, "  0%|          | 0/500 [00:00<?, ?it/s]\n", Phase.FIRST_BACKWARD),
        (IN_FOREACH, "  0%|          | 0/500 [00:00<?, ?it/s]\n", Phase.FIRST_OPTIMIZER_STEP),
        (IN_FOREACH, "", Phase.OPTIMIZER_STEP),
        (IN_MLP, " iteration        1/     500 | lm loss: 1.1E+01 |\n", Phase.SECOND_STEP),
        (IN_MLP, "step: 40 loss: 2.1\nstep: 41 loss: 2.0\n", Phase.LATER_GROWTH),
        (EVALUATES, "{'loss': 1.9, 'epoch': 0.1}\n", Phase.EVALUATION),
        (SAVES, "", Phase.SAVING),
    ],
)
def test_the_phase_follows_from_traceback_and_steps(
    frames: tuple[tuple[str, str, str], ...], before: str, phase: Phase
) -> None:
    assert only(before + traceback(*frames) + FULL).phase is phase


def test_steps_of_loading_are_no_training_steps() -> None:
    before = "Loading checkpoint shards: 100%|██████████| 3/3 [00:05<00:00,  1.7s/it]\nTotal optimization steps = 500\n"
    assert only(before + traceback(*IN_MLP) + FULL).steps_before is None


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [
        ("1.96", "GiB", gib(1.96)),
        ("0", "bytes", 0),
        ("1,96", "GiB", gib(1.96)),
        ("1,002.00", "MiB", 1002 * MIB),
        ("1.00", "GB", GIB),
    ],
)
def test_sizes(number: str, unit: str, expected: int) -> None:
    assert parse_size(number, unit) == expected


def test_a_message_of_pytorch_is_surer_than_a_kernel_log() -> None:
    assert sniff_oom("a.log", FULL.encode()) >= 0.9
    kernel = "[ 12.5] Out of memory: Killed process 417 (python3) total-vm:1kB, anon-rss:2048kB\n"
    assert 0 < sniff_oom("dmesg.txt", kernel.encode()) < 0.5
    assert 0 < sniff_oom("job.log", torchrun_table(0, 0, 7).encode()) < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "n1:31:77 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n" * 3,
        "n1:31:77 [3] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n",
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728\n  8  2  float  sum  -1  33.9  0.00  0.00  0\n",
    ],
)
def test_logs_of_nccl_are_left_to_their_reader(text: str) -> None:
    assert sniff_oom("nccl.log", text.encode()) == 0.0


@pytest.mark.once
def test_thousands_of_ranks_are_read_each_once() -> None:
    one = prefixed("[rank%d]: ", traceback(*IN_MLP) + FULL)
    text = "".join(one.replace("%d", str(rank)) for rank in range(2000))
    assert [event.rank for event in read_messages("a.log", text)] == list(range(2000))


@pytest.mark.once
def test_a_text_that_is_only_garbage_ends_soon() -> None:
    text = ("CUDA out of memory. Tried to allocate " * 2000 + "\n") * 20
    assert read_messages("a.log", text)
