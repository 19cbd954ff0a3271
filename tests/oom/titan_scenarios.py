"""What a forked process does for tests of TorchTitan's model: a child's whole work, or a run with real tensors."""

from __future__ import annotations

import os
from tempfile import TemporaryFile

from distdoctor.oom.job import resolve
from distdoctor.oom.memory.categories import categories_of
from distdoctor.oom.memory.peaks import peaks_of
from distdoctor.oom.simulation.child.__main__ import main
from distdoctor.oom.simulation.child.fake_world import fake_world
from distdoctor.oom.simulation.child.real_allocator import allocator_peaks
from distdoctor.oom.simulation.child.titan.interface import titan_for
from distdoctor.oom.simulation.child.titan.program import TitanProgram
from distdoctor.oom.simulation.child.titan.stand_ins import stand_ins
from distdoctor.oom.simulation.messages import decode_question
from distdoctor.oom.simulation.torchtitan import TitanModel
from distdoctor.oom.tracking.tracker import Tracker
from distdoctor.oom.training.base import CannotRunError, Kernels, NoObserver, Observer, World

# Imported once, before forks: some seconds each.
try:
    titan_for(TitanModel(family="llama3", flavor="debugmodel"))
except CannotRunError as error:
    print(error)


def answer(_rank: int, _world_size: int, question: str) -> str:
    """All that the child says."""
    with TemporaryFile() as file:
        main([question, str(os.dup(file.fileno()))])
        file.seek(0)
        return file.read().decode()


def peaks(_rank: int, _world_size: int, question: str) -> list[int | None]:
    """(simulated with the CPU's own kernels, counted by the CPU's allocator, without what kernels had inside)."""
    asked = decode_question(question)
    assert asked.torchtitan is not None
    assert asked.settings is not None
    job, titan = resolve(asked.settings), titan_for(asked.torchtitan)
    os.environ["TORCHDYNAMO_DISABLE"] = "1"

    def run(world: World, observer: Observer) -> None:
        program = TitanProgram(titan, world, observer)
        for number in (1, 2):
            program.step(number, observer)

    def really() -> None:
        with fake_world(job, 0, fake_tensors=False, kernels=Kernels.NATIVE) as world:
            run(world, NoObserver())

    with stand_ins(titan, Kernels.NATIVE):
        with fake_world(job, 0, kernels=Kernels.NATIVE) as world, Tracker() as tracker:
            run(world, tracker)
        really()  # what is made once, caches of shapes and the like, is there then
        counted = allocator_peaks(really)
    found = peaks_of(tracker.log, categories_of(tracker.log))
    assert found is not None
    return [
        found.overall.num_bytes,
        counted.num_bytes if counted is not None else None,
        counted.outside_kernels_bytes if counted is not None else None,
    ]
