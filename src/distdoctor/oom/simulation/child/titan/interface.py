"""What is called of TorchTitan, imported by name: where a version has no such thing, the error says which."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from distdoctor.oom.simulation.torchtitan import INSTALL, TitanModel
from distdoctor.oom.training.base import CannotRunError
from distdoctor.torch_private.distributed import say_device_type

SEEN = "0.3.0"
"""The version that these names were read in."""

# Fields of `Titan`, by where they are.
_NAMES = {
    "trainer": "torchtitan.trainer:Trainer",
    "training": "torchtitan.config.configs:TrainingConfig",
    "parallelism": "torchtitan.config.configs:ParallelismConfig",
    "parallel_dims": "torchtitan.distributed:ParallelDims",
    "selective": "torchtitan.distributed.activation_checkpoint:SelectiveAC",
    "full": "torchtitan.distributed.activation_checkpoint:FullAC",
    "cross_entropy": "torchtitan.components.loss:CrossEntropyLoss",
    "chunked_loss": "torchtitan.components.loss:ChunkedLossWrapper",
    "adamw": "torchtitan.components.optimizer:default_adamw",
    "set_backend": "torchtitan.distributed.utils:set_spmd_backend",
    "step_context": "torchtitan.distributed.utils:get_spmd_context",
    "clip_gradients": "torchtitan.distributed.utils:clip_grad_norm_",
    "attention": "torchtitan.models.common.attention:FlexAttention",
    "norm": "torchtitan.models.common.nn_modules:RMSNorm",
    "pipelines": "torchtitan.distributed.pipeline_parallel",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Titan:
    """Any: classes and functions of a package that is not there when types are checked."""

    version: str
    spec: Any
    """ModelSpec: `model` (a configuration), `parallelize_fn`, `pipelining_fn`."""
    trainer: Any
    training: Any
    parallelism: Any
    parallel_dims: Any
    selective: Any
    full: Any
    cross_entropy: Any
    chunked_loss: Any
    adamw: Any
    set_backend: Any
    step_context: Any
    clip_gradients: Any
    attention: Any
    norm: Any
    pipelines: Any
    """The module."""


def titan_for(model: TitanModel) -> Titan:
    """TorchTitan as it is installed, told that its device is the CPU. Raises CannotRunError."""
    try:
        found = version("torchtitan")
    except PackageNotFoundError:
        raise CannotRunError(f"torchtitan is not installed in this Python; {INSTALL}") from None
    say_device_type("cpu")
    registry = _load(f"torchtitan.models.{model.family}:model_registry", found)
    names = {field: _load(place, found) for field, place in _NAMES.items()}
    return Titan(version=found, spec=_spec(registry, model), **names)


def _load(place: str, found: str) -> Any:
    module_name, _, name = place.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or "a module"
        if missing.startswith("torchtitan"):
            raise CannotRunError(f"torchtitan {found} has no {missing}; {SEEN} has") from None
        raise CannotRunError(
            f"torchtitan {found} cannot be imported: {missing} is missing; pip install {missing.partition('.')[0]}"
        ) from None
    except ImportError as error:
        raise CannotRunError(
            f"torchtitan {found} cannot be imported beside this torch: {_first_line(error)}"
        ) from None
    if not name:
        return module
    value = getattr(module, name, None)
    if value is None:
        raise CannotRunError(f"torchtitan {found} has no {name} in {module_name}; {SEEN} has")
    return value


def _spec(registry: Any, model: TitanModel) -> Any:
    """Flavors are spelled as in TorchTitan, or without regard to case."""
    module = importlib.import_module(f"torchtitan.models.{model.family}")
    table = getattr(module, f"{model.family}_configs", None)
    flavors = list(table) if isinstance(table, dict) else [model.flavor]
    flavor = next((each for each in flavors if each.lower() == model.flavor.lower()), None)
    if flavor is None:
        raise CannotRunError(
            f"TorchTitan's {model.family} has no flavor {model.flavor}; it has {', '.join(flavors[:12])}"
        )
    try:
        return registry(flavor)
    except (TypeError, ValueError, KeyError) as error:
        raise CannotRunError(f"TorchTitan's {model} cannot be configured: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[
        :200
    ]
