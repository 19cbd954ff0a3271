"""ZeRO-1, 2 and 3 by DeepSpeed's own engine, where it is installed and tensors are real.

Seen with DeepSpeed 0.19.8: on CPUs over Gloo and on CUDA over NCCL, on the process group that is there already.
DeepSpeed's engine looks at values and addresses, so it does not run under fake tensors: training/partitioned.py
follows its design there, and stands in for it where it is missing.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.job import Job
from distdoctor.oom.settings import DataParallel, Offload, Precision
from distdoctor.oom.training.base import CannotRunError, World
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.optimizers import optimizer_class

STAGES = {DataParallel.ZERO1: 1, DataParallel.ZERO2: 2, DataParallel.ZERO3: 3}
_NEVER = 1 << 30
# DeepSpeed would compile it with the first process group on a CPU; Gloo's collectives do.
_SHARED_MEMORY_OP = "deepspeed_shm_comm"


def why_not_deepspeed(world: World) -> str | None:
    """Why DeepSpeed's engine does not run here, in one line; None: it does."""
    if not world.communicates or world.is_fake:
        return "DeepSpeed's engine does not run on simulated ranks"
    if importlib.util.find_spec("deepspeed") is None:
        return "deepspeed is not installed: pip install 'distdoctor[deepspeed]'"
    others = [name for name in ("pp", "cp", "tp", "ep") if getattr(world.job.mesh, name) > 1]
    if others:
        return f"DeepSpeed's engine is run with data parallelism only, not with {', '.join(others)}"
    return None


class DeepSpeedZero(DataParallelism):
    """DeepSpeed's engine around the model. The optimizer is torch's, so that nothing is compiled."""

    engine: Any = None

    def prepare(self) -> None:
        """Let DeepSpeed flatten or cut the parameters and make its optimizer."""
        config = config_of(self.world.job)
        kind, arguments = optimizer_class(self.world.job)
        with quiet():
            deepspeed = _import_deepspeed(self.world.device)
            if self.world.job.strategy is DataParallel.ZERO3 and self.world.job.said.meta_init is not False:
                # Cut parameter by parameter, as zero.Init does.
                deepspeed.zero.Init(module=self.models[0], config_dict_or_path=config, dtype=_dtype(self))
            self.engine, _, _, _ = deepspeed.initialize(
                model=self.models[0],
                optimizer=kind(self.parameters(), **arguments),
                config=config,
                dist_init_required=False,
            )
        self.modules = [self.engine]
        self._label_resident()
        self._watch()

    def computing(self) -> contextlib.AbstractContextManager[object]:
        """16-bit parameters need no autocast."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        """The engine is told which micro-batch is the last before its step."""
        self.engine.set_gradient_accumulation_boundary(is_last)
        yield
        self.observer.label(self.gradients(), Category.GRADIENTS)

    def backward(self, loss: torch.Tensor) -> None:
        """By the engine, which divides by the number of micro-batches."""
        with quiet():
            self.engine.backward(loss)

    def gradients(self) -> list[torch.Tensor]:
        """The partition's gradients, and what parameters have as `.grad`."""
        optimizer = self.engine.optimizer
        kept = [*_tensors(getattr(optimizer, "all_grad_tensors", None))]
        kept += _tensors(getattr(optimizer, "averaged_gradients", None))
        kept += _tensors(getattr(optimizer, "grad_partitions_flat_buffer", None))
        return kept + super().gradients()

    def states(self) -> Iterable[tuple[nn.Parameter, torch.Tensor]]:
        """The fp32 partitions and their moments; a flat partition belongs to itself, for it has many layers' parts."""
        optimizer = self.engine.optimizer
        masters = [
            *_tensors(getattr(optimizer, "single_partition_of_fp32_groups", None)),
            *_tensors(getattr(optimizer, "fp32_partitioned_groups_flat", None)),
        ]
        found: list[tuple[nn.Parameter, torch.Tensor]] = []
        for master in masters:
            state = optimizer.optimizer.state.get(master, {})
            found += [(master, each) for each in (master, *_tensors(state))]
        return found

    def step(self) -> None:
        """The engine's step, which drops gradients."""
        with quiet():
            self.engine.step()

    def close(self) -> None:
        """Hooks off."""
        if self.engine is not None:
            with quiet():
                self.engine.destroy()
                _forget_groups()
            self.engine = None

    # What is what. DeepSpeed's attributes may go; then bytes are told apart by where they lived.

    def _label_resident(self) -> None:
        optimizer = self.engine.optimizer
        for name in ("bit16_groups_flat", "lp_param_buffer", "fp16_partitioned_groups_flat"):
            self.observer.label(_tensors(getattr(optimizer, name, None)), Category.PARAMETERS)
        self.observer.label(self.gradients(), Category.GRADIENTS)
        self._label_buffers()

    def _label_buffers(self) -> None:
        buckets = getattr(self.engine.optimizer, "ipg_buckets", {})
        for bucket in buckets.values():
            self.observer.label(_tensors(getattr(bucket, "buffer", None)), Category.COMMUNICATION)
        self.observer.label(
            _tensors(getattr(self.engine.optimizer, "grads_in_partition", None)), Category.GRADIENTS
        )

    def _label_gathered(self, parameters: Iterable[nn.Parameter]) -> None:
        if self.world.job.strategy is DataParallel.ZERO3:
            self.observer.label((each.data for each in parameters if each.numel()), Category.GATHERED)
            registry = getattr(self.models[0], "ds_inflight_param_registry", {})
            for handle in set(registry.values()):
                for each in (handle, *getattr(handle, "handles", ())):
                    self.observer.label(_tensors(getattr(each, "partitions", None)), Category.GATHERED)

    def _watch(self) -> None:
        """After DeepSpeed's own hooks have run."""

        def entered(module: nn.Module, _inputs: object) -> None:
            self._label_gathered(module.parameters(recurse=False))

        def accumulated(parameter: torch.Tensor) -> None:
            self._label_gathered((parameter,))
            self._label_buffers()

        for module in self.models[0].modules():
            if any(True for _ in module.parameters(recurse=False)):
                module.register_forward_pre_hook(entered)
        for parameter in self.parameters():
            parameter.register_post_accumulate_grad_hook(accumulated)


