"""What forked ranks do in the tests of training programs: step one, and compare it with the unsplit model."""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.distributed.tensor import DTensor, distribute_tensor

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.job import Job, resolve
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.settings import Checkpointing, DataParallel, Optimizer, Precision, Schedule, Settings
from distdoctor.oom.shape import Model, ModelShape
from distdoctor.oom.simulation.child.fake_world import fake_world
from distdoctor.oom.tracking.tracker import Tracker
from distdoctor.oom.training.base import Kernels, NoObserver, World
from distdoctor.oom.training.build import build_program
from distdoctor.oom.training.context_parallel import check_ring_attention
from distdoctor.oom.training.device_mesh import build_device_mesh
from distdoctor.oom.training.loss import cross_entropy
from distdoctor.oom.training.model import ModelOptions, Transformer

# What fake tensors import when they are first used takes seconds; forked ranks find it there.
with FakeTensorMode():
    torch.empty(1).add(1)

TINY = ModelShape(
    num_layers=4, hidden_size=64, num_heads=4, num_kv_heads=2, head_size=16, ffn_size=96, vocab_size=128
)


def tiny_job(**said: Any) -> Job:
    """A job of a tiny Llama with two sequences of 32 tokens in a micro-batch, in fp32 unless said otherwise."""
    settings = Settings(
        model=Model(name="tiny", source="test", shape=TINY),
        micro_batch=2,
        seq_len=32,
        precision=Precision.FP32,
        strategy=DataParallel.NONE,
        optimizer=Optimizer.SGD,
    )
    return resolve(replace(settings, **said))


def train(rank: int, world_size: int, debug: bool = False, **said: Any) -> dict[str, Any]:
    """Two steps with real collectives: the losses, the unsplit model's first loss, and the largest relative error of a
    gradient of the first step."""
    if debug:
        # torch's stages then compare every tensor with what they were told of it.
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
    job = tiny_job(world_size=world_size, **_meant(said))
    with _gloo_world(job, rank) as world:
        recorder = _Recorder()
        program = build_program(world, recorder)
        for model in recorder.models:
            _fill(model)
        torch.manual_seed(_seed_of(world))
        losses = [program.step(1, recorder)]
        gradients, recorder.is_done = recorder.gradients, True
        losses.append(program.step(2, recorder))
        program.close()
        expected_loss, expected = _unsplit(world)
        errors = [_error(grad, expected[name]) for name, grad in gradients.items()]
        return {
            "losses": losses,
            "expected_loss": expected_loss,
            "gradient_error": max(errors),
            "names": sorted(gradients),
            "expected_names": sorted(expected),
        }


def ring(rank: int, world_size: int) -> float:
    """How far ring attention is from attention at once."""
    with _gloo_world(tiny_job(world_size=world_size, cp=world_size), rank) as world:
        return check_ring_attention(world)


def ring_alone(rank: int, world_size: int) -> float:
    """The same where nothing is communicated."""
    with fake_world(tiny_job(cp=2), 0, fake_tensors=False) as world:
        return check_ring_attention(world)


def track(
    rank: int, world_size: int, of_rank: int, fake: bool, like_cuda: bool, **said: Any
) -> dict[str, Any]:
    """Two steps of rank `of_rank` in a world where nothing is communicated: what its memory was, and what it told."""
    kernels = Kernels.LIKE_CUDA if like_cuda else Kernels.NATIVE
    with fake_world(tiny_job(**_meant(said)), of_rank, fake_tensors=fake, kernels=kernels) as world:
        with Tracker() as tracker:
            program = build_program(world, tracker)
            first = program.step(1, tracker)
            program.step(2, tracker)
            program.close()
        log = tracker.log
    total = peak = 0
    sizes: dict[int, int] = {}
    for event in log.events:
        total += event.num_bytes - sizes.get(event.storage, 0)
        sizes[event.storage] = event.num_bytes
        peak = max(peak, total)
    kept = [size for number, size in sizes.items() if log.storages[number].label is Category.COMMUNICATION]
    places = [log.places[event.place] for event in log.events if log.places[event.place].step == 2]
    phases = [f"{place.phase.value} {place.micro_batch}" for place in places]
    return {
        "loss": first,
        "peak_bytes": peak,
        "kept_buffer_bytes": sum(kept),
        "phases": [name for name, _ in itertools.groupby(phases)],
        "gathers": sum(place.op.startswith("_c10d_functional.all_gather") for place in places),
    }


def _meant(said: dict[str, Any]) -> dict[str, Any]:
    """Arguments travel as text."""
    kinds = {
        "schedule": Schedule,
        "strategy": DataParallel,
        "precision": Precision,
        "checkpointing": Checkpointing,
    }
    return {name: kinds[name](value) if name in kinds else value for name, value in said.items()}


class _Recorder(NoObserver):
    """Keeps the models, and copies of their whole gradients when the optimizer is about to step."""

    def __init__(self) -> None:
        self.models: list[Transformer] = []
        self.gradients: dict[str, torch.Tensor] = {}
        self.is_done = False

    def name_modules(self, module: nn.Module, *, first_layer: int = 0) -> None:
        assert isinstance(module, Transformer)
        self.models.append(module)

    def at(self, phase: Phase, *, step: int, micro_batch: int | None = None) -> None:
        if phase is not Phase.OPTIMIZER_STEP or self.is_done:
            return
        for model in self.models:
            for name, parameter in _named(model):
                grad = parameter.grad
                assert grad is not None, name
                self.gradients[name] = (grad.full_tensor() if isinstance(grad, DTensor) else grad).clone()


@contextmanager
def _gloo_world(job: Job, rank: int) -> Iterator[World]:
    dist.init_process_group("gloo")
    try:
        mesh = build_device_mesh(job, "cpu")
        yield World(job=job, rank=rank, device=torch.device("cpu"), mesh=mesh)
    finally:
        dist.destroy_process_group()


def _seed_of(world: World) -> int:
    """Data-parallel ranks draw different tokens; those of one model replica the same."""
    return 1 + world.coordinate("dp_replicate") * world.job.mesh.dp_shard + world.coordinate("dp_shard")


def _unsplit(world: World) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss of this rank's tokens, and gradients for those of all ranks, by the whole model in one process."""
    job = world.job
    size = (job.num_micro_batches * job.micro_batch, job.seq_len)
    model = Transformer(TINY, ModelOptions(seq_len=job.seq_len), layers=range(TINY.num_layers))
    model.init_weights()
    _fill(model)
    own = 0.0
    for seed in range(1, job.mesh.dp + 1):
        torch.manual_seed(seed)
        tokens = torch.randint(TINY.vocab_size, size)
        # Where the last stage is on another rank, its labels are what that rank draws first.
        is_apart = job.mesh.pp > 1 and job.schedule is not Schedule.ZBV
        labels = tokens if is_apart else torch.randint(TINY.vocab_size, size)
        loss = cross_entropy(model(tokens), labels)
        (loss / job.mesh.dp).backward()
        if seed == _seed_of(world):
            own = loss.item()
    return own, {name: each.grad for name, each in _named(model) if each.grad is not None}


def _fill(model: nn.Module) -> None:
    """The same values for the same name, however the model is cut."""
    with torch.no_grad():
        for name, parameter in _named(model):
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            values = torch.randn(parameter.shape, generator=generator) * 0.1
            if isinstance(parameter, DTensor):
                values = distribute_tensor(values, parameter.device_mesh, parameter.placements)
            parameter.copy_(values)


def _named(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [
        (name.replace("_checkpoint_wrapped_module.", ""), each) for name, each in model.named_parameters()
    ]


def _error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())
