"""Small messages that take milliseconds are named; slow but normal fabrics are not."""

from __future__ import annotations

import pytest

from distdoctor.nccl_bench.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.nccl_bench.checks.latency_floor import check_latency_floor
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import NcclLog
from distdoctor.nccl_bench.facts.rows import Row, Style
from distdoctor.ranks.places import Place
from distdoctor.report.model import Severity
from distdoctor.units import KIB, MIB
from nccl_bench.bench_builders import A100, hardware, live, nics, places, row, table


def small(time_us: float, **fields: object) -> tuple[Row, ...]:
    return tuple(row(size, time_us=time_us, **fields) for size in (8, KIB, 64 * KIB))  # type: ignore[arg-type]


def test_milliseconds_for_a_few_bytes_are_named() -> None:
    (found,) = check_latency_floor(table(small(4350, num_ranks=2)))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert found.title == "the smallest messages take 4.3 ms; above 1.0 ms is slow for GPUs"


def test_ranks_that_share_a_gpu_are_told_so() -> None:
    crowd = tuple(
        Place(
            rank=rank,
            host="host-a",
            local_rank=rank,
            gpu_index=0,
            gpu_pci="0000:02:00",
            gpu_model="NVIDIA L4",
        )
        for rank in range(2)
    )
    (found,) = check_latency_floor(table(small(4350, num_ranks=2), places=crowd, num_hosts=1))
    assert isinstance(found, Found)
    assert any("take turns" in each.text for each in found.evidence)


@pytest.mark.parametrize("time_us", [13, 35, 170, 290])
def test_an_nvlink_host_passes(time_us: float) -> None:
    (outcome,) = check_latency_floor(live(small(time_us)))
    assert isinstance(outcome, Passed)


def test_an_nvlink_host_is_held_to_less_than_an_unknown_one() -> None:
    (found,) = check_latency_floor(live(small(500)))
    assert isinstance(found, Found)
    assert isinstance(check_latency_floor(table(small(500)))[0], Passed)


def test_efa_is_slower_and_well() -> None:
    facts = live(
        small(175, num_ranks=16),
        num_ranks=16,
        num_hosts=2,
        places=places(16, 2, gpu_model=A100),
        hardware=hardware(2, gpu_model=A100, fabric=nics(4, 100, "efa")),
    )
    assert isinstance(check_latency_floor(facts)[0], Passed)


def test_tcpx_takes_a_millisecond_and_that_is_normal() -> None:
    log = NcclLog(origin="nccl.log", network="GPUDirectTCPX_v7")
    assert isinstance(check_latency_floor(table(small(1200), nccl_log=log))[0], Passed)


def test_isolated_iterations_are_preferred() -> None:
    rows = (*small(900), *small(40, style=Style.ISOLATED))
    assert isinstance(check_latency_floor(live(rows))[0], Passed)


def test_one_slow_row_is_no_floor() -> None:
    rows = (row(8, time_us=9000), row(16, time_us=30), row(32, time_us=31))
    assert isinstance(check_latency_floor(live(rows))[0], Passed)


@pytest.mark.parametrize(
    "rows",
    [
        (row(MIB, time_us=4350),),
        small(3000, collective="all_gather", num_ranks=512),
        small(3000, collective="all_to_all", num_ranks=None),
        (),
    ],
    ids=["starts at 1 MiB", "passes 512 ranks in turn", "ranks unknown", "no rows"],
)
def test_what_does_not_show_a_floor_is_not_judged(rows: tuple[Row, ...]) -> None:
    (outcome,) = check_latency_floor(table(rows))
    assert isinstance(outcome, NotSeen)


def test_gloo_on_cpus_is_not_judged() -> None:
    facts: BenchFacts = live(small(5000), backend="gloo", places=places(8, gpu_model=None))
    assert isinstance(check_latency_floor(facts)[0], NotApplicable)
