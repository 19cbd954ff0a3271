"""What a NeMo configuration contradicts or wastes by itself."""

from __future__ import annotations

from distdoctor.oom.configs.parameter_count import parameters_of
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import Precision
from distdoctor.oom.shape import Model

# Below this fp32 is a reasonable choice for a test. Our own bound.
SMALL_PARAMETERS = 1_000_000_000


def check_nemo(reading: Reading) -> None:
    """Adds the defects of a NeMo configuration."""
    _precision(reading)
    _degrees(reading)
    _batch(reading)
    if reading.get("sequence_parallel") and reading.get("tp") == 1:
        reading.defect(
            Defect.INEFFECTIVE,
            "sequence_parallel does nothing with tensor parallel size 1",
            reading.keys.get("sequence_parallel"),
            reading.keys.get("tp"),
            why="It splits activations among tensor-parallel ranks, and there is one.",
            fix="set it to False, or `tensor_model_parallel_size` above 1",
        )


def _precision(reading: Reading) -> None:
    model = reading.get("model")
    count = parameters_of(model) if isinstance(model, Model) else None
    if reading.get("precision") is not Precision.FP32 or (count is not None and 0 < count < SMALL_PARAMETERS):
        return
    reading.defect(
        Defect.COSTLY_PRECISION,
        "precision: 32 trains a language model in fp32",
        reading.keys.get("precision"),
        why="Activations and communication take twice the memory and time of bf16, and matrix products do not use "
        "the 16-bit tensor cores.",
        fix="set `trainer.precision: bf16` (with `megatron_amp_O2: True` for fp32 master copies)",
        sure=False,
    )


def _degrees(reading: Reading) -> None:
    world = reading.get("world_size")
    degrees = [reading.get(name) or 1 for name in ("tp", "pp", "cp")]
    product = degrees[0] * degrees[1] * degrees[2]
    if world is not None and world % product:
        reading.defect(
            Defect.MESH_DOES_NOT_DIVIDE,
            f"TP {degrees[0]} x PP {degrees[1]} x CP {degrees[2]} = {product} does not divide {world} ranks",
            reading.keys.get("tp"),
            reading.keys.get("pp"),
            reading.keys.get("world_size"),
            why="What is left of the ranks is data parallelism and must be a whole number.",
            fix=f"start a multiple of {product} ranks, or change the sizes",
            stops=True,
        )
    model = reading.get("model")
    if not isinstance(model, Model) or model.shape is None:
        return
    for name, divisor, value, what in (
        ("tp", degrees[0], model.shape.num_heads, "attention heads"),
        ("pp", degrees[1], model.shape.num_layers, "layers"),
    ):
        if divisor > 1 and value % divisor:
            reading.defect(
                Defect.MESH_DOES_NOT_DIVIDE,
                f"{value} {what} do not divide by {name.upper()} {divisor}",
                reading.keys.get(name),
                why="Megatron cuts them into equal parts.",
                fix="change one of the two",
                sure=name == "tp",
                stops=True,
            )


def _batch(reading: Reading) -> None:
    micro, batch, world = (reading.get(name) for name in ("micro_batch", "global_batch", "world_size"))
    if not micro or not batch or world is None:
        return
    product = 1
    for name in ("tp", "pp", "cp"):
        product *= reading.get(name) or 1
    if world % product:
        return
    data = world // product
    if batch % (micro * data):
        reading.defect(
            Defect.BATCH_DOES_NOT_DIVIDE,
            f"global batch {batch} is no multiple of micro-batch {micro} x {data} data-parallel ranks",
            reading.keys.get("global_batch"),
            reading.keys.get("micro_batch"),
            why="Each data-parallel rank takes whole micro-batches.",
            fix=f"use a multiple of {micro * data}",
            stops=True,
        )
