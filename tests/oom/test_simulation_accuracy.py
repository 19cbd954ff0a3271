"""Simulated peaks beside what torch's own allocator counts, and few layers beside all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distdoctor.oom.facts.simulated import MAX_DIFFERENCE
from forkpool import ForkPool

SCENARIOS = Path(__file__).with_name("simulation_scenarios.py")


@pytest.fixture(scope="module")
def pool() -> Iterator[ForkPool]:
    pytest.importorskip("torch")
    with ForkPool(torch=True, scenarios=SCENARIOS) as pool:
        yield pool


def returned(pool: ForkPool, scenario: str, **args: Any) -> Any:
    outcome = pool.run(scenario, world_size=1, args=args, limit_s=120)[0]
    assert outcome.ending == "returned", outcome.value
    return outcome.value


@pytest.mark.parametrize(
    "name",
    [
        "one rank",
        "one rank, adafactor",
        "ddp",
        "zero3",
        "fsdp2, mixed, selective",
        "fsdp2 of 1000 ranks",
        "fsdp2 x tp",
        "gpt-2",
        "experts",
        "pipeline",
    ],
)
def test_a_simulation_is_what_the_allocator_counts_with_real_tensors(pool: ForkPool, name: str) -> None:
    simulated, counted = returned(pool, "exact", name=name)
    if counted is None:
        pytest.skip("this torch's profiler does not tell allocations")
    # The profiler counts a few dozen bytes that belong to nobody: a tiny model's thousandth part is not much more.
    assert simulated == pytest.approx(counted, rel=MAX_DIFFERENCE, abs=16 * 1024)


@pytest.mark.parametrize("name", ["one rank", "fsdp2, mixed, selective", "fsdp2 x tp", "experts", "pipeline"])
def test_few_layers_give_the_peaks_and_the_reserved_bytes_of_all(pool: ForkPool, name: str) -> None:
    num_layers = 12 if name == "pipeline" else 7
    for role in returned(pool, "folded", name=name, num_layers=num_layers):
        assert "repeated" in role["how"]
        assert role["few"] == role["whole"]
        assert role["reserved"][0] == role["reserved"][1]
