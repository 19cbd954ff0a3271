"""Rules about settings of torch and CUDA that cost speed, or turn a fault into a hang."""

from __future__ import annotations

from distdoctor.env.checks.nccl_risk import Risk, Rule, is_off
from distdoctor.env.checks.nccl_view import NcclView, nccl_number
from distdoctor.env.versions import at_least, below
from distdoctor.report.model import Confidence, Severity

# c10d::getCvarBool takes these as true, in any letter case (c10d/Utils.hpp).
_TRUE = ("1", "y", "yes", "t", "true")

# DCGM's software diagnostic refuses to run with these (nvvs/src/Software.cpp, checkForBadEnvVaribles).
_DCGM_SOURCE = "NVIDIA/DCGM, nvvs/src/Software.cpp"
_INJECTED = ("CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NSIGHT_CUDA_DEBUGGER")
_DEBUGGING = (
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION",
    "CUDA_PROFILE",
    "COMPUTE_PROFILE",
    "OPENCL_PROFILE",
)


def _launch_blocking(view: NcclView, value: str) -> Risk | None:
    if not value or nccl_number(value) == 0:
        return None
    hangs = at_least(view.nccl, "2.14") and below(view.nccl, "2.17")
    return Risk(
        severity=Severity.CRITICAL if hangs else Severity.WARNING,
        title="CUDA_LAUNCH_BLOCKING=1 makes every kernel wait",
        why=(
            "Nothing overlaps any more: computation and communication take turns."
            + (f" NCCL {view.nccl_text} can hang with it (fixed in 2.17)." if hangs else "")
        ),
        source="CUDA programming guide; hang: pytorch/pytorch pull request 97843",
    )


def _injected(view: NcclView, value: str) -> Risk | None:
    del view
    if not value:
        return None
    return Risk(
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        title="A profiler or debugger is loaded into every CUDA process",
        why="It slows the job down, and a library that does not fit stops it. Right while profiling, wrong when left over.",
        source=_DCGM_SOURCE,
    )


def _debugging(view: NcclView, value: str) -> Risk | None:
    del view
    if not value or is_off(value):
        return None
    return Risk(
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        title="A CUDA debugging switch is on",
        why="Core dumps of a GPU take minutes and gigabytes, and a process that waits on an exception looks like a hang.",
        source=_DCGM_SOURCE,
    )


def _distributed_debug(view: NcclView, value: str) -> Risk | None:
    del view
    if value.strip().upper() != "DETAIL":
        return None
    return Risk(
        severity=Severity.WARNING,
        title="TORCH_DISTRIBUTED_DEBUG=DETAIL checks each collective with another one",
        why="Every collective first compares its shape over all ranks through the store or Gloo: a large slowdown.",
        source="PyTorch documentation, torch.distributed: debugging",
        advice="Use it to find a mismatch, then remove it",
    )


def _blocking_wait(view: NcclView, value: str) -> Risk | None:
    del view
    if value.strip().lower() not in _TRUE:
        return None
    return Risk(
        severity=Severity.WARNING,
        title="TORCH_NCCL_BLOCKING_WAIT=1 makes the CPU wait for each collective",
        why="The host cannot run ahead of the GPU any more, so launches show up as gaps.",
        source="PyTorch documentation, torch.distributed: environment variables",
    )


def _async_errors(view: NcclView, value: str) -> Risk | None:
    del view
    if not value or nccl_number(value) not in (0, 2):
        return None
    off = nccl_number(value) == 0
    return Risk(
        severity=Severity.WARNING,
        title=f"TORCH_NCCL_ASYNC_ERROR_HANDLING={value.strip()[:4]}: a failed collective does not end the job",
        why=(
            "The watchdog only looks on: a lost peer is a hang without end, and the GPUs stay taken."
            if off
            else "Communicators are aborted but the process lives on and must notice by itself."
        ),
        source="torch, ProcessGroupNCCL.hpp (ErrorHandlingMode)",
        advice="Remove it, or use 3 (torch's default) or 1 (what torchrun sets)",
    )


def _no_caching(view: NcclView, value: str) -> Risk | None:
    del view
    if value.strip() == "1":
        return Risk(
            severity=Severity.WARNING,
            title="PYTORCH_NO_CUDA_MEMORY_CACHING=1 makes every tensor a cudaMalloc",
            why="Each allocation and each free goes to the driver and waits for the GPU: very slow.",
            source="PyTorch documentation, CUDA semantics: memory management",
        )
    return Risk(
        severity=Severity.INFO,
        confidence=Confidence.LOW,
        title="PYTORCH_NO_CUDA_MEMORY_CACHING is set, though not to 1",
        why="Some versions of torch look only whether the name is set; the caching allocator is then off all the same.",
        source="torch, c10/cuda/CUDACachingAllocator.cpp, older versions",
    )


def _max_connections(view: NcclView, value: str) -> Risk | None:
    number = nccl_number(value)
    if value and not 1 <= number <= 32:
        return Risk(
            severity=Severity.WARNING,
            title=f"CUDA_DEVICE_MAX_CONNECTIONS={value[:12]} is out of range",
            why="CUDA takes 1 to 32.",
            source="CUDA programming guide, environment variables",
        )
    if number != 1:
        return None
    blackwell = view.capability is not None and view.capability >= (10, 0)
    return Risk(
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        title="CUDA_DEVICE_MAX_CONNECTIONS=1 suits tensor parallelism, not FSDP",
        why=(
            "Megatron's tensor and sequence parallelism ask for it to order launches"
            + (" (before Blackwell; not on this GPU)" if blackwell else "")
            + "; FSDP's overlap of all-gather and computation suffers from it."
        ),
        source="NVIDIA/Megatron-LM, arguments.py",
        advice="Keep it for Megatron tensor parallelism; remove it for FSDP",
    )


def _tf32(view: NcclView, value: str) -> Risk | None:
    if not is_off(value) or view.capability is None or view.capability < (8, 0):
        return None
    return Risk(
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        title="NVIDIA_TF32_OVERRIDE=0 forbids TF32 whatever the program asks for",
        why="float32 matrix products run several times slower on Ampere and newer.",
        source="NVIDIA cuBLAS and cuDNN documentation",
    )


def _mps_share(view: NcclView, value: str) -> Risk | None:
    del view
    if not value or not 0 < nccl_number(value) < 100:
        return None
    return Risk(
        severity=Severity.WARNING,
        title=f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={value[:8]} caps the GPU",
        why="Under MPS, the process may use only this share of each GPU's multiprocessors.",
        source="NVIDIA MPS documentation",
    )


TORCH_RULES = (
    Rule(("CUDA_LAUNCH_BLOCKING",), _launch_blocking),
    Rule(_INJECTED, _injected),
    Rule(_DEBUGGING, _debugging),
    Rule(("TORCH_DISTRIBUTED_DEBUG",), _distributed_debug),
    Rule(("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"), _blocking_wait),
    Rule(("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"), _async_errors),
    Rule(("PYTORCH_NO_CUDA_MEMORY_CACHING",), _no_caching),
    Rule(("CUDA_DEVICE_MAX_CONNECTIONS",), _max_connections),
    Rule(("NVIDIA_TF32_OVERRIDE",), _tf32),
    Rule(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",), _mps_share),
)
