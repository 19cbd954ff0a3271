"""What names in a Kineto trace mean: kinds of device work, collectives, element types, launches."""

from __future__ import annotations

import re
from enum import IntEnum


class Work(IntEnum):
    """What one activity of the device is."""

    COMPUTE = 0
    NCCL = 1
    """A collective of NCCL or RCCL: it ends on all ranks at once."""
    OTHER_COMM = 2
    """Communication by other means (NVSHMEM, symmetric memory, custom all-reduces): it waits too, but cannot be
    matched across ranks."""
    H2D = 3
    OTHER_COPY = 4
    """Copies in other directions, and memory set to a value."""


class Cat(IntEnum):
    """Categories of events that are read; others are passed over."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    RUNTIME = 3
    CPU = 4
    SPAN = 5


# As Kineto writes them today, and as torch 1.8 to 1.10 did (capitalised). Of `python_function` only "Python GC" counts.
CATEGORIES = {
    "kernel": Cat.KERNEL,
    "Kernel": Cat.KERNEL,
    "gpu_memcpy": Cat.COPY,
    "Memcpy": Cat.COPY,
    "gpu_memset": Cat.MEMSET,
    "Memset": Cat.MEMSET,
    "cuda_runtime": Cat.RUNTIME,
    "cuda_driver": Cat.RUNTIME,
    "Runtime": Cat.RUNTIME,
    "xpu_runtime": Cat.RUNTIME,
    "user_annotation": Cat.CPU,
    "cpu_op": Cat.CPU,
    "Operator": Cat.CPU,
    "python_function": Cat.CPU,
    "Trace": Cat.SPAN,
}

STEP_MARK = "ProfilerStep#"
# The iterator of a DataLoader: `enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__`.
LOADER_MARK = "enumerate(DataLoader"
GLOO_MARK = "gloo:"
# What torch calls its own; other names that begin so are regions of a user's `record_function`.
GLOO_SPANS = frozenset(
    GLOO_MARK + name
    for name in (
        "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "gather", "recv", "recvAnySource", "reduce",
        "reduce_scatter", "scatter", "send", "sparse_all_reduce",
    )
)  # fmt: skip
GC_MARK = "Python GC"
CPU_MARKS = (STEP_MARK, LOADER_MARK, GLOO_MARK, GC_MARK)

# An operation of torch on the CPU that is no call of a collective, by its category and the beginning of its name.
CPU_OPS = ("cpu_op", "Operator")
COMMUNICATION_CALLS = ("c10d::", "nccl:", GLOO_MARK, "record_param_comms", "_c10d_functional", "aten::empty")

# CPU-side annotations of point-to-point calls: then `SendRecv` kernels without metadata may be these.
P2P_MARKS = ("nccl:send", "nccl:recv", "nccl:coalesced")

_NCCL = re.compile(r"(?:void )?(?:nccl|rccl)", re.IGNORECASE)

# Kernels that spin until other ranks arrive: NVSHMEM and rocSHMEM, torch's symmetric memory, vLLM's and SGLang's
# custom all-reduce, TensorRT-LLM's fusions, Transformer Engine's user buffers, DeepEP, MSCCL++.
_OTHER_COMM = re.compile(
    r"nvshmem|rocshmem|cross_device_reduce|multimem_(?:all|one)|(?:one|two)_shot_all_?reduce|wait_signal_kernel"
    r"|put_signal_kernel|userbuffers|deep_ep::|mscclpp|allreduce_fusion|all_?reduce_kernel|quick_?reduce",
    re.IGNORECASE,
)
_TO_DEVICE = re.compile(r"htod|h2d|m2d|host ?to ?device", re.IGNORECASE)

_LAUNCH = re.compile(r"launch|memcpy|memset", re.IGNORECASE)


def work_of_kernel(name: str) -> Work:
    """What a kernel does, by its name."""
    if _NCCL.match(name):
        return Work.NCCL
    return Work.OTHER_COMM if _OTHER_COMM.search(name) else Work.COMPUTE


def work_of_copy(name: str) -> Work:
    """Whether a copy goes from host to device."""
    return Work.H2D if _TO_DEVICE.search(name) else Work.OTHER_COPY


def is_launch(name: str) -> bool:
    """Whether a call of the runtime or driver puts work on the device."""
    return _LAUNCH.search(name) is not None


# The first part that a name contains decides, so longer ones come first.
_OPS = (
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("allreduce", "all_reduce"),
    ("alltoall", "all_to_all"),
    ("sendrecv", "send_recv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("send", "send"),
    ("recv", "recv"),
)
# Longer names of collectives are none that torch writes.
_MAX_OP_CHARACTERS = 40


def op_of(name: str) -> str:
    """The collective in one spelling: of "_allgather_base", "gloo:all_gather", "ncclDevKernel_AllGather_RING_LL(…)"."""
    plain = re.sub(r"[^a-z]", "", name.partition("(")[0].lower())
    for part, op in _OPS:
        if part in plain:
            return op
    return plain[:_MAX_OP_CHARACTERS] or "unknown"


# Names of c10::ScalarType, as the profiler writes them.
_ELEMENT_BYTES = {
    "bool": 1,
    "byte": 1,
    "char": 1,
    "short": 2,
    "half": 2,
    "bfloat16": 2,
    "int": 4,
    "float": 4,
    "long": 8,
    "double": 8,
    "complexfloat": 8,
    "complexdouble": 16,
}


def element_bytes(dtype: str) -> int | None:
    """Bytes of one element; None for a type that is not known."""
    lower = dtype.lower()
    return 1 if lower.startswith("float8") else _ELEMENT_BYTES.get(lower)