def config_of(job: Job) -> dict[str, Any]:
    """DeepSpeed's configuration of a job. Raises CannotRunError for types that its ZeRO optimizers do not keep."""
    if job.precision not in (Precision.MASTER, Precision.FP32):
        raise CannotRunError(
            f"DeepSpeed's engine is run with 16-bit parameters and an fp32 master copy, or in fp32, not {job.precision.value}"
        )
    return {
        "train_micro_batch_size_per_gpu": job.micro_batch,
        "gradient_accumulation_steps": job.num_micro_batches,
        "bf16": {"enabled": job.precision is Precision.MASTER},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        # No other strategy here clips; DeepSpeed does by default.
        "gradient_clipping": 0.0,
        "zero_optimization": _zero_config(job),
        "steps_per_print": _NEVER,
    }


def _zero_config(job: Job) -> dict[str, Any]:
    said = job.said
    stage = STAGES[job.strategy]
    config: dict[str, Any] = {
        "stage": stage,
        "reduce_bucket_size": said.reduce_bucket_elements,
        "allgather_bucket_size": said.allgather_bucket_elements,
        "overlap_comm": said.overlap_comm,
    }
    if job.offload_optimizer is Offload.CPU:
        config["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if stage == 3:
        config |= {
            "stage3_prefetch_bucket_size": said.prefetch_bucket_elements,
            "stage3_param_persistence_threshold": said.persistence_threshold_elements,
            "stage3_max_live_parameters": said.max_live_elements,
            "stage3_max_reuse_distance": said.max_reuse_elements,
        }
        if job.offload_params is Offload.CPU:
            config["offload_param"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    return {key: value for key, value in config.items() if value is not None}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """DeepSpeed logs and prints to stdout, where our own output may be JSON; here that is stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _import_deepspeed(device: torch.device) -> Any:
    """DeepSpeed for this device, with nothing left to compile. Raises CannotRunError where it cannot be imported."""
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    try:
        deepspeed = importlib.import_module("deepspeed")
    except Exception as error:  # whatever its import finds wrong with this machine
        raise CannotRunError(f"deepspeed cannot be imported: {error}") from error
    ops = getattr(importlib.import_module("deepspeed.ops"), "__compatible_ops__", {})
    ops[_SHARED_MEMORY_OP] = False
    return deepspeed


def _dtype(data: DataParallelism) -> torch.dtype:
    return data.parameters()[0].dtype


def _tensors(found: Any) -> list[torch.Tensor]:
    """The tensors in whatever DeepSpeed keeps them in."""
    if isinstance(found, torch.Tensor):
        return [found]
    if isinstance(found, dict):
        found = found.values()
    if not isinstance(found, list | tuple | set | type({}.values())):
        return []
    return [tensor for each in found for tensor in _tensors(each)]


def _forget_groups() -> None:
    """DeepSpeed keeps process groups in module globals; the next program brings a default group of its own."""
    from deepspeed.comm import comm
    from deepspeed.utils import groups

    comm.cdb = None
    groups._WORLD_GROUP = None
    groups.mesh_device = None
    for name in ("_ALL_TO_ALL_GROUP", "_EXPERT_PARALLEL_GROUP", "_EXPERT_DATA_PARALLEL_GROUP"):
        getattr(groups, name, {}).clear()
