"""What forked ranks do in the tests of ZeRO: train under DeepSpeed's engine or our own partitioning."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensorMode

from distdoctor.oom.estimate import estimate
from distdoctor.oom.job import Job, resolve
from distdoctor.oom.memory.categories import categories_of
from distdoctor.oom.memory.peaks import peaks_of
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload, Precision, Settings
from distdoctor.oom.shape import Model, ModelShape
from distdoctor.oom.simulation.child.fake_world import fake_world
from distdoctor.oom.tracking.tracker import Tracker
from distdoctor.oom.training import deepspeed_engine
from distdoctor.oom.training.base import Kernels, World
from distdoctor.oom.training.build import build_program
from distdoctor.oom.training.device_mesh import build_device_mesh
from distdoctor.oom.training.zero import partitioned_by

# What fake tensors import when they are first used takes seconds; forked ranks find it there.
with FakeTensorMode():
    torch.empty(1).add(1)

TINY = ModelShape(
    num_layers=4, hidden_size=64, num_heads=4, num_kv_heads=2, head_size=16, ffn_size=96, vocab_size=512
)
_KINDS: dict[str, Any] = {
    "strategy": DataParallel,
    "precision": Precision,
    "checkpointing": Checkpointing,
    "offload_optimizer": Offload,
    "offload_params": Offload,
}


def tiny_job(**said: Any) -> Job:
    """A tiny Llama, built whole before it is cut, with a bucket that is filled several times."""
    meant = {name: _KINDS[name](value) if name in _KINDS else value for name, value in said.items()}
    settings = Settings(
        model=Model(name="tiny", source="test", shape=TINY),
        micro_batch=2,
        seq_len=32,
        reduce_bucket_elements=30_000,
        meta_init=False,
    )
    return resolve(replace(settings, **meant))


def train(rank: int, world_size: int, who: str, **said: Any) -> dict[str, Any]:
    """Three steps with real collectives over Gloo: losses, the peaks of the last step, and what went to stdout."""
    if who == "own":
        deepspeed_engine.why_not_deepspeed = lambda _: "not asked for"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    job = tiny_job(world_size=world_size, **said)
    mesh = build_device_mesh(job, "cpu")
    world = World(job=job, rank=rank, device=torch.device("cpu"), mesh=mesh)
    torch.manual_seed(1)
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        told = _told(world, seed=100 + rank)
    dist.destroy_process_group()
    return {**told, "stdout": stdout.getvalue()}


def alone(rank: int, world_size: int, of_rank: int, of: int, fake: bool, **said: Any) -> dict[str, Any]:
    """The same for rank `of_rank` of `of` where nothing is communicated, with fake tensors or real ones."""
    torch.set_num_threads(1)
    job = tiny_job(world_size=of, **said)
    with fake_world(job, of_rank, fake_tensors=fake, kernels=Kernels.NATIVE) as world:
        told = _told(world, seed=1)
    role = estimate(job).worst
    return {**told, "estimated": {each.moment.value: each.num_bytes for each in role.moments[-4:]}}


def _told(world: World, *, seed: int) -> dict[str, Any]:
    with Tracker() as tracker:
        program = build_program(world, tracker)
        torch.manual_seed(seed)
        losses = [program.step(number, tracker) for number in (1, 2, 3)]
        program.close()
    peaks = peaks_of(tracker.log, categories_of(tracker.log))
    assert peaks is not None
    last = {phase.value: peak for (step, phase), peak in peaks.by_phase.items() if step == 3}
    return {
        "by": partitioned_by(world),
        "losses": losses,
        "peaks": {name: peak.num_bytes for name, peak in last.items()},
        "categories": {
            name: {category.value: n for category, n in peak.by_category.items()}
            for name, peak in last.items()
        },
    }
