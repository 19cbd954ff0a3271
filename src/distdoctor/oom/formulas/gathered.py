"""Parameters that are whole for a moment under FSDP2 (torch/distributed/fsdp/_fully_shard)."""

from __future__ import annotations

from distdoctor.oom.local import LocalModel


def forward_bytes(local: LocalModel, *, element: float, keeps_all: bool) -> float:
    """Bytes at the end of the forward pass. Resharding: the output's unit (the last one stays for its backward) and
    a layer that is prefetched; else everything."""
    if keeps_all:
        return local.numel * element
    return (local.output.numel + local.largest_layer.numel) * element


def backward_bytes(
    local: LocalModel, *, element: float, reduce_element: int, keeps_all: bool
) -> tuple[float, float]:
    """(gathered parameters, gradients in reduction) while a layer's backward runs: the layer and the one that is
    prefetched, its whole gradients as computed, and one input of a reduce-scatter, for the next one waits for it."""
    unit = local.largest_layer.numel
    parameters = local.numel * element if keeps_all else 2 * unit * element
    return parameters, unit * element + unit * reduce_element


def accumulated_gradient_bytes(local: LocalModel, *, reduce_element: int, unreduced: float) -> float:
    """torch's pipeline schedules reduce gradients after the last micro-batch only; until then each rank holds them
    whole, in the type of the reduction (_fsdp_param.py, to_accumulated_grad_if_needed). `unreduced`: elements that are
    not even added up over tp."""
    return (local.numel + unreduced) * reduce_element
