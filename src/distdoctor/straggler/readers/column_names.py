"""The words that name columns of timing tables, as training scripts and tools write them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from distdoctor.straggler.facts.sections import Section


class Said(Enum):
    """How much a name says about waiting inside a time."""

    EXACTLY = "the name tells whether waiting is inside"
    LOOSELY = "the name does not tell"
    BOTH_PASSES = "forward and backward in one"


@dataclass(frozen=True, slots=True)
class TimeName:
    """What a name of a time stands for."""

    section: Section
    said: Said = Said.EXACTLY
    is_part: bool = False
    """One of several that add up, as all-reduce and all-gather add up to communication."""
    is_weak: bool = False
    """A common word that is a time only where a unit stands beside it: "load", "total"."""


# Numbers of steps, the likeliest first.
STEP_NUMBERS = (
    "global_step",
    "step_number",
    "step_num",
    "step_id",
    "step_idx",
    "step_index",
    "step",
    "train_step",
    "training_step",
    "iteration",
    "iter",
    "iter_num",
    "iteration_number",
    "it",
    "i",
    "batch_idx",
    "batch_id",
)

# Of these, those that people also use for the time of a step: `step` beside a column `i`.
NUMBER_OR_TIME = frozenset({"step", "iteration", "iter", "it"})

RANKS = frozenset({"rank", "global_rank", "rank_id", "rankid", "world_rank", "rank_global"})
HOSTS = frozenset({"host", "hostname", "host_name", "node", "nodename", "node_name", "machine", "server"})
PODS = frozenset({"pod", "pod_name"})
LOCAL_RANKS = frozenset({"local_rank", "localrank", "rank_local"})
GPUS = frozenset(
    {"gpu", "gpu_index", "gpu_idx", "gpu_id", "device", "device_index", "device_id", "cuda_device"}
)
GPU_UUIDS = frozenset({"gpu_uuid", "uuid", "device_uuid"})
GPU_PCIS = frozenset({"pci", "gpu_pci", "pci_bus_id", "pci_address", "gpu_pci_bus_id", "bus_id"})
GPU_MODELS = frozenset({"gpu_model", "gpu_name", "gpu_type", "device_name"})
WORLD_SIZES = frozenset({"world_size", "worldsize", "num_ranks", "nranks", "n_ranks", "world"})
ATTEMPTS = frozenset({"attempt", "restart_count", "restart", "restarts", "attempt_id", "incarnation"})

_DIMENSIONS = {
    "dp": ("data_parallel", "data"),
    "dp_replicate": ("replicate",),
    "dp_shard": ("fsdp", "shard"),
    "pp": ("pipeline_parallel", "pipeline_model_parallel", "pipeline", "pp_stage", "pipeline_stage", "stage"),
    "tp": ("tensor_parallel", "tensor_model_parallel", "model_parallel", "tensor", "mp"),
    "cp": ("context_parallel", "context"),
    "ep": ("expert_parallel", "expert_model_parallel", "expert"),
}
# `dp`, `dp_rank` and, for the long words, only with `_rank` behind them: `data` alone is a time.
COORDS = {
    word: dimension
    for dimension, long_words in _DIMENSIONS.items()
    for word in (
        dimension,
        f"{dimension}_rank",
        f"{dimension}_coord",
        f"{dimension}_index",
        *(f"{long}_rank" for long in long_words),
    )
} | {"stage": "pp", "pp_stage": "pp", "pipeline_stage": "pp"}

# When a step began, by the clock.
CLOCKS = frozenset(
    {
        "ts",
        "timestamp",
        "start_ts",
        "start_time",
        "started",
        "started_at",
        "start",
        "utc",
        "time_utc",
        "utc_time",
        "datetime",
        "date",
        "begin_ts",
        "begin",
        "epoch_time",
        "unix_time",
    }
)
# A time of day where the values are one, and else the time of a step.
CLOCK_OR_TIME = frozenset({"time", "t", "wall_time", "wall", "wallclock", "wall_clock"})


def _names(section: Section, *words: str, **said: bool | Said) -> dict[str, TimeName]:
    return {word: TimeName(section, **said) for word in words}  # type: ignore[arg-type]  # keywords of one dataclass


# Names without their unit and without "time", "duration" or "t_" around them.
TIMES: dict[str, TimeName] = (
    _names(Section.STEP, "step", "iteration", "iter", "it", "total_step", "step_total", "train_step")
    | _names(
        Section.STEP, "training_step", "step_wall", "wall_step", "iter_wall", "step_elapsed", "full_step"
    )
    | _names(Section.STEP, "total", "elapsed", "duration", "dur", "batch", is_weak=True)
    | _names(Section.DATA, "data", "dataloader", "data_loader", "dataload", "data_load", "data_loading")
    | _names(
        Section.DATA, "data_wait", "data_fetch", "fetch_data", "input_wait", "dataloader_wait", "get_batch"
    )
    | _names(Section.DATA, "fetching_batch", "fetch_batch", "next_batch", "batch_load", "batch_generator")
    | _names(Section.DATA, "load", "loader", "input", "fetch", is_weak=True)
    | _names(Section.H2D, "h2d", "to_device", "host_to_device", "batch_to_device", "memcpy_h2d")
    | _names(Section.H2D, "copy", is_weak=True)
    | _names(Section.FORWARD, "fwd", "forward", "fw", "fprop", "forward_pass", "fwd_pass", said=Said.LOOSELY)
    | _names(Section.FORWARD, "model_forward", "fwd_compute", "forward_compute", said=Said.LOOSELY)
    | _names(Section.FORWARD, "fwd_local", "forward_local", "fwd_own", "forward_own")
    | _names(Section.FORWARD_WALL, "fwd_wall", "forward_wall", "fwd_total", "forward_total")
    | _names(
        Section.BACKWARD, "bwd", "backward", "bw", "bprop", "backward_pass", "bwd_pass", said=Said.LOOSELY
    )
    | _names(Section.BACKWARD, "model_backward", "loss_backward", said=Said.LOOSELY)
    | _names(Section.BACKWARD, "bwd_local", "backward_local", "bwd_own", "backward_own", "bwd_compute")
    | _names(Section.BACKWARD, "backward_compute", "grads_ready", "grad_ready", "local_grads_ready")
    | _names(Section.BACKWARD_WALL, "bwd_wall", "backward_wall", "bwd_total", "backward_total")
    | _names(Section.COMPUTE, "compute", "computation", "kernel", "kernels", said=Said.LOOSELY)
    | _names(Section.COMPUTE, "gpu_compute", "gpu_kernel", said=Said.LOOSELY)
    | _names(Section.COMPUTE, "gpu", "device", said=Said.LOOSELY, is_weak=True)
    | _names(Section.COMPUTE, "fwd_bwd", "forward_backward", "fwdbwd", "fwd_and_bwd", said=Said.BOTH_PASSES)
    | _names(Section.OPTIMIZER, "opt", "optim", "optimizer", "optimiser", "optimizer_step", "optim_step")
    | _names(Section.OPTIMIZER, "opt_step", "update", is_weak=True)
    | _names(Section.CHECKPOINT, "ckpt", "checkpoint", "checkpoint_save", "ckpt_save", "save_checkpoint")
    | _names(Section.CHECKPOINT, "save", is_weak=True)
    | _names(Section.GC, "gc", "gc_pause", "gc_collect", "garbage_collection")
    | _names(Section.IDLE, "idle", "gpu_idle", "device_idle", is_weak=True)
    | _names(Section.OTHER, "other", "log", "logging", "misc", is_weak=True, is_part=True)
    | _names(Section.OTHER, "zero_grad", is_part=True)
    | _names(
        Section.WAIT, "wait", "sync", "comm_wait", "sync_wait", "collective_wait", "nccl_wait", "exposed_wait"
    )
    | _names(Section.WAIT, "fwd_wait", "forward_wait", "bwd_wait", "backward_wait", is_part=True)
    | _names(Section.WAIT, "allreduce_wait", "all_reduce_wait", "barrier", "barrier_wait", is_part=True)
    | _names(Section.TRANSFER, "transfer", "xfer", "comm_transfer")
    | _names(
        Section.COMM,
        "exposed_comm",
        "exposed_communication",
        "comm_exposed",
        "comm",
        "communication",
        "comms",
    )
    | _names(Section.COMM, "nccl", "rccl", "grad_sync", "gradient_sync", "collective", "collectives")
    | _names(
        Section.COMM, "allreduce", "all_reduce", "grad_allreduce", "allgather", "all_gather", is_part=True
    )
    | _names(Section.COMM, "reduce_scatter", "reducescatter", "all_to_all", "alltoall", "p2p", is_part=True)
    | _names(Section.COMM, "send_recv", "sendrecv", is_part=True)
)
