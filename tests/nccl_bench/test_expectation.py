"""The expectation from detected hardware, held against what was published of healthy machines."""

from __future__ import annotations

import pytest

from distdoctor.nccl_bench.analysis.expectation import Expectation, NoExpectation, expected_busbw
from distdoctor.nccl_bench.catalog.gpus import gpu_kind
from distdoctor.nccl_bench.catalog.published import Published, all_published, published_for
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import CommShape, NcclLog
from distdoctor.nccl_bench.facts.rows import Group, GroupKind
from distdoctor.report.model import Confidence
from distdoctor.units import GIB, MIB
from nccl_bench.bench_builders import A100, B200, H100, hardware, job_group, live, nics, places, row, table

MODELS = {
    ("A100", "sxm"): A100,
    ("H100", "sxm"): H100,
    ("H100", "pcie"): "NVIDIA H100 PCIe",
    ("H200", "sxm"): "NVIDIA H200",
    ("B200", "sxm"): B200,
    ("GB200", "superchip"): "NVIDIA GB200",
    ("V100", "sxm"): "Tesla V100-SXM2-32GB",
    ("MI300X", "oam"): "AMD Instinct MI300X",
    ("RTX 5090", "pcie"): "NVIDIA GeForce RTX 5090",
}


def facts_of(num_ranks: int, num_hosts: int, model: str, **fields: object) -> BenchFacts:
    kind = gpu_kind(model)
    assert kind is not None
    values: dict[str, object] = {
        "gpus": max(8, num_ranks // num_hosts),
        "nvlinks": kind.nvlinks,
        "link_gbps": kind.link_gbps,
        "nvswitch": kind.form == "sxm" and kind.family != "V100",
        "pcie_gen": kind.pcie_gen,
        **fields,
    }
    return live(
        (),
        num_ranks=num_ranks,
        num_hosts=num_hosts,
        places=places(num_ranks, num_hosts, gpu_model=model),
        hardware=hardware(num_hosts, gpu_model=model, **values),  # type: ignore[arg-type]
    )


def expect(facts: BenchFacts, collective: str = "all_reduce") -> Expectation:
    assert facts.num_ranks is not None
    answer = expected_busbw(facts, collective, job_group(facts.num_ranks), facts.num_ranks)
    assert isinstance(answer, Expectation), answer
    return answer


def judged_figures() -> list[Published]:
    return [
        each
        for each in all_published()
        if (each.gpu, each.form) in MODELS
        and each.num_ranks
        and each.num_hosts
        and each.fabric in ("nvlink", "nvls", "bridge", "pcie", "xgmi", "mnnvl", "infiniband", "roce", "efa")
        and (each.size_bytes or 64 * GIB) >= 512 * MIB
        # 75 of 100 GB/s, of which a maintainer of NCCL said "a bit low": it would be a warning.
        and each.nccl != "2.7"
    ]


# Rings measured on purpose with NVLink SHARP off.
RING_ON_PURPOSE = [each for each in judged_figures() if each.note == "NVLS switched off"]


@pytest.mark.parametrize("figure", judged_figures(), ids=lambda figure: f"{figure.gpu} {figure.in_words}")
def test_no_published_figure_of_a_healthy_machine_would_be_accused(figure: Published) -> None:
    assert figure.num_ranks
    assert figure.num_hosts
    fabric = nics(figure.nics_per_host, figure.nic_gbit, figure.fabric) if figure.nics_per_host else None
    facts = facts_of(figure.num_ranks, figure.num_hosts, MODELS[figure.gpu, figure.form], fabric=fabric)
    expectation = expect(facts, figure.collective)
    if (figure.size_bytes or 64 * GIB) < expectation.from_bytes:
        assert figure.busbw_gbps > 0.4 * expectation.low_gbps
        return
    if figure in RING_ON_PURPOSE:
        assert figure.busbw_gbps < 0.9 * expectation.low_gbps
    else:
        assert figure.busbw_gbps > 0.9 * expectation.low_gbps
        assert figure.busbw_gbps < 1.1 * expectation.high_gbps


def test_eight_h100_are_judged_by_nvlink_sharp_for_all_reduce_only() -> None:
    facts = facts_of(8, 1, H100)
    all_reduce, all_gather = expect(facts), expect(facts, "all_gather")
    assert all_reduce.scheme == "nvls"
    assert 470 < all_reduce.low_gbps < 475
    assert all_gather.scheme == "nvlink"
    assert all_gather.high_gbps < 380
    assert "18 NVLinks × 25 GB/s = 450 GB/s" in all_reduce.rule


def test_four_h100_are_judged_by_the_ring() -> None:
    assert expect(facts_of(4, 1, H100)).scheme == "nvlink"


def test_two_ranks_are_asked_for_what_a_pair_exchanges() -> None:
    pair, four = (expect(facts_of(ranks, 1, A100)) for ranks in (2, 4))
    assert pair.low_gbps == pytest.approx(0.65 * 300)
    assert four.low_gbps > pair.low_gbps


def test_a_table_with_gpu_names_is_judged_within_one_host() -> None:
    facts = table((row(GIB, busbw=200),), places=places(8, gpu_model="A100-SXM4-40GB"), num_hosts=1)
    answer = expected_busbw(facts, "all_reduce", facts.rows[0].group, 8)
    assert isinstance(answer, Expectation)
    assert answer.low_gbps == pytest.approx(225)


def test_a_lost_link_lowers_nothing() -> None:
    whole = expect(facts_of(8, 1, H100))
    assert expect(facts_of(8, 1, H100, nvlinks=16)).low_gbps == whole.low_gbps


def test_two_hosts_are_judged_by_their_ports() -> None:
    expectation = expect(facts_of(16, 2, A100, fabric=nics(4, 200)))
    assert expectation.scheme == "rdma"
    assert expectation.low_gbps == pytest.approx(92)
    assert "4 infiniband ports × 25 GB/s" in expectation.rule
    assert expectation.ceiling_gbps == pytest.approx(187.5)


def test_slow_management_ports_do_not_count() -> None:
    fabric = (*nics(8, 400), *nics(2, 100))
    assert (
        expect(facts_of(16, 2, H100, fabric=fabric)).rule
        == expect(facts_of(16, 2, H100, fabric=nics(8, 400))).rule
    )


def test_a_rail_is_judged_by_its_own_port() -> None:
    facts = facts_of(16, 2, H100, fabric=nics(8, 400))
    rail = Group(kind=GroupKind.RAIL, label="rail 3", ranks=(3, 11), set_label="rails")
    answer = expected_busbw(facts, "all_reduce", rail, 2, at_once=True)
    assert isinstance(answer, Expectation)
    assert answer.low_gbps == pytest.approx(46)


def test_rails_that_share_ports_are_asked_for_their_share() -> None:
    facts = facts_of(16, 2, A100, fabric=nics(4, 200))
    rail = Group(kind=GroupKind.RAIL, label="rail 3", ranks=(3, 11), set_label="rails")
    answer = expected_busbw(facts, "all_reduce", rail, 2, at_once=True)
    assert isinstance(answer, Expectation)
    assert answer.low_gbps == pytest.approx(11.5)


def test_ethernet_alone_is_theory_and_says_so() -> None:
    expectation = expect(facts_of(4, 2, "NVIDIA A10G", fabric=nics(1, 10, "ethernet")))
    assert expectation.confidence is Confidence.LOW
    assert expectation.rule.startswith("theoretical")


def test_gb200_hosts_are_joined_by_nvlink() -> None:
    assert expect(facts_of(72, 18, "NVIDIA GB200")).scheme == "mnnvl"


def test_googles_plugin_is_judged_by_its_own_figures() -> None:
    facts = facts_of(16, 2, H100, fabric=nics(8, 200, "ethernet"))
    log = NcclLog(origin="nccl.log", network="FasTrak")
    answer = expected_busbw(
        live((), num_ranks=16, num_hosts=2, places=facts.places, hardware=facts.hardware, nccl_log=log),
        "all_gather",
        job_group(16),
        16,
    )
    assert isinstance(answer, Expectation)
    assert answer.scheme == "published"


def test_a_log_that_names_the_machine_type_gives_its_ports() -> None:
    log = NcclLog(
        origin="nccl.log",
        platform="p5.48xlarge",
        gpu_models=(H100,),
        comms=(CommShape(num_ranks=16, num_hosts=2),),
    )
    facts = table((row(GIB, busbw=100, num_ranks=16),), nccl_log=log)
    answer = expected_busbw(facts, "all_reduce", facts.rows[0].group, 16)
    assert isinstance(answer, Expectation)
    assert "within each host" in answer.rule


NOT_JUDGED = {
    "one rank": (facts_of(1, 1, H100), "one rank"),
    "gloo": (live((), backend="gloo", places=places(8, gpu_model=None)), "Gloo"),
    "unknown GPU": (table((), num_ranks=8, num_hosts=1), "GPU model is not known"),
    "unknown model": (
        table((), num_ranks=4, num_hosts=1, places=places(4, gpu_model="NVIDIA Graphics Device")),
        "not in the catalogue",
    ),
    "no hardware at all": (table((), num_ranks=8), "no GPU and no host is named"),
    "hosts unknown": (
        table((), num_ranks=8, nccl_log=NcclLog(origin="nccl.log", gpu_models=(H100,))),
        "how many hosts",
    ),
    "ports unknown": (table((), num_ranks=16, places=places(16, 2, gpu_model=A100)), "ports are not known"),
    "shared GPUs": (live((), shares_gpus=True), "share a GPU"),
    "fast Ethernet": (facts_of(16, 2, H100, fabric=nics(1, 100, "ethernet")), "limited by CPUs"),
    "400 hosts": (facts_of(800, 400, H100, fabric=nics(8, 400)), "400 hosts"),
}


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_what_is_not_known_is_not_judged(name: str) -> None:
    facts, why = NOT_JUDGED[name]
    answer = expected_busbw(facts, "all_reduce", job_group(facts.num_ranks or 2), facts.num_ranks)
    assert isinstance(answer, NoExpectation)
    assert why in answer.reason


def test_hosts_without_known_ports_come_with_published_figures_to_look_at() -> None:
    facts, _ = NOT_JUDGED["ports unknown"]
    answer = expected_busbw(facts, "all_reduce", job_group(16), 16)
    assert isinstance(answer, NoExpectation)
    assert answer.orientation[0].busbw_gbps == 43.81
    assert answer.how is not None


def test_host_names_that_were_made_equal_are_not_one_host() -> None:
    crowd = tuple(
        place.__class__(rank=place.rank, host="node-00", local_rank=place.local_rank, gpu_model=H100)
        for place in places(64, 8)
    )
    answer = expected_busbw(table((), num_ranks=64, places=crowd), "all_reduce", job_group(64), 64)
    assert isinstance(answer, NoExpectation)


@pytest.mark.parametrize(
    ("model", "family", "form"),
    [
        ("NVIDIA H100 80GB HBM3", "H100", "sxm"),
        ("NVIDIA H100 PCIe", "H100", "pcie"),
        ("NVIDIA H100 NVL", "H100", "nvl"),
        ("A100-SXM4-40GB", "A100", "sxm"),
        ("NVIDIA A100 80GB PCIe", "A100", "pcie"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090", "pcie"),
        ("Tesla V100-SXM2-16GB", "V100", "sxm"),
        ("NVIDIA GH200 120GB", "GH200", "superchip"),
    ],
)
def test_form_factors_of_one_chip_are_told_apart(model: str, family: str, form: str) -> None:
    kind = gpu_kind(model)
    assert kind is not None
    assert (kind.family, kind.form) == (family, form)


@pytest.mark.parametrize("model", ["NVIDIA Graphics Device", "H", "", "NVIDIA H1000", "x" * 100_000])
def test_other_names_are_not_guessed(model: str) -> None:
    assert gpu_kind(model) is None


def test_one_host_is_not_compared_with_published_figures_of_several() -> None:
    assert all(
        each.num_hosts == 1
        for each in published_for(gpu="H200", collective="all_reduce", several_hosts=False)
    )


def test_every_published_figure_has_a_source() -> None:
    assert all(each.source.startswith("https://") for each in all_published())
