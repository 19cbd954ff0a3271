"""What a forked process does for tests of a user's own module: a child's whole work, or a run with real tensors."""

from __future__ import annotations

import os
from tempfile import TemporaryFile

# Imported once, before forks: a second each.
import torch.distributed.algorithms._checkpoint.checkpoint_wrapper  # noqa: F401

from distdoctor.oom.memory.categories import categories_of
from distdoctor.oom.memory.peaks import peaks_of
from distdoctor.oom.simulation.child.__main__ import main
from distdoctor.oom.simulation.child.own_module import OwnWork
from distdoctor.oom.simulation.child.real_allocator import allocator_peaks
from distdoctor.oom.simulation.messages import decode_question
from distdoctor.oom.tracking.tracker import Tracker
from distdoctor.oom.training.base import NoObserver


def answer(_rank: int, _world_size: int, question: str) -> str:
    """All that the child says."""
    with TemporaryFile() as file:
        main([question, str(os.dup(file.fileno()))])
        file.seek(0)
        return file.read().decode()


def peaks(_rank: int, _world_size: int, question: str) -> list[int | None]:
    """(simulated with the CPU's own kernels, counted by the CPU's allocator outside kernels) in bytes."""
    module = decode_question(question).own_module
    assert module is not None
    work = OwnWork(module)
    with work.world() as world:
        built = work.build()
        with Tracker() as tracker:
            work.step(built, world, tracker)
    found = peaks_of(tracker.log, categories_of(tracker.log))
    assert found is not None

    def really() -> None:
        again = OwnWork(module)
        with again.world(fake_tensors=False) as world:
            again.step(again.build(), world, NoObserver())

    measured = allocator_peaks(really)
    return [found.overall.num_bytes, None if measured is None else measured.outside_kernels_bytes]
