"""Routed experts cut inside over tp, where expert parallelism does not spread them: every rank sees all tokens and has a
part of each expert's width, so that what it computes is a part of a sum. TorchTitan's layout without ep
(torchtitan/models/common/moe_sharding.py, `expert_param_placement_dense`)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
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

_CUT: dict[str, Placement] = {
    "w1": Shard(1),
    "w3": Shard(1),
    "w1_bias": Shard(1),
    "w3_bias": Shard(1),
    "w2": Shard(2),
}
"""w1, w3: (experts, width, hidden), w2: (experts, hidden, width); a bias is (experts, outputs). That of w2 is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutWidth:
    """How hidden states come to experts that are cut over `mesh`, and how they go on."""

    mesh: DeviceMesh
    tokens: Placement
    """How hidden states between layers lie: a part of the sequence on each rank, or all of it."""

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) with all tokens. Each rank's gradient of them is a part of a sum."""
        local = DTensor.from_local(x, self.mesh, [self.tokens], run_check=False)
        return local.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])

    def leave(self, part: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden): parts added up, as hidden states lie between layers."""
        parts = DTensor.from_local(part, self.mesh, [Partial()], run_check=False)
        return parts.redistribute(placements=[self.tokens]).to_local()


class WidthParallel(ParallelStyle):
    """Parameters of grouped experts become DTensors that are cut along the width; inputs and outputs are left alone."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, _cut_width)


def _cut_width(_name: str, module: nn.Module, mesh: DeviceMesh) -> None:
    for name, parameter in list(module.named_parameters(recurse=False)):
        placed = distribute_tensor(parameter, mesh, [_CUT.get(name, Replicate())])
        module.register_parameter(name, nn.Parameter(placed))
