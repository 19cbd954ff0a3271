"""Every data-parallel strategy, in the order of tables; one file each."""

from __future__ import annotations

from distdoctor.oom.settings import DataParallel
from distdoctor.oom.strategies import ddp, fsdp2, megatron, single, zero1, zero2, zero3, zero_redundancy
from distdoctor.oom.strategies.base import Strategy

STRATEGIES: tuple[Strategy, ...] = (
    single.STRATEGY,
    ddp.STRATEGY,
    zero_redundancy.STRATEGY,
    zero1.STRATEGY,
    zero2.STRATEGY,
    zero3.STRATEGY,
    fsdp2.STRATEGY,
    megatron.PLAIN,
    megatron.DISTRIBUTED,
    megatron.FSDP,
)


def strategy_of(kind: DataParallel) -> Strategy:
    """The strategy of a kind. Raises KeyError for one that has no file."""
    return {strategy.kind: strategy for strategy in STRATEGIES}[kind]


def shards_parameters(kind: DataParallel) -> bool:
    """Whether a rank keeps a part of each parameter only."""
    return strategy_of(kind).shards_parameters
