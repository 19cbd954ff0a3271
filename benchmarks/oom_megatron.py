"""Megatron-LM's published memory figures as jobs: which settings, how many GPUs, which rank, and why one is not scored.

A row holds the arguments of one functional test of Megatron-LM and what `torch.cuda` counted on the rank that writes
the log, the last one. Its arguments are an extract: flags that the extract never holds are told in `LEFT_OUT`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from distdoctor.errors import DistdoctorError
from distdoctor.oom.configs.megatron.args import settings_from_megatron_args
from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.estimate import Moment, RoleEstimate
from distdoctor.oom.job import resolve
from distdoctor.oom.settings import Settings
from distdoctor.units import GIB

# `tests/test_utils/recipes/*/*.yaml` of Megatron-LM: one node of eight GPUs, or two of four on GB200; `_1node` is one.
GPUS = 8
GPUS_ONE_NODE = 4
# Between steps only states and buffers are there. Beyond this share of difference, the run had other arguments or ranks
# than its row says (our own threshold: the other rows agree within 3 %).
STATES_DISAGREE = 0.25
# What a test's name tells of features whose flags the extract does not hold.
_BY_NAME = (
    (r"cuda_?graph", "CUDA graphs"),
    (r"mamba|hybrid|nemotron3|nemotronh", "a hybrid of Mamba and attention"),
    (r"_gdn|_dsa", "an experimental kind of attention"),
    (r"modelopt|distill", "a teacher model beside the student"),
    (r"offload", "activations in host memory"),
    (r"grpo|_rl_|inference", "no training"),
    (r"/t5|/bert|multimodal|mimo|llava", "no decoder-only model"),
    (r"fsdp", "buffers of FSDP"),
    (r"muon", "Muon"),
)
LEFT_OUT = (
    "deterministic mode, activation functions, virtual stages per rank, pipeline layouts, moe-layer-freq, shared "
    "experts, ranks of latent attention, CUDA graphs, FP8 recipes"
)


@dataclass(frozen=True)
class Result:
    """One row, estimated."""

    id: str
    case: str
    family: str
    gpus: str
    measured: float
    """GiB, as all figures here."""
    estimated: float | None
    first: tuple[float, float] | None = None
    """Peak of the first step: measured, estimated."""
    between: tuple[float, float] | None = None
    """Between steps: measured, estimated."""
    not_scored: str = ""
    why: str = ""

    @property
    def error(self) -> float | None:
        """Per cent of the measured peak."""
        return None if self.estimated is None else 100 * (self.estimated / self.measured - 1)


def megatron_result(row: Mapping[str, Any]) -> Result:
    """The estimate of one row beside its figures."""
    reading = settings_from_megatron_args(row["args"])
    settings = _completed(reading.settings, row)
    common = {
        "id": row["id"],
        "case": row["case"],
        "family": _family(row),
        "measured": float(row["peak_gib"]),
    }
    world, how = _gpus(row, settings)
    try:
        if world is None:
            world, how = _inferred(row, settings)
        role = _last_rank(replace(settings, world_size=world))
    except DistdoctorError as error:
        return Result(**common, gpus=how, estimated=None, not_scored=f"refused: {error}")
    peak = role.peak.num_bytes / GIB
    between = (float(row["allocated_end_gib"]), _between_steps(role))
    result = Result(
        **common,
        gpus=how,
        estimated=peak,
        first=(float(row["peak_first_gib"]), role.peak_of_step(1).num_bytes / GIB),
        between=between,
    )
    return replace(
        result, not_scored=_not_scored(row, reading.not_covered, between), why=_why(result, role, settings)
    )


def _last_rank(settings: Settings) -> RoleEstimate:
    return estimate(resolve(settings)).roles[-1]


def _between_steps(role: RoleEstimate) -> float:
    """GiB that stay when a step is over: with Megatron's buffers, what is there in the optimizer's step."""
    return (
        next(
            each.num_bytes for each in role.moments if each.step == 2 and each.moment is Moment.OPTIMIZER_STEP
        )
        / GIB
    )


def _completed(settings: Settings, row: Mapping[str, Any]) -> Settings:
    """What the extract leaves out and the row's name and platform tell: the type of GPU, and deterministic mode, in
    which all tests run whose figures are compared bit by bit."""
    platform, name = row["platform"], row["case"]
    gpu = next(
        (kind for kind in ("a100", "h100", "gb200", "b200", "gb300", "h200") if kind in platform), None
    )
    deterministic = "release" not in name and "nondeterministic" not in name
    details = settings.megatron
    if details is not None and deterministic:
        details = replace(details, is_deterministic=True)
    if gpu in ("a100", "h100"):
        gpu += "-80gb"
    if settings.global_batch is None and "release" in name:
        # Release runs of one stage do not state their batch; it decides nothing there.
        settings = replace(settings, accumulation_steps=1)
    return replace(settings, gpu_type=gpu, megatron=details)


def _gpus(row: Mapping[str, Any], settings: Settings) -> tuple[int | None, str]:
    """(GPUs, in words); None where nothing states them."""
    stated = row.get("world_size") or row.get("num_gpus") or row.get("gpus")
    if isinstance(stated, int) or (isinstance(stated, str) and stated.isdigit()):
        return int(stated), f"{stated}"
    if "release" in row["case"]:
        return None, "not stated"
    world = GPUS_ONE_NODE if re.search(r"_1node\b", row["case"]) else GPUS
    cut = (settings.tp or 1) * (settings.pp or 1) * (settings.cp or 1)
    batch, micro = settings.global_batch, settings.micro_batch or 1
    while batch is not None and world > cut and batch % (micro * world // cut):
        world //= 2
    return world, f"{world}"


def _inferred(row: Mapping[str, Any], settings: Settings) -> tuple[int, str]:
    """The number of GPUs, a power of two of data-parallel ranks, whose states come nearest to what was allocated
    between steps. The peak plays no part in it."""
    cut = (settings.tp or 1) * (settings.pp or 1) * (settings.cp or 1)
    measured = float(row["allocated_end_gib"])
    candidates = []
    for power in range(11):
        world = cut << power
        try:
            role = _last_rank(replace(settings, world_size=world))
        except DistdoctorError:
            continue
        candidates.append((abs(_between_steps(role) / measured - 1), world))
    if not candidates:
        return cut, f"{cut}, assumed"
    return min(candidates)[1], f"{min(candidates)[1]}, inferred"


def _not_scored(row: Mapping[str, Any], reasons: tuple[str, ...], between: tuple[float, float]) -> str:
    if reasons:
        return f"not covered: {reasons[0]}"
    name, args = row["case"], row["args"]
    for pattern, feature in _BY_NAME:
        if re.search(pattern, name):
            return f"not covered, by its name: {feature}"
    if "multi-latent-attention" in args and "kv-lora-rank" not in args:
        return "arguments are incomplete: ranks of latent attention are not among them"
    if re.search(r"_vp\d|uneven_pipeline", name) and not any(
        "virtual" in flag or "layout" in flag for flag in args
    ):
        return "arguments are incomplete: its name tells of chunks, they do not"
    measured, estimated = between
    if abs(estimated / measured - 1) > STATES_DISAGREE:
        return (
            f"arguments are not those of the run: {measured:.1f} GiB stay between steps, "
            f"{estimated:.1f} follow from them"
        )
    return ""


def _why(result: Result, role: RoleEstimate, settings: Settings) -> str:
    """In words, why the estimate is off."""
    error = result.error
    if error is None:
        return ""
    if abs(error) <= 1:
        return "agrees within 1 %"
    shape = settings.model.shape if settings.model is not None else None
    if shape is not None and shape.moe is not None and settings.ep and settings.ep > 1:
        crowd = _crowding(result, settings)
        if crowd is not None:
            return f"balanced routers are assumed; {crowd:.2f} times a rank's share of tokens would give this peak"
    lacking = result.between[0] - result.between[1] if result.between is not None else 0.0
    gap = result.measured - role.peak.num_bytes / GIB
    if abs(lacking) > abs(gap) / 2 and lacking * gap > 0:
        return f"{lacking:+.2f} GiB of it are there between steps: buffers that are not counted"
    return f"{gap:+.2f} GiB at the peak are not explained"


def _crowding(result: Result, settings: Settings) -> float | None:
    """The imbalance of experts that the peak would need; None where none from 0.5 to 4 does."""
    world = int(result.gpus.split(",")[0])
    one, two = (
        _last_rank(replace(settings, world_size=world, expert_imbalance=crowd)).peak.num_bytes / GIB
        for crowd in (1.0, 2.0)
    )
    if two <= one:
        return None
    needed = 1 + (result.measured - one) / (two - one)
    return needed if 0.5 <= needed <= 4 else None


def _family(row: Mapping[str, Any]) -> str:
    case, args = row["case"], row["args"]
    kind = case.split("/")[0]
    if "multi-latent-attention" in args:
        return f"{kind}, latent attention"
    hidden = args.get("hidden-size", "?")
    return f"{kind}, hidden size {hidden}"
