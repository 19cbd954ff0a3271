"""Which layers are enough? Of many equal ones a few stand for all: those at the ends, and one in the middle with its
neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from distdoctor.oom.job import Job
from distdoctor.oom.settings import DataParallel

# The first layer and the last are special, and FSDP2 prefetches one ahead: the middle one of five has two regular
# neighbours on each side in both directions.
_KEPT, _TEMPLATE = 5, 2
# Pipelines keep parameters gathered from one micro-batch to the next and prefetch nothing, so that the second of four
# will do; there every layer runs once for each micro-batch, and one less counts.
_KEPT_WITHOUT_PREFETCH, _TEMPLATE_WITHOUT_PREFETCH = 4, 1
# Strategies that lay all layers into one buffer have no layer that stands for others.
_FOLDABLE = (DataParallel.NONE, DataParallel.FSDP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Layers to build for each virtual stage of one rank, and how often a template is then repeated."""

    chunks: tuple[tuple[int, ...], ...]
    extra: dict[int, int]
    """Template, as a position among the layers that are built; how many more of it there are."""
    num_layers: int
    """Of the rank, unfolded."""

    @property
    def num_built(self) -> int:
        """Layers that are built."""
        return sum(len(chunk) for chunk in self.chunks)

    @property
    def is_whole(self) -> bool:
        """Nothing is left out."""
        return not self.extra


def fold_of(job: Job, chunks: Sequence[Sequence[int]], *, more: int = 0) -> Fold:
    """The fewest layers of these virtual stages that stand for all; `more` adds some to every run that is folded, for
    the check."""
    whole = tuple(tuple(chunk) for chunk in chunks)
    num_layers = sum(len(chunk) for chunk in whole)
    if job.strategy not in _FOLDABLE or job.said.checkpoint_layers is not None:
        return Fold(chunks=whole, extra={}, num_layers=num_layers)
    prefetches = job.mesh.pp == 1 or job.reshard_after_forward
    keeps, template = (
        (_KEPT, _TEMPLATE) if prefetches else (_KEPT_WITHOUT_PREFETCH, _TEMPLATE_WITHOUT_PREFETCH)
    )
    built: list[tuple[int, ...]] = []
    extra: dict[int, int] = {}
    position = 0
    for chunk in whole:
        kept: list[int] = []
        for _, run in groupby(chunk, key=job.known_shape.has_experts):
            layers = list(run)
            keep = min(len(layers), keeps + more)
            if len(layers) > keep:
                extra[position + len(kept) + template] = len(layers) - keep
            kept += layers[:keep]
        built.append(tuple(kept))
        position += len(kept)
    return Fold(chunks=tuple(built), extra=extra, num_layers=num_layers)
