"""DeepSpeed's own estimates of model states, for comparison: `estimate_zero2_model_states_mem_needs` and
`estimate_zero3_model_states_mem_needs` (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py at edaa722).

They know no activations, no buckets and no live parameters. Bytes; host bytes are of one node.
"""

from __future__ import annotations

from dataclasses import dataclass

# Both functions multiply host memory by this, for what else lives there.
HOST_FACTOR = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedRow:
    """One line of the estimator's output."""

    stage: int
    options: str
    gpu_bytes: float
    host_bytes: float


def zero2_rows(num_params: float, *, gpus_per_node: int, num_nodes: int) -> tuple[DeepSpeedRow, ...]:
    """ZeRO-2 with and without the optimizer in host memory. What DeepSpeed's documentation prints without offload
    is an older formula, 4P + 16P/G; its code says 2P + 18P/G."""
    gpus = gpus_per_node * num_nodes
    host_bytes = 4 * num_params * gpus_per_node * HOST_FACTOR
    return (
        DeepSpeedRow(
            stage=2,
            options="optimizer offloaded",
            gpu_bytes=2 * num_params,
            host_bytes=num_params * max(4 * gpus, 16) * HOST_FACTOR,
        ),
        DeepSpeedRow(
            stage=2,
            options="nothing offloaded",
            gpu_bytes=2 * num_params + 18 * num_params / gpus,
            host_bytes=host_bytes,
        ),
        DeepSpeedRow(
            stage=2,
            options="nothing offloaded, as documented",
            gpu_bytes=4 * num_params + 16 * num_params / gpus,
            host_bytes=host_bytes,
        ),
    )


def zero3_rows(
    num_params: float, largest_layer: float, *, gpus_per_node: int, num_nodes: int, zero_init: bool
) -> tuple[DeepSpeedRow, ...]:
    """ZeRO-3 with parameters and optimizer, the optimizer alone, or nothing in host memory.

    largest_layer: elements of the largest layer's parameters. zero_init: the model is built under zero.Init.
    """
    gpus = gpus_per_node * num_nodes
    large = 4 * largest_layer
    share = 1 / num_nodes
    host_all = (
        18 * num_params * share if zero_init else num_params * max(4 * gpus_per_node, 18 * share)
    ) * HOST_FACTOR
    host_optimizer = (
        16 * num_params * share if zero_init else num_params * max(4 * gpus_per_node, 16 * share)
    ) * HOST_FACTOR
    host_none = (4 * largest_layer if zero_init else 4 * num_params) * gpus_per_node * HOST_FACTOR
    return (
        DeepSpeedRow(
            stage=3, options="parameters and optimizer offloaded", gpu_bytes=large, host_bytes=host_all
        ),
        DeepSpeedRow(
            stage=3,
            options="optimizer offloaded",
            gpu_bytes=large + 2 * num_params / gpus,
            host_bytes=host_optimizer,
        ),
        DeepSpeedRow(
            stage=3,
            options="nothing offloaded",
            gpu_bytes=large + 18 * num_params / gpus,
            host_bytes=host_none,
        ),
    )
