"""Jobs at random, which nobody chose with the formulas in mind: what a grid does not think of."""

from __future__ import annotations

import random
from typing import Any

from oom_simulation_grid import GridRow

from distdoctor.errors import UsageError
from distdoctor.oom.job import resolve
from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
    DataParallel,
    Optimizer,
    OptimizerLoop,
    Precision,
    Schedule,
    Settings,
)

_DENSE = (
    "llama3-8b",
    "llama3.2-1b",
    "llama3-70b",
    "llama2-7b",
    "gpt2-xl",
    "qwen2.5-7b",
    "qwen3-8b",
    "gemma2-9b",
)
_EXPERTS = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite")
_DEGREES = (2, 4, 8)


def random_rows(seed: int, count: int) -> list[GridRow]:
    """`count` jobs that can be; the same ones for the same seed."""
    rng = random.Random(seed)
    rows: list[GridRow] = []
    while len(rows) < count:
        model = rng.choice((*_DENSE, *_EXPERTS))
        said = _said(rng, has_experts=model in _EXPERTS)
        settings = Settings(model=preset(model), **said)
        try:
            resolve(settings)
        except UsageError:
            continue
        words = ", ".join(f"{name}={getattr(value, 'value', value)}" for name, value in said.items())
        rows.append(GridRow(f"{model} {words}", settings))
    return rows


def _said(rng: random.Random, *, has_experts: bool) -> dict[str, Any]:
    said = _parallel(rng, has_experts=has_experts)
    said["world_size"] = _product(said)
    said["micro_batch"] = rng.choice((1, 1, 2, 4))
    said["seq_len"] = rng.choice((1024, 2048, 4096, 8192))
    said["checkpointing"] = rng.choice(tuple(Checkpointing))
    said["precision"] = rng.choice((Precision.MIXED, Precision.MIXED, *Precision))
    said["optimizer_loop"] = rng.choice(tuple(OptimizerLoop))
    if rng.random() < 0.2 and said["optimizer_loop"] is not OptimizerLoop.FUSED:
        said["optimizer"] = rng.choice((Optimizer.SGD, Optimizer.SGD_MOMENTUM))
    if rng.random() < 0.2:
        said["attention"] = Attention.UNFUSED
        said["seq_len"] = min(said["seq_len"], 2048)
    if rng.random() < 0.2:
        said["fused_loss"] = True
    if "tp" in said:
        said["sequence_parallel"] = rng.random() < 0.7
        said["loss_parallel"] = rng.random() < 0.7
    if "pp" in said:
        said["schedule"] = rng.choice(tuple(Schedule))
        said["accumulation_steps"] = rng.choice((4, 8))
    elif rng.random() < 0.3:
        said["accumulation_steps"] = rng.choice((2, 4))
    return said


def _parallel(rng: random.Random, *, has_experts: bool) -> dict[str, Any]:
    """Strategy and degrees."""
    data = {"dp_shard": rng.choice(_DEGREES)}
    tensor, stages = {"tp": rng.choice(_DEGREES)}, {"pp": rng.choice((2, 4))}
    choices: list[dict[str, Any]] = [
        {},
        {"dp_shard": rng.choice(_DEGREES) * 8},
        {**data, "dp_replicate": 2},
        {**data, "reshard_after_forward": False},
        {"strategy": DataParallel.DDP, **data},
        {"strategy": DataParallel.ZERO_REDUNDANCY, **data},
        *(
            {"strategy": each, **data}
            for each in (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)
        ),
        tensor,
        {**data, **tensor},
        stages,
        {**stages, **data},
        {**stages, **tensor},
        {**stages, **data, "tp": 2},
        {**data, "cp": rng.choice((2, 4))},
    ]
    if has_experts:
        choices += [{"dp_shard": 8, "ep": rng.choice(_DEGREES)}, {"dp_shard": 4, "tp": 2, "ep": 4}]
    return rng.choice(choices)


def _product(said: dict[str, Any]) -> int:
    ranks = 1
    for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp"):
        ranks *= said.get(name, 1)
    return ranks
