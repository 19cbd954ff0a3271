"""Refusals that are not of PyTorch's pool on a GPU: impossible sizes, the host, libraries and drivers, other allocators."""

from __future__ import annotations

import re

from distdoctor.oom.explain.causes.frame_words import words
from distdoctor.oom.explain.causes.kinds import Cause, Verdict
from distdoctor.oom.explain.numbers import Account
from distdoctor.oom.facts.events import Family, Hints, OomEvent, Phase
from distdoctor.report.model import Confidence

_PINNED = re.compile(
    r"pin_memory|[Hh]ostAlloc|[Hh]ostRegister|MallocHost|pinned|CachingHostAllocator|page-?lock",
    re.IGNORECASE,
)

_NOT_PINNED = re.compile(r"pin_memory\s*[=:]\s*False|pin_memory\W{1,4}false|dataloader_pin_memory")

_OBJECTS = re.compile(
    r"^_?(?:all_gather_object|gather_object|broadcast_object_list|scatter_object_list|_object_to_tensor|_tensor_to_object|recv_object|recv_object_list|recv_obj|broadcast_object)$"
)

_CONTEXT = re.compile(
    r"^(?:set_device|_lazy_init|_cuda_init|manual_seed\w*|init|current_device|synchronize|current_stream|barrier|monitored_barrier|init_process_group"
    r"|mem_get_info|get_device_properties|_verify_param_shape_across_processes|_init_group_with_backend|init_device|init_distributed|_get_device_capability)$"
)

_CONTEXT_CODE = re.compile(r"torch\.zeros\(1\)|set_device\(|init_process_group\(|\.barrier\(|_cuda_init\(\)")


def not_a_size(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """A size that no tensor can have."""
    del account, hints
    if event.is_absurd_size:
        return (
            Cause.CORRUPT_SIZE,
            Confidence.HIGH,
            "no machine holds the size that was asked for: the size itself is corrupt",
        )
    over = (
        event.requested_bytes is not None
        and event.total_bytes is not None
        and event.requested_bytes > 4 * event.total_bytes
    )
    if over and any(_OBJECTS.match(frame.function) for frame in event.frames):
        return (
            Cause.CORRUPT_SIZE,
            Confidence.MEDIUM,
            "an object's size came over the network and is several times the card: a size message was lost or mixed up",
        )
    return None


def on_host(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """Memory of the host, page-locked memory among it."""
    del account
    if event.family is Family.HOST_KILL:
        if event.is_certain_kill:
            return (
                Cause.HOST_RAM,
                Confidence.HIGH,
                "the kernel or the scheduler says that memory of the host was the reason",
            )
        if hints.ended_by:
            return (
                Cause.UNKNOWN,
                Confidence.LOW,
                f"the scheduler ended the job ({hints.ended_by}), and SIGKILL follows that: no sign of memory",
            )
        if event.ended_by and event.is_end_sure:
            return (
                Cause.UNKNOWN,
                Confidence.LOW,
                f"the job was told to end ({event.ended_by}), and SIGKILL follows that: no sign of memory",
            )
        if event.ended_by:
            return (
                Cause.HOST_RAM,
                Confidence.LOW,
                f"ended by SIGKILL; {event.ended_by}, which follows a failure as well as it may explain the kill",
            )
        return (
            Cause.HOST_RAM,
            Confidence.MEDIUM,
            "a process was ended by SIGKILL without a word of its own: memory of the host is the usual reason",
        )
    if event.family is Family.HOST_ALLOCATOR:
        return Cause.HOST_RAM, Confidence.HIGH, "an allocation in the host's memory was refused"
    if event.family is Family.SHARED_MEMORY:
        return Cause.HOST_SHM, Confidence.HIGH, "the shared memory of the host or container ran full"
    if _is_pinned(event):
        sure = (
            Confidence.HIGH
            if any(_PINNED.search(words(frame)) for frame in event.frames)
            else Confidence.MEDIUM
        )
        return (
            Cause.HOST_PINNED,
            sure,
            "the call that failed page-locks memory of the host; CUDA reports it as out of memory",
        )
    return None


def _is_pinned(event: OomEvent) -> bool:
    if event.family is not Family.DRIVER:
        return False
    innermost = event.frames[-6:]
    if any(_PINNED.search(words(frame)) and not _NOT_PINNED.search(frame.code) for frame in innermost):
        return True
    if any("HostAllocator" in frame or "pin_memory" in frame for frame in event.native_frames):
        return True
    return not innermost and bool(_PINNED.search(event.nearby)) and not _NOT_PINNED.search(event.nearby)


def of_a_library(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """NCCL, cuBLAS, cuDNN, or the driver itself."""
    del account
    if event.family is Family.NCCL:
        return (
            Cause.NCCL,
            Confidence.HIGH,
            "NCCL asked the driver for its buffers and there was no memory left",
        )
    if event.family is Family.BLAS:
        if "NOT_INITIALIZED" in event.sentence and hints.has_device_fault:
            why = "the log shows a failed assertion or an illegal access on the GPU, which breaks what is called after it"
            return Cause.UNKNOWN, Confidence.LOW, why
        if "NOT_INITIALIZED" in event.sentence:
            why = "cuBLAS could not make its handle; a full GPU is the usual reason, a broken context another"
            return Cause.WORKSPACE, Confidence.LOW, why
        return (
            Cause.WORKSPACE,
            Confidence.HIGH,
            "cuBLAS asked the driver for its handle or workspace and there was no memory left",
        )
    if event.family is Family.DNN:
        return Cause.CAPACITY, Confidence.MEDIUM, "cuDNN found no memory for its workspace"
    if event.family is Family.DRIVER:
        return _driver(event)
    return None


def _driver(event: OomEvent) -> Verdict | None:
    """The driver refused outside PyTorch's pool: before this process holds anything, the memory is somebody else's."""
    at_start = event.phase in (Phase.INITIALISATION, Phase.UNKNOWN)
    if at_start and not (event.steps_before or 0):
        for frame in event.frames[-8:]:
            if _CONTEXT.match(frame.function) or _CONTEXT_CODE.search(frame.code):
                return (
                    Cause.OTHER_PROCESS,
                    Confidence.MEDIUM,
                    f"refused in `{frame.function}`, before this process holds anything on the GPU: others fill it, or every rank uses GPU 0",
                )
    if at_start and not (event.steps_before or 0):
        return (
            Cause.OTHER_PROCESS,
            Confidence.LOW,
            "refused by the driver outside PyTorch's pool, with no step seen before; the message holds no sizes",
            Cause.CAPACITY,
        )
    return Cause.CAPACITY, Confidence.LOW, "refused by the driver; the message holds no sizes"
