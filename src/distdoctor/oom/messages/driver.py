"""Memory refused below PyTorch: the CUDA or HIP runtime and driver, cuBLAS, cuDNN, NCCL. These messages hold no sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.oom.facts.events import Family
from distdoctor.oom.messages.draft import Draft
from distdoctor.oom.messages.lines import LogLine
from distdoctor.oom.messages.mentions import is_advice, is_asked, is_comment
from distdoctor.oom.messages.sizes import whole_bytes

_DRIVER = re.compile(
    r"\b(?:CUDA|HIP|Hip|XPU|MUSA) (?:driver |runtime )?[Ee]rror:? (?:\([^)]{0,200}\): |\d+: )?out of memory"
    r"|cuda runtime error \(2\) ?: out of memory|\bcudaErrorMemoryAllocation\b|\bCUDA_ERROR_OUT_OF_MEMORY\b"
    r"|\bhipErrorOutOfMemory\b|Triton Error \[(?:CUDA|HIP)\]: out of memory"
    r"|\b(?:UR_RESULT|PI)_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)\b|CUDA failure 2: out of memory"
    r"|cu(?:da)?(?:HostAlloc|HostRegister|MemHostAlloc|MemHostRegister|MallocHost)\b.{0,80}(?:out of memory|fail)"
    r"|\bCuda Runtime \(out of memory\)|Requested amount of GPU memory \(\d+ bytes\) could not be allocated"
    r"|(?:NCCL|ncclUnhandledCudaError)?.{0,20}\bout of memory CUDA (?:driver|runtime)"
)
# Its text may only point to documentation; then the sentence stands before.
_DOCUMENTATION = re.compile(r"Search for [`']?cuda")

_BLAS = re.compile(
    r"\b(?:CUBLAS_STATUS_ALLOC_FAILED|HIPBLAS_STATUS_ALLOC_FAILED|rocblas_status_memory_error|CUSOLVER_STATUS_ALLOC_FAILED"
    r"|CUSPARSE_STATUS_INSUFFICIENT_RESOURCES|CUSPARSE_STATUS_ALLOC_FAILED)\b"
    r"|CUBLAS_STATUS_NOT_INITIALIZED when calling `?cublasCreate"
)
_DNN = re.compile(
    r"\b(?:CUDNN_STATUS_ALLOC_FAILED|miopenStatusAllocFailed)\b|Unable to find a valid cuDNN algorithm to run convolution"
)

_NCCL = re.compile(
    r"(?:NCCL|RCCL|MCCL) WARN .{0,120}?(?:Cuda|HIP|Hip|CUDA) failure (?:\d+ )?'out of memory'"
    r"|Failed to (?:CUDA|HIP|Cuda) (?:host )?(?:calloc|malloc|alloc)\w*(?: async)? (?P<size>\d+) bytes"
    r"|(?:Cuda|HIP|CUDA) failure (?:\d+ )?'out of memory'"
    r"|HCCL\b.{0,160}(?:out of memory|OOM|alloc\w* .{0,30}fail)"
)
_NCCL_HEAD = re.compile(
    r"(?<![\w.-])(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,10}):\d{1,10} \[(?P<gpu>\d{1,4})\]|^\s*\[(?P<only>\d{1,4})\] "
)


def read_driver(lines: Sequence[LogLine], at: int) -> Draft | None:
    """The runtime or driver said out of memory; whose memory, frames and neighbours must tell."""
    text = lines[at].text
    match = _DRIVER.search(text)
    if match is None or _NCCL.search(text) or _BLAS.search(text):
        return None
    before = text[: match.start()]
    if is_comment(before) or is_advice(before) or is_asked(text[match.end() :]):
        return None
    if _DOCUMENTATION.search(text) and "out of memory" not in text:
        return None
    return Draft(family=Family.DRIVER, sentence=text[match.start() :])


def read_library(lines: Sequence[LogLine], at: int) -> Draft | None:
    """cuBLAS could not make its handle or workspace, or cuDNN found no algorithm that fits."""
    text = lines[at].text
    if match := _BLAS.search(text):
        return Draft(family=Family.BLAS, sentence=text[match.start() :])
    if match := _DNN.search(text):
        return Draft(family=Family.DNN, sentence=text[match.start() :])
    return None


def read_nccl(lines: Sequence[LogLine], at: int) -> Draft | None:
    """NCCL could not allocate its buffers on the GPU."""
    text = lines[at].text
    match = _NCCL.search(text)
    if match is None:
        return None
    draft = Draft(family=Family.NCCL, sentence=text[match.start() :])
    if match["size"]:
        draft.requested_bytes = whole_bytes(match["size"])
    if head := _NCCL_HEAD.search(text):
        draft.gpu = int(head["gpu"] or head["only"])
        draft.host = head["host"]
        draft.pid = int(head["pid"]) if head["pid"] else None
    return draft
