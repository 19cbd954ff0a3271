"""Parameters that are whole for a moment under FSDP2 (torch/distributed/fsdp/_fully_shard)."""

from __future__ import annotations

import math

from distdoctor.oom.local import LocalModel


def expert_padding(num_experts: int, num_ranks: int) -> float:
    """By how much all gathered experts of a layer are more than there are. FSDP2 cuts every parameter along its first
    dimension, and that of stacked experts is as long as there are experts: among more ranks each has one, and the
    gathered parameter has one for every rank (_fsdp_param.py, `padded_sharded_param_size`)."""
    return math.ceil(num_experts / num_ranks) * num_ranks / num_experts


def forward_bytes(local: LocalModel, *, element: float, keeps_all: bool, padding: float) -> float:
    """Bytes at the end of the forward pass. Resharding: the output's unit (the last one stays for its backward) and
    a layer that is prefetched; else everything. `padding`: of experts."""
    if keeps_all:
        return (local.dense + padding * local.expert) * element
    return (local.output.numel + _padded(local, padding)) * element


def backward_bytes(
    local: LocalModel, *, element: float, reduce_element: int, keeps_all: bool, padding: float
) -> tuple[float, float]:
    """(gathered parameters, gradients in reduction) while a layer's backward runs: the layer and the one that is
    prefetched, its whole gradients as computed, and one input of a reduce-scatter, for the next one waits for it."""
    unit = _padded(local, padding)
    parameters = (local.dense + padding * local.expert) * element if keeps_all else 2 * unit * element
    return parameters, local.largest_layer.numel * element + unit * reduce_element


def _padded(local: LocalModel, padding: float) -> float:
    """Elements of the largest layer as it is gathered."""
    return local.largest_layer.dense + padding * local.largest_layer.expert


def accumulated_gradient_bytes(local: LocalModel, *, reduce_element: int, unreduced: float) -> float:
    """torch's pipeline schedules reduce gradients after the last micro-batch only; until then each rank holds them
    whole, in the type of the reduction (_fsdp_param.py, to_accumulated_grad_if_needed). `unreduced`: elements that are
    not even added up over tp."""
    return (local.numel + unreduced) * reduce_element
