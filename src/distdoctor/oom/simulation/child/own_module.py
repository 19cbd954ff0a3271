"""A user's own module, simulated: imported, built without memory, wrapped as asked, two training steps, the log told."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import ModelStates, RoleSimulation, SimulationFailure
from distdoctor.oom.job import Job
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.settings import DataParallel, Precision
from distdoctor.oom.simulation.child.fake_world import fake_world
from distdoctor.oom.simulation.child.own.batch import MAX_KNOWN, no_inputs
from distdoctor.oom.simulation.child.own.blocks import Blocks, blocks_of
from distdoctor.oom.simulation.child.own.building import Built, build
from distdoctor.oom.simulation.child.own.code import import_path
from distdoctor.oom.simulation.child.own.errors import OwnModuleError, explained
from distdoctor.oom.simulation.child.own.limits import limit_host_memory
from distdoctor.oom.simulation.child.own.loop import OwnLoop
from distdoctor.oom.simulation.child.own.loss import MADE_UP
from distdoctor.oom.simulation.child.own.stand_ins import like_cuda
from distdoctor.oom.simulation.child.own.states import model_states
from distdoctor.oom.simulation.child.own.strategies import checkpoint, data_parallelism
from distdoctor.oom.simulation.child.own.tensors import (
    names_of,
    remake_buffers,
    remake_parameters,
    without_buffers,
)
from distdoctor.oom.simulation.child.simulate import ENOUGH_MICRO_BATCHES, NUM_STEPS, told
from distdoctor.oom.simulation.inputs import FunctionName, parse_inputs
from distdoctor.oom.simulation.messages import OwnModule
from distdoctor.oom.simulation.own_job import job_of_module
from distdoctor.oom.simulation.roles import Role
from distdoctor.oom.tracking.tracker import Tracker
from distdoctor.oom.training.base import Observer, World
from distdoctor.torch_private.fake_tensors import values_known_up_to

_IN_16_BIT = (Precision.MASTER, Precision.PURE16)


class OwnModuleFailed(Exception):  # noqa: N818  # it carries an answer
    """The module could not be simulated; `failure` is the answer."""

    def __init__(self, failure: SimulationFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def simulate_module(
    module: OwnModule,
    role: Role,
    *,
    capacities_bytes: Sequence[int] = (),
    tell: Callable[[ModelStates], None] = lambda _: None,
) -> RoleSimulation:
    """What one rank of this job needs. The user's code is run. Raises OwnModuleFailed, with model states only where the
    module could be built at all; `tell` hears of them before the module is run, for its code may end the process."""
    work = OwnWork(module, tell)
    try:
        return work.simulate(role, capacities_bytes)
    except OwnModuleError as error:
        failed = error
    except Exception as error:  # torch, around code that it does not know
        failed = explained(error, "the simulation", work.folder, work.names)
    raise OwnModuleFailed(
        SimulationFailure(
            role=role.words,
            rank=role.rank,
            reason=failed.reason,
            op=failed.op,
            module=failed.module,
            advice=failed.advice,
            states=work.states,
        )
    ) from None


class OwnWork:
    """One user's module in one job, and what is known of it so far."""

    def __init__(self, module: OwnModule, tell: Callable[[ModelStates], None] = lambda _: None) -> None:
        self.own = module
        self.job = job_of_module(module)
        self.folder = Path(module.folder).resolve()
        self.names: dict[int, str] = {}
        self.notes: list[str] = []
        self.caveats: list[str] = []
        self.states: ModelStates | None = None
        self._tell = tell

    def simulate(self, role: Role, capacities_bytes: Sequence[int] = ()) -> RoleSimulation:
        """Two steps under fake tensors, with what CUDA's kernels keep."""
        began = time.process_time()
        # Nothing is compiled for tensors that hold nothing.
        os.environ["TORCHDYNAMO_DISABLE"] = "1"
        limit_host_memory()
        used: set[str] = set()
        with like_cuda(used), self.world() as world, values_known_up_to(MAX_KNOWN):
            built = self.build()
            gc.collect()
            with Tracker() as tracker:
                self.step(built, world, tracker)
                log = tracker.log
        words = built.batch.words() if built.batch is not None else "none"
        role_simulation = told(
            log,
            role,
            f"your module, {built.how}, with inputs {words}",
            [*self.notes, *sorted(used)],
            capacities_bytes=capacities_bytes,
            began=began,
        )
        return replace(role_simulation, caveats=tuple(self.caveats))

    @contextlib.contextmanager
    def world(self, *, fake_tensors: bool = True) -> Iterator[World]:
        """The first rank of the job, where the user's modules can be imported."""
        with (
            import_path(self.folder, self.own.module),
            fake_world(self.job, 0, fake_tensors=fake_tensors) as world,
        ):
            yield world

    def build(self) -> Built:
        """The module as the user's function gives it. Raises OwnModuleError."""
        name = FunctionName(module=self.own.module, function=self.own.function)
        built = build(name, self.folder, parse_inputs(self.own.inputs))
        self.notes += built.notes
        self.names = names_of(built.module)
        self._refuse(built.module)
        self.states = model_states(built.module, self.job)
        self._tell(self.states)
        if built.batch is None:
            raise no_inputs(built.module)
        # Before anybody watches: the tensors that the function made are no part of the story.
        _give_tensors(built, self.job, on_meta=self._is_sharded_first)
        return built

    @property
    def _is_sharded_first(self) -> bool:
        """No rank ever holds the whole module."""
        return self.job.strategy is DataParallel.FSDP and self.job.said.meta_init is not False

    def step(self, built: Built, world: World, observer: Observer) -> None:
        """Wrap it as asked, and step it. Raises OwnModuleError, and whatever torch raises around it."""
        loop, blocks = self._prepared(built, world, observer)
        try:
            for number in range(1, NUM_STEPS + 1):
                loop.step(number, observer)
        finally:
            loop.close()
        self._note(built, loop, blocks)

    def _refuse(self, module: nn.Module) -> None:
        """Raises OwnModuleError for what no optimizer steps."""
        parameters = list(module.parameters())
        if any(nn.parameter.is_lazy(each) for each in parameters):
            raise OwnModuleError(
                "its parameters have no shape until forward was called: it has lazy modules",
                advice="call it once in the function",
            )
        if not any(each.requires_grad for each in parameters):
            raise OwnModuleError(
                f"{type(module).__name__} has no trainable parameter",
                advice="let some parameters require gradients",
            )

    def _prepared(self, built: Built, world: World, observer: Observer) -> tuple[OwnLoop, tuple[Blocks, ...]]:
        """Wrapped, with storages, labelled, and with its optimizer."""
        module, job = built.module, self.job
        observer.at(Phase.INITIALISATION, step=0)
        blocks = blocks_of(module)
        checkpoint(module, blocks, job.checkpointing, self.notes)
        data = data_parallelism(module, world, blocks)
        data.observer = observer
        if not self._is_sharded_first:
            observer.label(data.parameters(), Category.PARAMETERS)
        data.shard()
        if self._is_sharded_first:
            with without_buffers(module):
                module.to_empty(device=world.device)
        observer.name_modules(module)
        observer.label(data.parameters(), Category.PARAMETERS)
        observer.label(module.buffers(), Category.PARAMETERS)
        data.prepare()
        data.label_states()
        if built.batch is None:
            raise no_inputs(module)
        loop = OwnLoop(
            data,
            built.batch,
            min(job.num_micro_batches, ENOUGH_MICRO_BATCHES),
            folder=self.folder,
            names=self.names,
        )
        return loop, blocks

    def _note(self, built: Built, loop: OwnLoop, blocks: tuple[Blocks, ...]) -> None:
        job, said = self.job, self.own.settings
        self.notes.append(f"loss: {loop.loss_words}")
        if loop.loss_words.startswith(MADE_UP):
            self.caveats.append(self.notes[-1])
        if job.num_micro_batches > ENOUGH_MICRO_BATCHES:
            self.notes.append(
                f"{ENOUGH_MICRO_BATCHES} of {job.num_micro_batches} micro-batches: the later ones find what the "
                "third finds"
            )
        if loop.num_without_gradient:
            self.notes.append(_unused_words(loop.num_without_gradient, job))
        if job.strategy is DataParallel.FSDP:
            units = "; ".join(each.words() for each in blocks)
            self.notes.append(
                f"fully_shard on {units}, then on the rest"
                if units
                else "fully_shard on the whole module: nothing in it repeats, so that all of it is gathered at once"
            )
        if said.precision is None:
            types = sorted({str(each.dtype).removeprefix("torch.") for each in built.module.parameters()})
            self.notes.append(
                f"types as the module has them ({', '.join(types)}); --precision mixed adds autocast"
            )
        if said.micro_batch is not None or said.seq_len is not None:
            self.notes.append("--micro-batch and --seq-len say nothing here: the inputs have their sizes")
            self.caveats.append(self.notes[-1])
        if any(isinstance(each, nn.RNNBase) for each in built.module.modules()):
            self.notes.append(
                "recurrent layers are counted by the CPU's kernels; cuDNN's keep a reserve besides"
            )
            self.caveats.append(self.notes[-1])


def _unused_words(count: int, job: Job) -> str:
    """DDP is the one that minds (torch/nn/parallel/distributed.py, find_unused_parameters)."""
    words = f"{count} trainable parameter(s) get no gradient"
    if job.strategy in (DataParallel.DDP, DataParallel.ZERO_REDUNDANCY) and job.mesh.dp > 1:
        return f"{words}: DDP raises in the second step unless find_unused_parameters=True"
    return words


def _give_tensors(built: Built, job: Job, *, on_meta: bool) -> None:
    """Parameters and buffers as the strategy wants them: on the meta device, or fake ones on the device."""
    short = job.precision in _IN_16_BIT

    def kind(tensor: torch.Tensor) -> torch.dtype:
        return torch.bfloat16 if short and tensor.dtype.is_floating_point else tensor.dtype

    def made(tensor: torch.Tensor, device: str) -> torch.Tensor:
        return torch.empty_like(tensor, dtype=kind(tensor), device=device)

    if on_meta:
        remake_parameters(built.module, lambda each: made(each, "meta"))
    elif short or not built.is_fake:
        remake_parameters(built.module, lambda each: made(each, "cpu"))
    if short or not built.is_fake:
        remake_buffers(built.module, lambda each: made(each, "cpu"))
