"""Styles of tensor parallelism that torch.distributed.tensor.parallel has not."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import ParallelStyle

from distdoctor.oom.training.chunked_loss import Output


class ReplicatedParallel(ParallelStyle):
    """Parameters whole on every rank; the input, whole too, is laid out as `input_layout` (TorchTitan's NoParallel)."""

    def __init__(
        self,
        *,
        input_layout: Placement | None = None,
        output_layout: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layout = input_layout or Replicate()
        self.output_layout = output_layout or Replicate()
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module,
            device_mesh,
            None,
            lambda _, inputs, mesh: self._enter(inputs, mesh),
            lambda _, output, __: self._leave(output),
        )

    def _enter(self, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
        first, *rest = inputs
        return (_distributed(first, mesh, Replicate()).redistribute(placements=[self.input_layout]), *rest)

    def _leave(self, output: Any) -> Any:
        placed = output.redistribute(placements=[self.output_layout])
        return placed.to_local() if self.use_local_output else placed


class ChunkedOutputParallel(ParallelStyle):
    """The output layer with its loss: the vocabulary is cut, hidden states are gathered; each rank contributes a part
    of their gradient."""

    def __init__(self, input_layout: Placement, *, gathers_logits: bool) -> None:
        self.input_layout = input_layout
        self.gathers_logits = gathers_logits

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not isinstance(module, Output):
            raise TypeError(f"no output layer: {type(module).__name__}")
        module.gathers_logits = self.gathers_logits
        return distribute_module(
            module, device_mesh, _cut_vocabulary, lambda _, inputs, mesh: self._enter(inputs, mesh)
        )

    def _enter(self, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
        hidden, *rest = inputs
        whole = _distributed(hidden, mesh, self.input_layout).redistribute(placements=[Replicate()])
        return (whole.to_local(grad_placements=[Partial()]), *rest)


def _cut_vocabulary(_name: str, module: nn.Module, mesh: DeviceMesh) -> None:
    for name, parameter in list(module.named_parameters(recurse=False)):
        module.register_parameter(name, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))


def _distributed(tensor: Any, mesh: DeviceMesh, layout: Placement) -> DTensor:
    if isinstance(tensor, DTensor):
        return tensor
    return DTensor.from_local(tensor, mesh, [layout], run_check=False)
