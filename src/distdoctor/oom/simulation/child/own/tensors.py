"""Other tensors for the parameters of a module: without storage, with one, in another type. Ties stay ties."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn

from distdoctor.torch_private.storages import is_wrapper


def remake_parameters(root: nn.Module, make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Every plain parameter of `root` becomes `make` of it, in place. Parameters of a class of their own (quantised
    ones, DTensors) stay as they are."""
    # The old ones are kept until all are done, so that their ids stay theirs.
    made: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}
    for module in root.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is None or is_wrapper(parameter):
                continue
            if id(parameter) not in made:
                new = nn.Parameter(make(parameter.detach()), requires_grad=parameter.requires_grad)
                # Marks such as `no_weight_decay` are attributes.
                _mark(new, parameter)
                made[id(parameter)] = (parameter, new)
            _set(module, name, made[id(parameter)][1])


def _mark(new: nn.Parameter, old: nn.Parameter) -> None:
    for name, value in vars(old).items():
        vars(new).setdefault(name, value)


def _set(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Modules that keep lists of their parameters (RNNs) do so in `__setattr__`."""
    if type(module).__setattr__ is nn.Module.__setattr__:
        module._parameters[name] = parameter
    else:
        setattr(module, name, parameter)


def remake_buffers(root: nn.Module, make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Every buffer of `root` becomes `make` of it, in place."""
    made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for module in root.modules():
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                _, new = made.setdefault(id(buffer), (buffer, make(buffer)))
                module._buffers[name] = new


@contextlib.contextmanager
def without_buffers(root: nn.Module) -> Iterator[None]:
    """Buffers are put aside while parameters are moved, so that those whose values are known keep them."""
    kept = [(module, name, buffer) for module in root.modules() for name, buffer in module._buffers.items()]
    for module, name, _ in kept:
        module._buffers[name] = None
    try:
        yield
    finally:
        for module, name, buffer in kept:
            module._buffers[name] = buffer


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """A parameter loses its storage as soon as a module registers it: never more than one is in memory. Everything
    else that a constructor computes, it computes for real."""
    original = nn.Module.register_parameter

    def register_parameter(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        original(self, name, param)
        if param is not None and type(param) is nn.Parameter and not param.is_meta:
            light = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
            _mark(light, param)
            self._parameters[name] = light

    nn.Module.register_parameter = register_parameter
    try:
        yield
    finally:
        nn.Module.register_parameter = original


def names_of(root: nn.Module) -> dict[int, str]:
    """Dotted names by ids of modules."""
    return {id(module): name for name, module in root.named_modules()}
