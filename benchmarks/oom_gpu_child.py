"""One run with real tensors in a process of its own: `oom_gpu_child.py QUESTION`, JSON in and out.

No tracker watches: on a GPU the judge is CUDA's allocator, on the CPU torch's own profiler of allocations.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import torch.nn.functional as functions
from oom_gpu_messages import Measured, PhaseBytes, Question
from oom_gpu_rows import Group

from distdoctor.oom.job import Job, resolve
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.simulation.child.fake_world import fake_world
from distdoctor.oom.simulation.child.real_allocator import allocator_peaks
from distdoctor.oom.simulation.child.self_check import simulated_peak
from distdoctor.oom.training.base import Kernels, NoObserver, World
from distdoctor.oom.training.build import build_program
from distdoctor.oom.training.device_mesh import build_device_mesh

NUM_STEPS = 2
# From the result of attention back to the node of its kernel: a transposition, a cut of padding.
_MAX_HOPS = 4


def main(argv: list[str]) -> int:
    """Answer on the last line of stdout; 0 also where the run failed, for that is an answer."""
    warnings.filterwarnings("ignore")
    question = msgspec.json.decode(argv[0], type=Question)
    try:
        answer = measure(question)
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        answer = Measured(torch=str(torch.__version__), error=f"{type(error).__name__}: {first}"[:400])
    print(msgspec.json.encode(answer).decode(), flush=True)
    return 0


def measure(question: Question) -> Measured:
    """Build and step the program. Raises whatever torch raises."""
    began = time.monotonic()
    job = resolve(question.settings)
    device = torch.device(question.device)
    measured = on_gpu(job, question.group, device) if device.type == "cuda" else on_cpu(job, question.group)
    return msgspec.structs.replace(
        measured, torch=str(torch.__version__), seconds=round(time.monotonic() - began, 2)
    )


def on_cpu(job: Job, group: Group) -> Measured:
    """By torch's profiler; with the simulation of the same kernels beside it."""
    torch.set_num_threads(1)
    attention: list[str] = []

    def run() -> None:
        with _world(job, group, torch.device("cpu")) as world:
            _train(world, NoObserver())

    with _attention_told(attention):
        found = allocator_peaks(run)
    return Measured(
        device="CPU",
        allocated=found.num_bytes if found is not None else None,
        inside_kernels=found.num_bytes - found.outside_kernels_bytes if found is not None else None,
        attention=tuple(attention),
        norm=_norm(torch.device("cpu")),
        simulated_native=simulated_peak(job),
        error="" if found is not None else "this torch's profiler does not tell allocations",
    )


def on_gpu(job: Job, group: Group, device: torch.device) -> Measured:
    """By CUDA's allocator, phase by phase."""
    torch.cuda.set_device(device)
    torch.cuda.init()
    outside_before = _outside(device)
    peaks = PhasePeaks(device)
    attention: list[str] = []
    with _attention_told(attention), _world(job, group, device) as world:
        _train(world, peaks)
        outside_after = _outside(device)
    stats = torch.cuda.memory_stats(device)
    return Measured(
        device=torch.cuda.get_device_name(device),
        allocated=max(each.allocated for each in peaks.found),
        reserved=max(each.reserved for each in peaks.found),
        requested=peaks.requested or None,
        phases=tuple(peaks.found),
        workspaces=_workspaces(device),
        outside_before=outside_before,
        outside_after=outside_after,
        total=torch.cuda.mem_get_info(device)[1],
        num_retries=stats.get("num_alloc_retries"),
        attention=tuple(attention),
        norm=_norm(device),
        allocator_settings=_allocator_settings(),
    )


