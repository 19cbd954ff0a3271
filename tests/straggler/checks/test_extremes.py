"""Timers of the least and the most of all ranks: what they may clear, what they may tell, and when nothing follows."""

from __future__ import annotations

import numpy as np
import pytest

from distdoctor.straggler.checks.extremes import all_close
from distdoctor.straggler.facts.series import Extremes


def timer(
    name: str,
    low: float,
    high: float | list[float],
    *,
    num: int = 100,
    worst: int | list[int] | None = None,
    path: str = "train.log",
    unit: str = "ms",
) -> Extremes:
    """`num` reports; a list of most values, or of ranks that had them, is repeated."""
    return Extremes(
        name=name,
        source="Megatron-LM",
        path=path,
        unit=unit,
        steps=np.arange(1, num + 1),
        low=np.full(num, low),
        high=np.resize(np.array(high, dtype=np.float64), num),
        high_rank=None if worst is None else np.resize(np.array(worst, dtype=np.int32), num),
    )


@pytest.mark.parametrize("name", ["forward-backward", "Forward Backward", "forward_backward"])
def test_a_timer_of_the_whole_schedule_clears_nobody(name: str) -> None:
    """A rank that waits for another stage or for a slow peer spends the same time between its ends."""
    level_1 = [timer(name, 985, 990), timer("all-grads-sync", 20, 21), timer("optimizer", 30, 31)]
    assert all_close(level_1) is None


def test_timers_of_single_passes_beside_it_do() -> None:
    level_2 = [timer("forward-backward", 985, 990), timer("forward-compute", 300, 303)]
    assert all_close([*level_2, timer("backward-compute", 600, 603)]) == pytest.approx(0.01)
