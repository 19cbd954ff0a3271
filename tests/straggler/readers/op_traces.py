"""Builds operation traces of pipelines in Parquet, columns as published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet


def op(
    rank: int,
    optype: str,
    start: float,
    duration: float,
    *,
    seq: int = 0,
    step: int = 1,
    dp: int = 0,
    stage: int = 0,
) -> dict[str, Any]:
    is_compute = optype.endswith("-compute")
    return {
        "dp_rank": dp,
        "stage": stage,
        "rank": rank,
        "step": step,
        "optype": optype,
        "start_ts": start,
        "duration": duration,
        "seq_id": seq,
        "mc": 0 if is_compute else -1,
        "mb_id": seq if is_compute else -1,
        "gmc": stage if is_compute else -1,
    }


def write_trace(path: Path, ops: list[dict[str, Any]], *, drop: tuple[str, ...] = (), **write: Any) -> str:
    columns = {name: [each[name] for each in ops] for name in ops[0] if name not in drop}
    parquet.write_table(pyarrow.table(columns), path, **write)
    return str(path)


def pipeline(
    *,
    num_steps: int = 3,
    slow: dict[int, float] | None = None,
    stages: tuple[float, ...] = (1.0, 1.0),
    replicas: int = 2,
) -> list[dict[str, Any]]:
    """A pipeline of one micro-batch: forward up, backward down, then gradients are reduced. Rank = stage * dp + dp.

    `slow[rank]` multiplies a worker's times, `stages` those of a stage. Forward takes 0.1 s, backward 0.2 s.
    """
    ops: list[dict[str, Any]] = []
    last = len(stages) - 1
    for step in range(num_steps):
        ready: dict[tuple[int, int], float] = {}
        for dp in range(replicas):
            factors = [
                stages[stage] * (slow or {}).get(stage * replicas + dp, 1.0) for stage in range(last + 1)
            ]
            where = [
                {"rank": stage * replicas + dp, "dp": dp, "stage": stage, "step": step}
                for stage in range(last + 1)
            ]
            at = 0.0
            for stage, factor in enumerate(factors):
                if stage:
                    ops.append(op(optype="forward-send", start=at, duration=0.001, **where[stage - 1]))
                    ops.append(op(optype="forward-recv", start=0.0, duration=at + 0.001, **where[stage]))
                    at += 0.001
                ops.append(op(optype="forward-compute", start=at, duration=0.1 * factor, **where[stage]))
                at += 0.1 * factor
                ready[dp, stage] = at
            for stage in range(last, -1, -1):
                if stage < last:
                    begin = ready[dp, stage]
                    ops.append(op(optype="backward-send", start=at, duration=0.001, **where[stage + 1]))
                    ops.append(
                        op(optype="backward-recv", start=begin, duration=at + 0.001 - begin, **where[stage])
                    )
                    at += 0.001
                ops.append(
                    op(optype="backward-compute", start=at, duration=0.2 * factors[stage], **where[stage])
                )
                at += 0.2 * factors[stage]
                ready[dp, stage] = at + (0.001 if stage else 0.0)
        for stage in range(last + 1):
            end = max(ready[dp, stage] for dp in range(replicas)) + 0.01
            for dp in range(replicas):
                begin = ready[dp, stage]
                ops.append(
                    op(
                        stage * replicas + dp,
                        "grads-reduce-scatter",
                        begin,
                        end - begin,
                        dp=dp,
                        stage=stage,
                        step=step,
                    )
                )
    return ops
