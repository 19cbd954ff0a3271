"""From the user's function to a module whose parameters take no memory: three ways, until one works."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from distdoctor.oom.simulation.child.own import code
from distdoctor.oom.simulation.child.own.batch import Batch, batch_of_module, batch_of_shapes, batch_of_value
from distdoctor.oom.simulation.child.own.errors import OwnModuleError
from distdoctor.oom.simulation.child.own.tensors import parameters_on_meta
from distdoctor.oom.simulation.inputs import FunctionName, Inputs
from distdoctor.torch_private.fake_tensors import modules_convert_by_replacing, outside_modes

Way = tuple[str, Callable[[], "contextlib.AbstractContextManager[object]"]]


@dataclass(slots=True, kw_only=True)
class Built:
    """A module, what forward is called with (None: nobody said), and how it was built."""

    module: nn.Module
    batch: Batch | None
    how: str
    is_fake: bool
    """Its parameters are fake tensors already."""
    notes: list[str]


def build(name: FunctionName, folder: Path, inputs: Inputs) -> Built:
    """Call it inside the fake mode that is entered. Raises OwnModuleError."""
    with outside_modes():
        function = code.load(name, folder)
    notes: list[str] = []
    if isinstance(function, nn.Module):
        value: Any = function
        how, is_fake = "as the file holds it", False
    else:
        with modules_convert_by_replacing():
            value, how, is_fake = _call(function, name, folder)
        if not is_fake:
            notes.append("it could not be built under fake tensors")
    module, said = _taken_apart(value, name)
    module = _unwrapped(module, notes)
    # What the function gave with the module is overruled by what was said on the command line.
    batch = _batch(inputs, folder) if inputs else batch_of_value(said) if said is not None else None
    batch = batch or batch_of_module(module)
    return Built(
        module=module.train(),
        batch=batch.with_values() if batch is not None else None,
        how=how,
        is_fake=is_fake,
        notes=notes,
    )


def _call(function: Any, name: FunctionName, folder: Path) -> tuple[Any, str, bool]:
    """Its result, how it was built, and whether under fake tensors. The first failure tells most."""
    first: OwnModuleError | None = None
    for how, around in _WAYS:
        try:
            with around():
                return code.call(function, name, folder), how, around is contextlib.nullcontext
        except OwnModuleError as error:
            first = first or error
            if not error.may_be_of_fake_tensors:
                break
    raise first if first is not None else OwnModuleError("there is no way to build it")


@contextlib.contextmanager
def _parameters_on_meta() -> Any:
    with outside_modes(), parameters_on_meta():
        yield


@contextlib.contextmanager
def _all_on_meta() -> Any:
    with outside_modes(), torch.device("meta"):
        yield


_WAYS: tuple[Way, ...] = (
    ("under fake tensors", contextlib.nullcontext),
    ("for real, parameters moved to the meta device one by one", _parameters_on_meta),
    ("on the meta device", _all_on_meta),
)


def _batch(inputs: Inputs, folder: Path) -> Batch:
    if not isinstance(inputs, FunctionName):
        return batch_of_shapes(inputs)
    with outside_modes():
        function = code.load(inputs, folder)
    try:
        with outside_modes():
            return batch_of_value(code.call(function, inputs, folder))
    except OwnModuleError:
        # A batch too large for this host may still be a fake one.
        return batch_of_value(code.call(function, inputs, folder))


def _taken_apart(value: Any, name: FunctionName) -> tuple[nn.Module, Any]:
    """The module, and the inputs where they came with it."""
    if isinstance(value, nn.Module):
        return value, None
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], nn.Module):
        rest = tuple(value[1:])
        return value[0], (rest[0] if len(rest) == 1 else rest or None)
    what = "None" if value is None else f"an object of class {type(value).__name__}"
    raise OwnModuleError(
        f"{name.function}() returned {what}, not an nn.Module",
        advice="let it return the module, or (module, inputs)",
    )


def _unwrapped(module: nn.Module, notes: list[str]) -> nn.Module:
    """Without what torch.compile and data parallelism put around it: the simulation wraps it itself."""
    while True:
        original = getattr(module, "_orig_mod", None)
        if isinstance(original, nn.Module):
            notes.append("the module is compiled; it is simulated uncompiled, which keeps more")
            module = original
        elif isinstance(module, (DistributedDataParallel, DataParallel)):
            notes.append(f"{type(module).__name__} around the module was taken off; --strategy puts it on")
            module = module.module
        else:
            return module