class PhasePeaks(NoObserver):
    """Notes the allocator's peaks whenever the program begins another phase."""

    def __init__(self, device: torch.device) -> None:
        self.found: list[PhaseBytes] = []
        self.requested = 0
        self._device = device
        self._now: tuple[int, Phase] | None = None

    def at(self, phase: Phase, *, step: int, micro_batch: int | None = None) -> None:  # noqa: ARG002
        """The program begins `phase`."""
        self.close()
        self._now = (step, phase)

    def close(self) -> None:
        """The phase so far is over."""
        if self._now is not None:
            stats = torch.cuda.memory_stats(self._device)
            self.requested = max(self.requested, stats.get("requested_bytes.all.peak", 0))
            self.found.append(
                PhaseBytes(
                    step=self._now[0],
                    phase=self._now[1],
                    allocated=stats["allocated_bytes.all.peak"],
                    reserved=stats["reserved_bytes.all.peak"],
                )
            )
        torch.cuda.reset_peak_memory_stats(self._device)


def _train(world: World, observer: NoObserver) -> None:
    gc.collect()
    program = build_program(world, observer)
    try:
        for number in range(1, NUM_STEPS + 1):
            program.step(number, observer)
        if isinstance(observer, PhasePeaks):
            torch.cuda.synchronize(world.device)
            observer.close()
    finally:
        program.close()


@contextlib.contextmanager
def _world(job: Job, group: Group, device: torch.device) -> Iterator[World]:
    if group is Group.FAKE:
        with fake_world(job, 0, fake_tensors=False, kernels=Kernels.NATIVE, device=device) as world:
            yield world
        return
    if job.mesh.num_ranks > 1:
        raise ValueError("a real group of more than one rank needs its peers")
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=0, world_size=1)
    try:
        yield World(job=job, rank=0, device=device, mesh=build_device_mesh(job, device.type))
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def _attention_told(names: list[str]) -> Iterator[None]:
    """Write down which kernels `scaled_dot_product_attention` chose, each once."""
    original = functions.scaled_dot_product_attention

    def told(*args: Any, **kwargs: Any) -> torch.Tensor:
        out: torch.Tensor = original(*args, **kwargs)
        name = attention_kernel(out)
        if name not in names:
            names.append(name)
        return out

    functions.scaled_dot_product_attention = told
    try:
        yield
    finally:
        functions.scaled_dot_product_attention = original


def attention_kernel(out: torch.Tensor) -> str:
    """`ScaledDotProductFlashAttention`: the fused kernel that gave this result; the outermost node, as `math: Bmm`, where
    scores were written to memory."""
    node = out.grad_fn
    if node is None:
        return "no gradient"
    first = _plain(node)
    for _ in range(_MAX_HOPS):
        if node is None:
            break
        if "ScaledDotProduct" in _plain(node):
            return _plain(node)
        node = node.next_functions[0][0] if node.next_functions else None
    return f"math: {first}"


def _plain(node: Any) -> str:
    return type(node).__name__.partition("Backward")[0]


def _norm(device: torch.device) -> str:
    """The node that RMSNorm leaves: one of its own where the kernel is fused, a product where it is made of several ops."""
    rms_norm = getattr(functions, "rms_norm", None)
    if rms_norm is None:
        return "this torch has none"
    x = torch.ones(2, 8, device=device, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(8, device=device, dtype=torch.bfloat16)
    return _plain(rms_norm(x, (8,), weight).grad_fn)


def _outside(device: torch.device) -> int:
    """On the GPU, by its driver, beside what this process' allocator holds."""
    free, total = torch.cuda.mem_get_info(device)
    return int(total - free - torch.cuda.memory_reserved(device))


def _workspaces(device: torch.device) -> int | None:
    """Bytes of cuBLAS' workspaces, by giving them back. `_cuda_clearCublasWorkspaces`, in torch 1.13 to 2.13."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is None:
        return None
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    clear()
    return int(before - torch.cuda.memory_allocated(device))


def _allocator_settings() -> str:
    """What the allocator says of its own settings; empty where it does not."""
    snapshot = torch.cuda.memory._snapshot()
    said = snapshot.get("allocator_settings", {})
    return ", ".join(f"{key}={value}" for key, value in said.items() if value)[:400]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
