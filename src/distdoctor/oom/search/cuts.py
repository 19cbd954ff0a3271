"""Changes of how the model is cut over the ranks that there are: tensor, context, pipeline, expert parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distdoctor.oom.job import MEGATRON, Job
from distdoctor.oom.mesh import Mesh
from distdoctor.oom.search.change import Axis, Change, Effort
from distdoctor.oom.settings import DataParallel, Schedule

# Tensor and context parallelism stay inside a host: NVLink, 8 GPUs.
HOST = 8
# From this length on a sequence is worth cutting. Our own choice: below it checkpointing is cheaper.
LONG_SEQUENCE = 16_384

_CUTTING = (DataParallel.FSDP, *MEGATRON)


def tensor(job: Job) -> Iterator[Change]:
    """tp 2, 4, 8, with sequence and loss parallelism."""
    shape = job.shape
    if shape is None or job.strategy not in _CUTTING:
        return
    for strength, times in enumerate((2, 4, 8), 1):
        size = job.mesh.tp * times
        said = _taken(job.mesh, times)
        # Heads of keys and values are split as well; where each head has its own there is no such bound.
        splits = shape.num_heads % size == 0 and (shape.mla is not None or shape.num_kv_heads % size == 0)
        if size > _host(job) or said is None or not splits:
            continue
        yield Change(
            axis=Axis.TENSOR,
            strength=strength,
            price=strength,
            text=f"tensor parallelism over {size} of these GPUs (tp={size})",
            short=f"tp={size}",
            effort=Effort.OTHER,
            said={**said, "tp": size, "sequence_parallel": True, "loss_parallel": True},
        )


def context(job: Job) -> Iterator[Change]:
    """cp 2, 4, 8 of long sequences."""
    if job.shape is None or job.strategy not in _CUTTING or job.seq_len < LONG_SEQUENCE:
        return
    for strength, times in enumerate((2, 4, 8), 1):
        size = job.mesh.cp * times
        said = _taken(job.mesh, times)
        # Load is balanced by giving each rank a piece from both ends.
        if size > _host(job) or said is None or job.seq_len % (2 * size):
            continue
        yield Change(
            axis=Axis.CONTEXT,
            strength=strength,
            price=strength,
            text=f"context parallelism over {size} of these GPUs (cp={size})",
            short=f"cp={size}",
            effort=Effort.OTHER,
            said={**said, "cp": size},
        )


def pipeline(job: Job) -> Iterator[Change]:
    """pp 2, 4, 8 where there is none, under 1F1B."""
    shape = job.shape
    if shape is None or job.strategy not in _CUTTING or job.mesh.pp > 1:
        return
    for strength, size in enumerate((2, 4, 8), 1):
        said = _taken(job.mesh, size)
        if said is None or size > shape.num_layers:
            continue
        yield Change(
            axis=Axis.PIPELINE,
            strength=strength,
            price=strength + 1,
            text=f"pipeline parallelism over {size} of these GPUs (pp={size}, 1F1B)",
            short=f"pp={size}",
            effort=Effort.OTHER,
            said={
                **said,
                "pp": size,
                "schedule": Schedule.ONE_F_ONE_B,
                "virtual_stages": None,
                # As TorchTitan does it: gathering for each micro-batch again would cost more than the pipeline saves.
                "reshard_after_forward": False,
            },
        )


def schedule(job: Job) -> Iterator[Change]:
    """A schedule that keeps fewer micro-batches."""
    if job.mesh.pp == 1:
        return
    if job.schedule is Schedule.GPIPE:
        yield Change(
            axis=Axis.SCHEDULE,
            strength=1,
            text="the interleaved 1F1B schedule instead of GPipe, 2 virtual stages",
            short="interleaved 1F1B",
            said={"schedule": Schedule.INTERLEAVED, "virtual_stages": 2},
        )
    if job.schedule in (Schedule.GPIPE, Schedule.INTERLEAVED):
        name = "GPipe" if job.schedule is Schedule.GPIPE else "the interleaved one"
        yield Change(
            axis=Axis.SCHEDULE,
            strength=2,
            text=f"the 1F1B schedule instead of {name}",
            short="1F1B",
            said={"schedule": Schedule.ONE_F_ONE_B, "virtual_stages": None},
        )


def experts(job: Job) -> Iterator[Change]:
    """ep 2, 4, 8: whole experts on fewer ranks, so that less is gathered at once."""
    shape, mesh = job.shape, job.mesh
    if shape is None or shape.moe is None or mesh.ep > 1 or mesh.etp > 1 or job.strategy not in _CUTTING:
        return
    for strength, size in enumerate((2, 4, 8), 1):
        if shape.moe.num_experts % size or (mesh.dp_shard * mesh.cp * mesh.tp) % size or size > _host(job):
            continue
        yield Change(
            axis=Axis.EXPERTS,
            strength=strength,
            price=strength,
            text=f"expert parallelism over {size} of these GPUs (ep={size})",
            short=f"ep={size}",
            effort=Effort.OTHER,
            remark="a crowded expert fills its rank",
            said={"ep": size},
        )


def _taken(mesh: Mesh, times: int) -> dict[str, Any] | None:
    """Data-parallel ranks divided by `times`, shards first; None where they do not divide."""
    if mesh.dp_shard % times == 0:
        return {"dp_shard": mesh.dp_shard // times}
    if mesh.dp % times == 0 and times % mesh.dp_shard == 0:
        return {"dp_shard": 1, "dp_replicate": mesh.dp // times}
    return None


def _host(job: Job) -> int:
    """GPUs of a host."""
    return min(HOST, job.said.gpus_per_node or HOST)
