"""What TorchTitan refuses or ignores, told from its configuration alone."""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import Schedule
from distdoctor.oom.shape import Model


def check_titan(reading: Reading) -> None:
    """Adds the defects of a TorchTitan configuration."""
    _heads(reading)
    _experts(reading)
    _pipeline(reading)
    _context(reading)
    for name in ("pp", "tp", "cp", "dp_replicate"):
        if reading.get(name) is not None and reading.get(name) < 1:
            reading.defect(
                Defect.CONFLICT,
                f"{name} is {reading.get(name)}; only the shard degree may be -1",
                reading.keys.get(name),
                why="ParallelDims asserts that every other degree is at least 1.",
                fix="set it to 1 or more",
                stops=True,
            )


def _heads(reading: Reading) -> None:
    model, tp = reading.get("model"), reading.get("tp")
    if not isinstance(model, Model) or model.shape is None or not tp or tp < 2 or model.shape.mla is not None:
        return
    for count, what in (
        (model.shape.num_heads, "attention heads"),
        (model.shape.num_kv_heads, "key and value heads"),
    ):
        if count % tp:
            reading.defect(
                Defect.MESH_DOES_NOT_DIVIDE,
                f"{count} {what} do not divide by tensor parallel degree {tp}",
                reading.keys.get("tp"),
                why="Each tensor-parallel rank computes whole heads.",
                fix=f"use a degree that divides {model.shape.num_kv_heads}",
                stops=True,
            )
            return


def _experts(reading: Reading) -> None:
    model, ep = reading.get("model"), reading.get("ep")
    if not ep or ep < 2:
        return
    if isinstance(model, Model) and model.shape is not None:
        moe = model.shape.moe
        if moe is None:
            reading.defect(
                Defect.INEFFECTIVE,
                f"expert parallel degree {ep}, but {model.name} has no experts",
                reading.keys.get("ep"),
                why="Expert parallelism only splits experts.",
                fix="set it to 1",
            )
        elif moe.num_experts % ep:
            reading.defect(
                Defect.MESH_DOES_NOT_DIVIDE,
                f"{moe.num_experts} experts do not divide by expert parallel degree {ep}",
                reading.keys.get("ep"),
                why="Each rank of the group holds the same number of experts.",
                fix="use a degree that divides the experts",
                stops=True,
            )
    shard = reading.get("dp_shard")
    if shard is not None and shard > 0:
        span = shard * (reading.get("cp") or 1) * (reading.get("tp") or 1)
        if span % ep:
            reading.defect(
                Defect.MESH_DOES_NOT_DIVIDE,
                f"expert parallel degree {ep} does not divide shard x CP x TP = {span}",
                reading.keys.get("ep"),
                reading.keys.get("dp_shard"),
                why="Experts are laid over the ranks of the other degrees.",
                fix="change one of the degrees",
                stops=True,
            )


def _pipeline(reading: Reading) -> None:
    pp, steps, schedule = reading.get("pp"), reading.get("accumulation_steps"), reading.get("schedule")
    if not pp or pp < 2 or steps is None or "pp" in reading.implied:
        return
    stages = pp * (2 if schedule in (Schedule.INTERLEAVED, Schedule.ZBV) else 1)
    if steps < stages:
        reading.defect(
            Defect.SLOW_BY_DESIGN,
            f"{steps} micro-batch{'es' if steps > 1 else ''} in a pipeline of {stages} stages",
            reading.keys.get("pp"),
            reading.keys.get("accumulation_steps"),
            why="With fewer micro-batches than stages most ranks wait most of the time; TorchTitan warns of it.",
            fix=f"use a local batch of at least {stages} micro-batches",
            sure=False,
        )


def _context(reading: Reading) -> None:
    cp, length, tp = reading.get("cp"), reading.get("seq_len"), reading.get("tp")
    if cp is None or length is None or cp < 1 or (tp or 1) < 1:
        return
    divisor = (tp or 1) * (cp * 2 if cp > 1 else 1)
    if length % divisor:
        reading.defect(
            Defect.BATCH_DOES_NOT_DIVIDE,
            f"sequences of {length} do not divide by {divisor} (TP x 2 CP)",
            reading.keys.get("seq_len"),
            reading.keys.get("cp"),
            reading.keys.get("tp"),
            why="TorchTitan asserts that seq_len is a multiple of tensor parallel degree x 2 x context parallel degree.",
            fix=f"use a multiple of {divisor}",
            stops=True,
        )
