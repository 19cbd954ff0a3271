"""What a forked process does for tests of simulations: one kind of rank, simulated and counted, or folded and whole."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch

# Imported once, before forks: a second each.
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel
import torch.profiler  # noqa: F401

from distdoctor.oom.job import Job, resolve
from distdoctor.oom.settings import (
    Checkpointing,
    DataParallel,
    Optimizer,
    OptimizerLoop,
    Precision,
    Schedule,
    Settings,
)
from distdoctor.oom.shape import MixtureOfExperts, Model, ModelShape, Norm
from distdoctor.oom.simulation.child.self_check import measured_peaks, simulated_peak
from distdoctor.oom.simulation.child.simulate import simulate_role
from distdoctor.oom.simulation.roles import roles_of
from distdoctor.torch_private.distributed import forget_device_meshes

TINY = ModelShape(
    num_layers=4, hidden_size=64, num_heads=4, num_kv_heads=2, head_size=16, ffn_size=160, vocab_size=512
)
GPT2_LIKE = replace(
    TINY,
    num_kv_heads=4,
    is_gated=False,
    norm=Norm.LAYERNORM,
    learned_positions=64,
    ties_embeddings=True,
    has_qkv_bias=True,
    has_mlp_bias=True,
)
EXPERTS = replace(TINY, moe=MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=48))
PIPELINE: dict[str, Any] = {"pp": 2, "world_size": 8, "accumulation_steps": 2}

JOBS: dict[str, tuple[ModelShape, dict[str, Any]]] = {
    "one rank": (TINY, {"strategy": DataParallel.NONE}),
    "one rank, adafactor": (TINY, {"strategy": DataParallel.NONE, "optimizer": Optimizer.ADAFACTOR}),
    "ddp": (TINY, {"strategy": DataParallel.DDP, "world_size": 8}),
    "zero3": (
        TINY,
        {
            "strategy": DataParallel.ZERO3,
            "world_size": 8,
            "precision": Precision.MASTER,
            "reduce_bucket_elements": 50_000,
        },
    ),
    "fsdp2, mixed, selective": (
        TINY,
        {"world_size": 8, "precision": Precision.MIXED, "checkpointing": Checkpointing.SELECTIVE},
    ),
    "fsdp2 of 1000 ranks": (TINY, {"world_size": 1000}),
    "fsdp2 x tp": (TINY, {"world_size": 8, "tp": 2}),
    "gpt-2": (GPT2_LIKE, {"world_size": 8}),
    "experts": (EXPERTS, {"world_size": 8, "ep": 4}),
    "pipeline": (TINY, {**PIPELINE, "schedule": Schedule.ONE_F_ONE_B}),
}


def job_of(name: str, num_layers: int | None = None) -> Job:
    shape, said = JOBS[name]
    said = {"seq_len": 32, "precision": Precision.FP32, "optimizer_loop": OptimizerLoop.FUSED, **said}
    if num_layers is not None:
        shape = replace(shape, num_layers=num_layers)
    return resolve(Settings(model=Model(name=name, source="test", shape=shape), **said))


def exact(_rank: int, _world_size: int, name: str) -> tuple[int | None, int | None]:
    """(simulated, counted by the allocator outside kernels), in bytes; of a pipeline the last stage."""
    warnings.filterwarnings("ignore")
    job = job_of(name)
    rank = (job.mesh.pp - 1) * (job.mesh.num_ranks // job.mesh.pp)
    simulated = simulated_peak(job, rank)
    forget_device_meshes()
    measured = measured_peaks(job, rank)
    return simulated, None if measured is None else measured.outside_kernels_bytes


def folded(_rank: int, _world_size: int, name: str, num_layers: int) -> list[dict[str, Any]]:
    """Peaks of every phase from few layers and from all, for each kind of rank."""
    warnings.filterwarnings("ignore")
    job = job_of(name, num_layers)
    answers = []
    for role in roles_of(job):
        few, whole = (simulate_role(job, role, fold=fold) for fold in (True, False))
        answers.append(
            {
                "how": few.how,
                "few": [(peak.step, peak.phase.value, peak.num_bytes) for peak in few.peaks],
                "whole": [(peak.step, peak.phase.value, peak.num_bytes) for peak in whole.peaks],
                "reserved": [few.reserved_bytes, whole.reserved_bytes],
            }
        )
    return answers
