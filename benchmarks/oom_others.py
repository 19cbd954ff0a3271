"""Figures of other sources as jobs: TorchTitan's reserved peaks, and the ZeRO paper's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distdoctor.errors import DistdoctorError
from distdoctor.oom.estimate import estimate
from distdoctor.oom.estimate_tables import states_bytes
from distdoctor.oom.job import resolve
from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import Checkpointing, DataParallel, Optimizer, OptimizerLoop, Precision, Settings
from distdoctor.oom.shape import Model
from distdoctor.units import GIB

_PRESETS = {"Llama3.1-8B": "llama3-8b", "Llama3.1-70B": "llama3-70b", "Llama3.1-405B": "llama3-405b"}
_STAGES = {
    "baseline": DataParallel.DDP,
    "P_os": DataParallel.ZERO1,
    "P_os+g": DataParallel.ZERO2,
    "P_os+g+p": DataParallel.ZERO3,
}


@dataclass(frozen=True)
class ReservedResult:
    """A published reserved peak beside the estimate's range from allocated to reserved, in GiB."""

    id: str
    case: str
    measured: float
    allocated: float | None
    low: float = 0.0
    high: float = 0.0
    why: str = ""


def titan_result(row: Mapping[str, Any]) -> ReservedResult:
    """One row of TorchTitan's tables (Llama 3.1, H100 96 GB, December 2024)."""
    degrees = ", ".join(f"{name} {size}" for name, size in row["parallelism"].items() if size > 1)
    case = f"{row['model']}, {degrees}, {row['seq']} tokens x {row['local_batch']}, AC {row['ac']}"
    case += ", compiled" * bool(row.get("compile")) + ", float8" * bool(row.get("float8"))
    measured = float(row["peak_gib"])
    try:
        found = estimate(resolve(_titan_settings(row)))
    except (DistdoctorError, KeyError) as error:
        return ReservedResult(row["id"], case, measured, None, why=f"refused: {error}")
    peak = found.worst.peak.num_bytes / GIB
    low = peak + (found.slack.low_bytes / GIB if found.slack else 0)
    high = peak + (found.slack.high_bytes / GIB if found.slack else 0)
    return ReservedResult(row["id"], case, measured, peak, low, high, _titan_why(row, measured, low, high))


def _titan_settings(row: Mapping[str, Any]) -> Settings:
    degrees = row["parallelism"]
    pp = degrees.get("pp", 1)
    batch = row["local_batch"]
    # A local batch is cut into as many micro-batches as there are stages (TorchTitan's default of that time).
    micro_batches = pp if pp > 1 and batch % pp == 0 else 1
    return Settings(
        model=preset(_PRESETS[row["model"]]),
        world_size=row["gpus"],
        pp=pp,
        dp_shard=degrees.get("fsdp", 1),
        cp=degrees.get("cp", 1),
        tp=degrees.get("tp", 1),
        strategy=DataParallel.FSDP,
        precision=Precision.MIXED,
        optimizer=Optimizer.ADAMW,
        optimizer_loop=OptimizerLoop.FUSED,
        micro_batch=batch // micro_batches,
        accumulation_steps=micro_batches,
        seq_len=row["seq"],
        checkpointing=Checkpointing.FULL if row["ac"] == "full" else Checkpointing.SELECTIVE,
        loss_parallel=degrees.get("tp", 1) > 1,
        frees_logits=True,
        compiled=bool(row.get("compile")),
        fp8=bool(row.get("float8")),
    )


def _titan_why(row: Mapping[str, Any], measured: float, low: float, high: float) -> str:
    if low <= measured <= high:
        return "within the range"
    if measured < low and (row.get("compile") or row.get("float8")):
        return "below: compilation and float8 save what the formulas keep"
    return "below the range" if measured < low else "above the range"


def zero_results(row: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """(stage, GB as printed, GB by our formulas) of figure 1 of arXiv 1910.02054: 7.5e9 parameters on 64 ranks."""
    results = []
    for name, printed in row["values_gb"].items():
        settings = Settings(
            model=Model(name="7.5B", source="figure 1", stated_params=7_500_000_000),
            world_size=64,
            strategy=_STAGES[name],
            precision=Precision.MASTER,
            optimizer=Optimizer.ADAMW,
            **({"dp_replicate": 64} if name == "baseline" else {"dp_shard": 64}),
        )
        held = states_bytes(estimate(resolve(settings)).worst)
        results.append((name, float(printed), held / 1e9))
    return results
