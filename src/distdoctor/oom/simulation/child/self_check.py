"""Is a simulation right on this torch? A tiny sharded model, simulated, and run with real tensors under the allocator's
own count. Both run the same code over a fake process group, so every difference is an error of the simulation."""

from __future__ import annotations

import torch

from distdoctor.oom.facts.simulated import SelfCheck
from distdoctor.oom.job import Job, resolve
from distdoctor.oom.memory.categories import categories_of
from distdoctor.oom.memory.peaks import peaks_of
from distdoctor.oom.settings import Checkpointing, OptimizerLoop, Precision, Settings
from distdoctor.oom.shape import Model, ModelShape
from distdoctor.oom.simulation.child.fake_world import fake_world
from distdoctor.oom.simulation.child.real_allocator import AllocatorPeaks, allocator_peaks
from distdoctor.oom.tracking.tracker import Tracker
from distdoctor.oom.training.base import Kernels, NoObserver
from distdoctor.oom.training.build import build_program

_SHAPE = ModelShape(
    num_layers=2,
    hidden_size=128,
    num_heads=4,
    num_kv_heads=2,
    head_size=32,
    ffn_size=352,
    vocab_size=1024,
)
_TINY = Settings(
    model=Model(name="self-check", source="distdoctor", shape=_SHAPE),
    world_size=4,
    seq_len=64,
    precision=Precision.FP32,
    optimizer_loop=OptimizerLoop.FOR_LOOP,
    checkpointing=Checkpointing.FULL,
)


def self_check() -> SelfCheck:
    """FSDP2 on 4 ranks with checkpointing, two steps."""
    job = resolve(_TINY)
    measured = measured_peak(job)
    return SelfCheck(
        simulated_bytes=simulated_peak(job),
        measured_bytes=measured,
        reason="" if measured is not None else "this torch's profiler does not tell allocations",
    )


def simulated_peak(job: Job, rank: int = 0) -> int | None:
    """Peak of live bytes with the CPU's own kernels."""
    with fake_world(job, rank, kernels=Kernels.NATIVE) as world, Tracker() as tracker:
        program = build_program(world, tracker)
        for number in (1, 2):
            program.step(number, tracker)
        program.close()
    peaks = peaks_of(tracker.log, categories_of(tracker.log))
    return peaks.overall.num_bytes if peaks is not None else None


def measured_peak(job: Job, rank: int = 0) -> int | None:
    """The same program with real tensors, nobody watching but the allocator."""
    found = measured_peaks(job, rank)
    return found.num_bytes if found is not None else None


def measured_peaks(job: Job, rank: int = 0) -> AllocatorPeaks | None:
    """The same, and what of it single kernels had for themselves."""

    def run() -> None:
        with fake_world(job, rank, fake_tensors=False, kernels=Kernels.NATIVE) as world:
            program = build_program(world, NoObserver())
            for number in (1, 2):
                program.step(number, NoObserver())
            program.close()

    torch.set_num_threads(1)
    return allocator_peaks(run)
