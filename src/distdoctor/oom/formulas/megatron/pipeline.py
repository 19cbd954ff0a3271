"""Which chunks' activations a Megatron-LM pipeline rank holds, and which layers each chunk has.

Source: megatron-core 0.16.1, `pipeline_parallel/schedules.py` (`get_pp_rank_microbatches`, `get_schedule_table`) and
`transformer/transformer_block.py` (`get_num_layers_to_build`).
"""

from __future__ import annotations


def warm_up_chunks(*, pp: int, rank: int, virtual: int, extra: int = 0) -> int:
    """Chunks that go forward before the first one goes back. `extra`: 1 with overlapped expert communication."""
    if pp == 1:
        return 0
    if virtual == 1:
        return pp - rank - 1
    return (pp - rank - 1) * 2 + (virtual - 1) * pp + extra


def chunk_counts(
    *, pp: int, rank: int, virtual: int, num_micro_batches: int, extra: int = 0
) -> tuple[int, ...]:
    """For each of the rank's chunks, micro-batches in flight when memory is fullest: after the warm-up and one more.

    Micro-batches run in groups of `pp` through chunk after chunk; the last group takes what is left.
    """
    alive = min(
        warm_up_chunks(pp=pp, rank=rank, virtual=virtual, extra=extra) + 1, num_micro_batches * virtual
    )
    counts = [0] * virtual
    for start in range(0, num_micro_batches, pp):
        group = min(pp, num_micro_batches - start)
        for chunk in range(virtual):
            taken = min(group, alive)
            counts[chunk] += taken
            alive -= taken
        if not alive:
            break
    return tuple(counts)


def layers_of_chunks(
    num_layers: int,
    *,
    pp: int,
    virtual: int,
    first: int | None = None,
    last: int | None = None,
    counts_embedding: bool = False,
    counts_loss: bool = False,
    layout: tuple[str, ...] = (),
) -> list[range] | None:
    """Layers of each virtual stage in order; None when these settings cannot split so many layers.

    `first`, `last`: layers of the first and the last pipeline rank. `counts_embedding`, `counts_loss`: the embedding
    or the loss takes the place of a layer. `layout`: letters of each stage, `t` for a layer.
    """
    stages = pp * virtual
    if layout:
        sizes = [stage.count("t") for stage in layout]
        return _ranges(sizes) if len(sizes) == stages and sum(sizes) == num_layers else None
    if first is not None or last is not None:
        per_rank = _uneven_ranks(num_layers, pp, first, last)
        if per_rank is None or any(size % virtual for size in per_rank):
            return None
        return _ranges([per_rank[stage % pp] // virtual for stage in range(stages)])
    places = num_layers + counts_embedding + counts_loss
    if places % stages:
        return None
    sizes = [places // stages] * stages
    sizes[0] -= counts_embedding
    sizes[-1] -= counts_loss
    return _ranges(sizes)


def _uneven_ranks(num_layers: int, pp: int, first: int | None, last: int | None) -> list[int] | None:
    middle = pp - (first is not None) - (last is not None)
    rest = num_layers - (first or 0) - (last or 0)
    if rest < 0 or (middle == 0 and rest) or (middle and rest % middle):
        return None
    sizes = [rest // middle if middle else 0] * pp
    if first is not None:
        sizes[0] = first
    if last is not None:
        sizes[-1] = last
    return sizes


def _ranges(sizes: list[int]) -> list[range]:
    ranges, start = [], 0
    for size in sizes:
        ranges.append(range(start, start + size))
        start += size
    return ranges
