"""TorchTitan's own model, simulated, beside our own and beside what TorchTitan published.

    python benchmarks/oom_torchtitan.py

Needs torchtitan and triton beside torch, no GPU; some two minutes of one CPU. Published rows are those of
https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md: H100 of 96 GB, max_reserved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from distdoctor.oom.settings import Checkpointing, Precision, Settings
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.oom.simulation.run import simulated_facts
from distdoctor.oom.simulation.torchtitan import parse_titan, titan_settings
from distdoctor.units import GIB

_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published one, or one of ours (no figure)."""

    words: str
    flavor: str
    said: Settings
    published_gib: float | None = None
    is_eager: bool = True
    """Published without torch.compile and float8, as the simulation is."""


_8B = Settings(micro_batch=2, seq_len=8192, checkpointing=Checkpointing.SELECTIVE, precision=Precision.MIXED)


def _rows() -> list[Row]:
    full = replace(_8B, checkpointing=Checkpointing.FULL)
    return [
        Row(words="8B, 8 GPUs, selective, eager", flavor="8B", said=replace(_8B, world_size=8), published_gib=82.4),
        Row(words="8B, 128 GPUs, selective, eager", flavor="8B", said=replace(_8B, world_size=128), published_gib=67.0),
        Row(
            words="8B, 8 GPUs, selective, compiled",
            flavor="8B",
            said=replace(_8B, world_size=8),
            published_gib=77.0,
            is_eager=False,
        ),
        Row(
            words="70B, 256 GPUs, tp 8, full, 16 sequences, compiled, float8",
            flavor="70B",
            said=replace(full, world_size=256, tp=8, micro_batch=16),
            published_gib=71.9,
            is_eager=False,
        ),
        Row(words="8B, 8 GPUs, no checkpointing, 1 sequence", flavor="8B", said=replace(_8B, world_size=8, micro_batch=1, checkpointing=Checkpointing.NONE)),
        Row(words="8B, 8 GPUs, full", flavor="8B", said=replace(full, world_size=8)),
        Row(words="8B, 8 GPUs, full, loss in chunks", flavor="8B", said=replace(full, world_size=8, fused_loss=True)),
        Row(words="8B, 16 GPUs, tp 2, selective", flavor="8B", said=replace(_8B, world_size=16, tp=2)),
        Row(words="8B, 16 GPUs, 2 replicas, full", flavor="8B", said=replace(full, world_size=16, dp_replicate=2)),
    ]  # fmt: skip


def main() -> None:
    """Print the table in Markdown."""
    print(
        "| job | published | reserved: TorchTitan | ours | estimate | allocated: TorchTitan | ours | estimate |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in _rows():
        print(_line(row), flush=True)


def _line(row: Row) -> str:
    model = parse_titan(f"llama3:{row.flavor}")
    settings = titan_settings(model, row.said)
    theirs = simulated_facts(settings, None, timeout_s=_TIMEOUT_S, checks_itself=False, torchtitan=model)
    ours = simulated_facts(settings, None, timeout_s=_TIMEOUT_S, checks_itself=False)
    published = f"{row.published_gib:.1f}" if row.published_gib is not None else "-"
    reserved = [_reserved(facts) for facts in (theirs, ours)]
    off = ""
    if row.published_gib is not None and row.is_eager and reserved[0] is not None:
        off = f" ({100 * (reserved[0] / row.published_gib - 1):+.1f} %)"
    elif row.published_gib is not None and not row.is_eager:
        off = " (not the same)"
    estimate = theirs.estimate
    peak = estimate.worst.peak.num_bytes / GIB if estimate is not None else None
    slack = "-"
    if estimate is not None and peak is not None and estimate.slack is not None:
        low, high = (peak + each / GIB for each in (estimate.slack.low_bytes, estimate.slack.high_bytes))
        slack = f"{low:.1f} to {high:.1f}"
    cells = [
        row.words,
        published,
        f"{_cell(reserved[0])}{off}",
        _cell(reserved[1]),
        slack,
        _cell(_allocated(theirs)),
        _cell(_allocated(ours)),
        _cell(peak),
    ]
    return f"| {' | '.join(cells)} |"


def _reserved(facts: SimulationFacts) -> float | None:
    if facts.simulation.failures:
        print(f"<!-- {facts.simulation.failures[0].reason} -->")
    return max((facts.reserved_bytes(role) / GIB for role in facts.simulation.roles), default=None)


def _allocated(facts: SimulationFacts) -> float | None:
    return max((role.peak.num_bytes / GIB for role in facts.simulation.roles), default=None)


def _cell(gib: float | None) -> str:
    return f"{gib:.1f}" if gib is not None else "-"


if __name__ == "__main__":
    main()
