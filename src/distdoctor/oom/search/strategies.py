"""Changes of what is shared and where it lives: strategy, shards, states of the optimizer, the host's memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distdoctor.oom.job import MEGATRON, Job
from distdoctor.oom.mesh import MAX_RANKS
from distdoctor.oom.search.change import Axis, Change, Effort
from distdoctor.oom.settings import DataParallel, Offload, Optimizer, Precision

# So many times more GPUs are looked at; who needs still more has another question. Our own choice.
MAX_SCALE = 64

_STAGES = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)
_PLAIN = (DataParallel.NONE, DataParallel.DDP, DataParallel.FSDP)
_SHARING = (DataParallel.FSDP, *_STAGES, DataParallel.MEGATRON_DISTRIBUTED)


def strategy(job: Job) -> Iterator[Change]:
    """Share more of the states."""
    mesh = job.mesh
    if job.strategy is DataParallel.DDP and mesh.dp > 1:
        yield Change(
            axis=Axis.STRATEGY,
            text="FSDP2 instead of DDP",
            short="FSDP2",
            effort=Effort.OTHER,
            said={
                "strategy": DataParallel.FSDP,
                "dp_shard": mesh.dp,
                "dp_replicate": 1,
                "reshard_after_forward": True,
            },
        )
    if job.strategy is DataParallel.MEGATRON and mesh.dp * mesh.cp > 1:
        yield Change(
            axis=Axis.STRATEGY,
            text="Megatron-LM's distributed optimizer",
            short="distributed optimizer",
            effort=Effort.OTHER,
            said={"strategy": DataParallel.MEGATRON_DISTRIBUTED},
        )
    if job.strategy in (DataParallel.ZERO1, DataParallel.ZERO2) and mesh.dp > 1:
        higher = _STAGES[_STAGES.index(job.strategy) + 1 :]
        for strength, stage in enumerate(higher, 1):
            name = f"ZeRO-{stage.value[-1]}"
            yield Change(
                axis=Axis.STRATEGY,
                strength=strength,
                price=strength,
                text=f"{name} instead",
                short=name,
                effort=Effort.OTHER,
                said={"strategy": stage},
            )


def shards(job: Job) -> Iterator[Change]:
    """HSDP: fewer replicas, each shared by more ranks."""
    mesh = job.mesh
    if job.strategy is not DataParallel.FSDP:
        return
    times, strength = 2, 1
    while mesh.dp_replicate % times == 0:
        shard, replicas = mesh.dp_shard * times, mesh.dp_replicate // times
        words = f"{replicas} replicas of them" if replicas > 1 else "one copy of the model over all"
        yield Change(
            axis=Axis.SHARDS,
            strength=strength,
            price=strength,
            text=f"shards over {shard} ranks instead of {mesh.dp_shard} ({words})",
            short=f"dp_shard={shard}",
            effort=Effort.OTHER,
            said={"dp_shard": shard, "dp_replicate": replicas},
        )
        times, strength = times * 2, strength + 1


def optimizer(job: Job) -> Iterator[Change]:
    """Fewer bits for moments."""
    if job.strategy in _PLAIN and job.optimizer is Optimizer.ADAMW and job.said.adapter is None:
        yield Change(
            axis=Axis.OPTIMIZER,
            text="8-bit AdamW (bitsandbytes, torchao)",
            short="8-bit AdamW",
            effort=Effort.OTHER,
            numerics="moments are rounded to 8 bit",
            said={"optimizer": Optimizer.ADAMW_8BIT},
        )


def frozen_bits(job: Job) -> Iterator[Change]:
    """Fewer bits for what is not trained."""
    adapter = job.said.adapter
    if adapter is not None and adapter.base_bits > 4:
        yield Change(
            axis=Axis.FROZEN_BITS,
            text="4-bit frozen weights (QLoRA)",
            short="4-bit weights",
            effort=Effort.OTHER,
            remark="slower matrix products",
            numerics="frozen weights are rounded to 4 bit",
            said={"adapter": replace(adapter, base_bits=4)},
        )


def offload(job: Job) -> Iterator[Change]:
    """States in host memory."""
    if job.offload_params is not Offload.NONE or job.offload_optimizer is not Offload.NONE:
        return
    both = {"offload_params": Offload.CPU, "offload_optimizer": Offload.CPU}
    if job.strategy in (DataParallel.FSDP, DataParallel.ZERO3):
        yield Change(
            axis=Axis.OFFLOAD,
            text="offload parameters and optimizer to the host"
            + (" (CPUOffloadPolicy)" if job.strategy is DataParallel.FSDP else ""),
            short="offload to the host",
            effort=Effort.HOST,
            remark="much slower steps",
            said=both,
        )
    if job.strategy in (DataParallel.ZERO1, DataParallel.ZERO2):
        yield Change(
            axis=Axis.OFFLOAD,
            text="offload the optimizer to the host",
            short="offload the optimizer",
            effort=Effort.HOST,
            remark="slower steps",
            said={"offload_optimizer": Offload.CPU},
        )
    # arXiv 2101.06840: a GPU alone holds 16-bit parameters and what is computed, the host the rest.
    if job.strategy in (DataParallel.NONE, DataParallel.DDP) and job.said.adapter is None:
        is_rounded = job.precision in (Precision.FP32, Precision.MIXED)
        yield Change(
            axis=Axis.OFFLOAD,
            text="DeepSpeed ZeRO-2 with the optimizer in host memory (ZeRO-Offload)",
            short="ZeRO-2, optimizer offloaded",
            effort=Effort.HOST,
            remark="slower steps",
            numerics="16-bit parameters with an fp32 master copy" if is_rounded else "",
            said={
                "strategy": DataParallel.ZERO2,
                "precision": Precision.MASTER,
                "dp_shard": job.mesh.dp,
                "dp_replicate": 1,
                "offload_optimizer": Offload.CPU,
            },
        )


def activation_offload(job: Job) -> Iterator[Change]:
    """Kept activations in host memory."""
    if job.shape is not None and not job.said.offload_activations and job.strategy not in MEGATRON:
        yield Change(
            axis=Axis.ACTIVATION_OFFLOAD,
            text="offload kept activations to the host (save_on_cpu)",
            short="activations offloaded",
            effort=Effort.HOST,
            remark="kept activations travel over PCIe",
            said={"offload_activations": True},
        )


def more_gpus(job: Job) -> Iterator[Change]:
    """Twice the GPUs, four times, …; only where they share states. One GPU becomes several that do."""
    times, strength = 2, 1
    while times <= MAX_SCALE and (change := scaled(job, times, strength=strength)) is not None:
        yield change
        times, strength = times * 2, strength + 1


def scaled(job: Job, times: int, *, strength: int) -> Change | None:
    """`times` as many GPUs; None where they would share nothing, or are more than any job has."""
    mesh, ranks = job.mesh, job.mesh.num_ranks
    alone = job.strategy is DataParallel.NONE and mesh.dp == 1
    if (job.strategy not in _SHARING and not alone) or ranks * times > MAX_RANKS:
        return None
    said: dict[str, object] = {"world_size": ranks * times, "dp_shard": mesh.dp_shard * times}
    if alone:
        said |= {"strategy": DataParallel.FSDP, "reshard_after_forward": True}
    return Change(
        axis=Axis.GPUS,
        strength=strength,
        price=strength,
        text=f"{ranks * times} GPUs instead of {ranks}{', with FSDP2' if alone else ''}",
        short=f"{ranks * times} GPUs{' with FSDP2' if alone else ''}",
        effort=Effort.GPUS,
        remark="twice the GPUs" if times == 2 else f"{times} times the GPUs",
        said=said,
    )
