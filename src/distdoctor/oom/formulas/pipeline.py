"""How many micro-batches a pipeline rank holds at once, and which layers lie on it."""

from __future__ import annotations

from distdoctor.oom.settings import Schedule


def in_flight_chunks(
    schedule: Schedule, *, num_stages: int, stage: int, num_micro_batches: int, virtual_stages: int = 1
) -> int:
    """Chunks (one micro-batch through one of the rank's virtual stages) whose activations wait for their backward.

    GPipe: all micro-batches. 1F1B: as many as there are stages from here to the end (arXiv 2104.04473). Zero bubble
    keeps in addition those whose weights' gradients are put off, so that every stage has as many as the first (arXiv
    2401.10241; torch/distributed/pipelining/schedules.py, `_get_1f1b_rank_ops`). Interleaved: warm-up of (p-r-1)*2 + (v-1)*p chunks and the one in hand (Megatron-LM,
    pipeline_parallel/schedules.py). ZB-V: the memory of 1F1B's first stage on all ranks, 2p half-sized chunks
    (arXiv 2405.15362).
    """
    total = num_micro_batches * virtual_stages
    match schedule:
        case Schedule.GPIPE:
            return total
        case Schedule.ONE_F_ONE_B:
            return min(total, (num_stages - stage) * virtual_stages)
        case Schedule.ZERO_BUBBLE:
            return min(total, num_stages * virtual_stages)
        case Schedule.INTERLEAVED:
            return min(total, (num_stages - stage - 1) * 2 + (virtual_stages - 1) * num_stages + 1)
        case Schedule.ZBV:
            return min(total, 2 * num_stages)


def put_off(schedule: Schedule, *, stage: int, num_micro_batches: int) -> int:
    """Micro-batches whose gradients of activations are computed and of weights are not: one for each stage before this
    one, in schedules that split the backward pass (`_get_1f1b_rank_ops`; in ZB-V at the end of a step). Zero bubble has
    one more in hand, but on the first stage, where there is nothing to split."""
    if schedule is Schedule.ZERO_BUBBLE and stage:
        return min(stage + 1, num_micro_batches)
    return min(stage, num_micro_batches) if schedule is Schedule.ZBV else 0


def rank_of_stage(virtual_stage: int, num_stages: int, schedule: Schedule) -> int:
    """The pipeline rank that holds a virtual stage: round robin, or down and up again for ZB-V."""
    if schedule is Schedule.ZBV and virtual_stage >= num_stages:
        return 2 * num_stages - 1 - virtual_stage
    return virtual_stage % num_stages


def layers_of_stages(num_layers: int, num_virtual_stages: int) -> list[range]:
    """Consecutive layers of each virtual stage; what does not divide goes to the first ones."""
    size, rest = divmod(num_layers, num_virtual_stages)
    stages: list[range] = []
    start = 0
    for stage in range(num_virtual_stages):
        count = size + (stage < rest)
        stages.append(range(start, start + count))
        start += count
    return stages
