"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

from __future__ import annotations

import pytest

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.env.visible_gpus import gpu_of_local_rank, visible_gpus

DEVICES = tuple(GpuDevice(index=index, uuid=f"GPU-{index}abc-{index}") for index in range(4))


def facts(value: str | None, *, local_rank: int | None = None, mig: bool = False) -> EnvFacts:
    devices = (GpuDevice(index=0, mig_mode=True),) if mig else DEVICES
    return EnvFacts(
        gpus=GpuFacts(devices=devices),
        variables=VariableFacts(environment={} if value is None else {"CUDA_VISIBLE_DEVICES": value}),
        scheduler=SchedulerFacts(local_rank=local_rank),
    )


@pytest.mark.parametrize(
    ("value", "indexes", "unknown"),
    [
        (None, [0, 1, 2, 3], None),
        ("2,0", [2, 0], None),
        ("GPU-3abc,1", [3, 1], None),
        ("", [], None),
        ("-1", [], None),
        ("NoDevFiles", [], None),
        ("0,9,1", [0], "9"),
        ("0,0", [0], None),
        ("0, 1", [0, 1], None),
    ],
)
def test_the_list_chooses_and_ends_at_the_first_unknown(
    value: str | None, indexes: list[int], unknown: str | None
) -> None:
    visible = visible_gpus(facts(value))
    assert visible is not None
    assert [device.index for device in visible.devices] == indexes
    assert visible.unknown == unknown


def test_slices_are_not_counted() -> None:
    assert visible_gpus(facts(None, mig=True)) is None


def test_without_nvmls_list_nothing_is_claimed() -> None:
    assert visible_gpus(EnvFacts(gpus=GpuFacts())) is None


def test_a_rank_takes_the_gpu_of_its_local_rank() -> None:
    chosen = gpu_of_local_rank(facts("3,2", local_rank=1))
    assert chosen is not None
    assert chosen.index == 2


def test_a_rank_that_sees_one_gpu_takes_it() -> None:
    chosen = gpu_of_local_rank(facts("3", local_rank=5))
    assert chosen is not None
    assert chosen.index == 3
