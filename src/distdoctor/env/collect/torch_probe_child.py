"""Import torch step by step and write each step that was reached, as one JSON object a line, to a pipe.

    python torch_probe_child.py FD TIMEOUT_S

Runs in the job's interpreter, so it needs nothing but Python 3.8 and imports nothing of distdoctor. Whatever
is private or unstable in torch is used here alone, each with its fallback. It makes no CUDA context: nothing
here calls cuInit, and torch.cuda.is_available() would be answered through NVML.
"""

# pathlib would be one more import before torch, and its own modules may be what is broken.
# ruff: noqa: PTH119, PTH120, PTH123
from __future__ import annotations

import sys

if __name__ == "__main__" and "__file__" in globals() and sys.path:
    # Run by its path: our folder stands where `python -c` has the working folder, and holds a torch.py.
    import os.path

    if os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
        sys.path[0] = ""

import faulthandler
import json
import os
import time
from typing import Any, Callable  # noqa: UP035 - collections.abc's cannot be subscripted in 3.8

# What can be mapped and matters to a distributed job; a process maps a few hundred files.
LIBRARIES = (
    "libnccl",
    "librccl",
    "libcuda.so",
    "libcudart",
    "libtorch_cuda",
    "libtorch_hip",
    "libtorch_cpu",
    "libamdhip64",
    "libnvidia-ml",
    "libcudnn.so",
    "libcublas.so",
    "libnvJitLink",
    "libnvshmem_host",
    "libibverbs",
    "libmpi",
    "libgomp",
    "libiomp5",
    "libstdc++",
    "libfabric",
)
MAX_LIBRARIES = 64
MAX_TEXT = 4000


class Steps:
    """The pipe to the parent. A parent that is gone ends us."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, step: str, **values: Any) -> None:
        """Write one step. Any: what JSON can hold."""
        data = (json.dumps(dict(values, step=step)) + "\n").encode("utf-8", "replace")
        while data:
            data = data[os.write(self.descriptor, data) :]


def limit_ourselves(timeout_s: float) -> None:
    """No core file in the patient's folders, and an end with the parent's, or else soon after the time limit."""
    try:
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; torch imports ctypes anyway
    except (ImportError, OSError, AttributeError):
        pass  # an interpreter without libffi: the timer below is left
    try:
        import resource

        # 1 and not 0: zero still feeds a core_pattern that is a pipe (core(5)).
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    except (ImportError, OSError, ValueError):
        pass
    faulthandler.enable()
    faulthandler.dump_traceback_later(timeout_s + 10, exit=True)


def describe_error(error: BaseException) -> dict[str, Any]:
    """Type, text and innermost place of an exception; the place inside the import machinery says nothing."""
    where = None
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith("<"):
            where = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return {
        "type": type(error).__name__,
        "text": str(error)[:MAX_TEXT],
        "where": where,
        "module": getattr(error, "name", None),
        "path": getattr(error, "path", None),
    }


def text_or_none(value: object) -> str | None:
    """`value` as text of bounded length."""
    return None if value is None else str(value)[:200]


def import_torch(steps: Steps) -> Any:
    """The module. Any: nothing is known of it yet, not even that it is torch."""
    began = time.monotonic()
    import torch

    seconds = round(time.monotonic() - began, 3)
    version = getattr(torch, "version", None)
    number = getattr(torch, "__version__", None)
    file = getattr(torch, "__file__", None)
    if number is None:
        # A folder named torch without __init__.py is a namespace package: the import succeeds and gives nothing.
        folder = file or next(iter(getattr(torch, "__path__", ["?"])))
        raise AttributeError(f"module 'torch' has no attribute '__version__' (imported from {folder})")
    steps.send(
        "import torch",
        seconds=seconds,
        torch=text_or_none(number),
        cuda=text_or_none(getattr(version, "cuda", None)),
        hip=text_or_none(getattr(version, "hip", None)),
        file=text_or_none(file),
    )
    return torch


def ask(function: Callable[[], object]) -> bool | None:
    """The answer of a torch function, or None when this build lacks it."""
    try:
        return bool(function())
    except Exception:
        return None


def import_distributed(steps: Steps) -> None:
    """The step in which a torch without a working libtorch_python fails."""
    import torch.distributed as dist

    # is_nccl_available and friends exist since 1.0; without USE_DISTRIBUTED only is_available() does.
    steps.send(
        "torch.distributed",
        nccl=ask(lambda: dist.is_available() and dist.is_nccl_available()),
        gloo=ask(lambda: dist.is_available() and dist.is_gloo_available()),
        mpi=ask(lambda: dist.is_available() and dist.is_mpi_available()),
    )


def nccl_version(torch: Any) -> str | None:
    """torch.cuda.nccl.version(): an int (2708) until 1.9, a tuple (2, 14, 3) since; a suffix may follow.

    It reads torch._C._nccl_version, which builds without NCCL lack (seen 1.0 to 2.14).
    """
    if not hasattr(getattr(torch, "_C", None), "_nccl_version"):
        return None
    from torch.cuda import nccl

    version = nccl.version()
    if isinstance(version, int):
        return f"{version // 1000}.{version // 100 % 10}.{version % 100}"
    return ".".join(str(part) for part in version[:3])


def arch_list(torch: Any) -> list[str]:
    """Architectures that this build has code for.

    torch._C._cuda_getArchFlags() (seen 1.4 to 2.14, also on ROCm): torch.cuda.get_arch_list() gave an empty list
    without a usable GPU until 2.6.
    """
    flags = getattr(getattr(torch, "_C", None), "_cuda_getArchFlags", None)
    if flags is not None:
        return (flags() or "").split()
    return list(torch.cuda.get_arch_list())


def mapped_libraries() -> list[str]:
    """Paths of the libraries above that the import mapped."""
    found: list[str] = []
    with open("/proc/self/maps", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").split(None, 5)[5:]
            if path and path[0] not in found and os.path.basename(path[0]).startswith(LIBRARIES):
                found.append(path[0])
    return found[:MAX_LIBRARIES]


def optional(steps: Steps, step: str, name: str, function: Callable[[], object]) -> None:
    """A step that may fail without anything being wrong with the import itself."""
    try:
        steps.send(step, **{name: function()})
    except Exception as error:
        steps.send(step, problem=describe_error(error))


def main() -> None:
    """All steps, in order; the last one says that the child came to its end."""
    steps = Steps(int(sys.argv[1]))
    limit_ourselves(float(sys.argv[2]))
    steps.send("start", python=".".join(map(str, sys.version_info[:3])), executable=sys.executable)
    try:
        torch = import_torch(steps)
        import_distributed(steps)
    except BaseException as error:  # SystemExit too: a module that calls sys.exit() ends every job
        steps.send("error", **describe_error(error))
        raise
    optional(steps, "nccl", "version", lambda: nccl_version(torch))
    optional(steps, "arch list", "archs", lambda: arch_list(torch))
    optional(steps, "mapped libraries", "paths", mapped_libraries)
    steps.send("done")
    # Not through the interpreter's shutdown: destructors of CUDA libraries are no part of the question.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
