"""Slow collectives are named with what was expected; healthy, unknown and noisy ones are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdoctor.nccl_bench.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.nccl_bench.checks.below_expected import check_below_expected
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention
from distdoctor.nccl_bench.facts.nccl_log import LoggedNic, NcclLog, Override, Route
from distdoctor.nccl_bench.facts.rows import Group, GroupKind
from distdoctor.report.model import Confidence, Severity, SkipCause
from distdoctor.units import GIB, MIB
from nccl_bench.bench_builders import (
    A100,
    H100,
    flat_rows,
    hardware,
    live,
    nics,
    places,
    row,
    table,
)


def two_hosts(busbw: float, **fields: object) -> BenchFacts:
    """Two hosts of 8 A100 with 4 HDR ports each; 92 GB/s and more are expected."""
    values: dict[str, object] = {
        "places": places(16, 2, gpu_model=A100),
        "hardware": hardware(2, gpu_model=A100, nvlinks=12, pcie_gen=4, fabric=nics(4, 200)),
        **fields,
    }
    return live(flat_rows(busbw, num_ranks=16), num_ranks=16, num_hosts=2, **values)


def the_found(facts: BenchFacts) -> Found:
    (found,) = [each for each in check_below_expected(facts) if isinstance(each, Found)]
    return found


def text_of(found: Found) -> str:
    return " ".join([found.explanation, *(each.text for each in found.evidence)])


def nothing_found(outcomes: object) -> bool:
    assert isinstance(outcomes, list)
    return not any(isinstance(each, Found) for each in outcomes)


def test_healthy_hosts_pass_with_the_numbers() -> None:
    (outcome,) = check_below_expected(live(flat_rows(478)))
    assert isinstance(outcome, Passed)
    assert outcome.detail == "all_reduce: 478 GB/s of 472.5 to 486 expected"


def test_half_of_the_ports_is_critical_and_says_what_was_expected() -> None:
    found = the_found(two_hosts(49))
    assert found.severity is Severity.CRITICAL
    assert found.confidence is Confidence.HIGH
    assert found.title == "all_reduce: 49 GB/s where 92 and more are expected"
    assert found.evidence[0].expected_source is not None
    assert "4 infiniband ports × 25 GB/s" in found.evidence[0].expected_source
    assert "half a path" in text_of(found)
    assert all(len(each.title) <= 80 for each in [found])


def test_a_little_below_is_a_warning() -> None:
    assert the_found(two_hosts(76)).severity is Severity.WARNING


def test_nvlink_sharp_off_is_told_from_slow_links() -> None:
    lost = (*flat_rows(367), *flat_rows(361, collective="all_gather"))
    found = the_found(live(lost))
    assert found.severity is Severity.WARNING
    assert found.evidence[1].text.startswith("for NVLink SHARP off")
    assert "all_gather, which does not use it, is as fast" in text_of(found)

    both_slow = (*flat_rows(367), *flat_rows(200, collective="all_gather"))
    found, _ = (each for each in check_below_expected(live(both_slow)) if isinstance(each, Found))
    assert "for NVLink SHARP off" not in text_of(found)


def test_a_log_that_says_so_makes_it_the_cause() -> None:
    log = NcclLog(origin="nccl.log", nvls_channels=0)
    found = the_found(live(flat_rows(367), nccl_log=log))
    assert found.cause_class == "gpu:nvls_off"
    assert "Most likely: The NVLink switches do not add up" in found.explanation


@pytest.mark.parametrize(
    ("overrides", "is_against"),
    [
        ((("NCCL_NVLS_ENABLE", "0"),), True),
        ((("NCCL_ALGO", "Ring"),), True),
        ((("NCCL_ALGO", "^NVLS"),), True),
        ((("NCCL_NVLS_ENABLE", "1"), ("NCCL_ALGO", "Tree,NVLS")), False),
    ],
)
def test_settings_that_switch_nvlink_sharp_off(
    overrides: tuple[tuple[str, str], ...], is_against: bool
) -> None:
    found = the_found(live(flat_rows(367), overrides=overrides))
    assert (found.cause_class == "gpu:nvls_off") is is_against


def test_sockets_on_an_rdma_machine() -> None:
    log = NcclLog(origin="nccl.log", network="Socket")
    found = the_found(two_hosts(6, nccl_log=log))
    assert found.cause_class == "network:socket_fallback"


def test_a_log_with_rdma_excludes_sockets() -> None:
    log = NcclLog(origin="nccl.log", network="IB")
    assert "plain TCP" not in text_of(the_found(two_hosts(6, nccl_log=log)))


def test_no_gpudirect() -> None:
    log = NcclLog(origin="nccl.log", network="IB", gpudirect_disabled=("mlx5_0",))
    found = the_found(two_hosts(33, nccl_log=log))
    assert found.cause_class == "network:no_gpudirect"


def test_connections_with_gpudirect_exclude_its_absence() -> None:
    route = Route(transport="NET", detail="IB", gpudirect=True)
    log = NcclLog(origin="nccl.log", network="IB", routes=(route,))
    assert "no GPUDirect" not in text_of(the_found(two_hosts(33, nccl_log=log)))


def test_one_port_of_four() -> None:
    log = NcclLog(origin="nccl.log", network="IB", nics=(LoggedNic(name="mlx5_0:1", kind="ib"),))
    found = the_found(two_hosts(23, nccl_log=log))
    assert found.cause_class == "network:ports_idle"
    assert "NCCL's log lists 1 of 4 ports" in text_of(found)


def test_a_host_with_fewer_ports_is_named_and_lowers_nothing() -> None:
    hosts = hardware(2, gpu_model=A100, nvlinks=12, fabric=nics(4, 200))
    facts = two_hosts(69, hardware=(hosts[0], replace(hosts[1], nics=nics(3, 200))))
    assert "host-b has 3 of 4 ports" in text_of(the_found(facts))


def test_shared_memory_instead_of_peers() -> None:
    found = the_found(live(flat_rows(10), overrides=(("NCCL_P2P_DISABLE", "1"),)))
    assert found.severity is Severity.CRITICAL
    assert found.cause_class == "gpu:p2p_off"


def test_fewer_links_than_the_product_has() -> None:
    found = the_found(live(flat_rows(300), hardware=hardware(nvlinks=12)))
    assert "12 of 18 NVLinks are active" in text_of(found)


def test_settings_are_unset_by_name_alone() -> None:
    log = NcclLog(origin="nccl.log", overrides=(Override(name="NCCL_PROTO", value="LL; rm -rf /"),))
    found = the_found(two_hosts(60, nccl_log=log))
    (command,) = [action.command for action in found.actions if action.text.startswith("forced settings")]
    assert command == "env -u NCCL_PROTO …"


def test_one_slow_host_of_several_is_named() -> None:
    rows = [
        each
        for index, host in enumerate(("host-a", "host-b", "host-c"))
        for each in flat_rows(
            200 if host == "host-b" else 478,
            group=Group(
                kind=GroupKind.HOST,
                label=f"host {host}",
                ranks=tuple(range(8 * index, 8 * index + 8)),
                set_label="hosts",
            ),
        )
    ]
    facts = live(rows, num_ranks=24, num_hosts=3)
    found = the_found(facts)
    assert found.scope.hosts == ("host-b",)
    assert "on host-b" in found.title
    assert "1 of 3 such groups are slow: host host-b" in text_of(found)


def test_ethernet_is_theory_and_stays_a_lead() -> None:
    facts = live(
        flat_rows(0.1, num_ranks=4),
        num_ranks=4,
        num_hosts=2,
        places=places(4, 2, gpu_model="NVIDIA A10G"),
        hardware=hardware(2, gpu_model="NVIDIA A10G", gpus=2, nvlinks=0, fabric=nics(1, 10, "ethernet")),
    )
    found = the_found(facts)
    assert found.confidence is Confidence.LOW
    assert found.severity is Severity.WARNING
    assert "theory" in found.explanation


def test_a_bridged_pair_of_pcie_cards_is_not_accused() -> None:
    facts = live(
        flat_rows(116, num_ranks=2),
        num_ranks=2,
        places=places(2, gpu_model="NVIDIA H100 PCIe"),
        hardware=hardware(gpu_model="NVIDIA H100 PCIe", gpus=2, nvlinks=12, nvswitch=False),
    )
    assert isinstance(check_below_expected(facts)[0], Passed)


@pytest.mark.parametrize("largest", [MIB, 32 * MIB])
def test_a_table_that_ends_early_is_not_judged(largest: int) -> None:
    facts = live((row(largest // 2, busbw=2), row(largest, busbw=4)))
    (outcome,) = check_below_expected(facts)
    assert isinstance(outcome, NotSeen)
    assert "the sizes end at" in outcome.unread.reason
    assert "--max-bytes 512M" in str(outcome.unread.how)


def test_far_too_slow_on_the_climb_is_named_all_the_same() -> None:
    found = the_found(live((row(64 * MIB, busbw=9), row(256 * MIB, busbw=10))))
    assert found.severity is Severity.WARNING
    assert found.confidence is Confidence.MEDIUM
    assert "full speed begins at 512 MiB" in found.evidence[0].text


def test_on_the_climb_a_middling_number_is_no_fault() -> None:
    (outcome,) = check_below_expected(live((row(64 * MIB, busbw=340),)))
    assert isinstance(outcome, NotSeen)


def noisy_rows(busbw: float) -> tuple[object, ...]:
    return tuple(
        replace(each, repeats_us=(each.time_us, each.time_us * 1.1, each.time_us * 1.9))
        for each in flat_rows(busbw)
    )


def test_a_noisy_row_is_inconclusive() -> None:
    (outcome,) = check_below_expected(live(noisy_rows(400)))  # type: ignore[arg-type]
    assert isinstance(outcome, NotSeen)
    assert outcome.unread.cause is SkipCause.NOISY
    assert "differ 1.9-fold" in outcome.unread.reason


def test_noise_does_not_hide_what_even_the_best_repeat_shows() -> None:
    found = the_found(live(noisy_rows(30)))  # type: ignore[arg-type]
    assert found.confidence is Confidence.MEDIUM
    assert "even the fastest" in found.explanation


def test_a_busy_host_with_one_measurement_is_inconclusive() -> None:
    busy = (Contention(host="host-a", load_1min=300.0, num_cpus=96),)
    (outcome,) = check_below_expected(live(flat_rows(400), contention=busy))
    assert isinstance(outcome, NotSeen)
    assert "load 300.0 on 96 CPUs" in outcome.unread.reason


def test_without_hardware_a_number_is_not_judged_and_says_what_to_do() -> None:
    (outcome,) = check_below_expected(table(flat_rows(116, num_ranks=2)))
    assert isinstance(outcome, NotSeen)
    assert outcome.unread.reason == "the hardware is not in the evidence: no GPU and no host is named"
    assert outcome.unread.how is not None


def test_a_number_below_every_way_between_gpus_needs_no_hardware() -> None:
    found = the_found(table(flat_rows(1.4, num_ranks=4)))
    assert found.severity is Severity.WARNING
    assert found.confidence is Confidence.MEDIUM
    assert "On such Ethernet it is normal" in found.explanation


@pytest.mark.parametrize(
    "rows",
    [
        flat_rows(1.9, num_ranks=4),
        flat_rows(1.0, sizes=(64 * MIB,), num_ranks=4),
        flat_rows(0.4, collective="all_to_all", num_ranks=64),
    ],
    ids=["faster than that", "too small", "shared by all peers"],
)
def test_other_low_numbers_without_hardware_are_not_accused(rows: tuple[object, ...]) -> None:
    assert nothing_found(check_below_expected(table(rows)))  # type: ignore[arg-type]


def test_two_hosts_of_unknown_ports_come_with_figures_to_look_at() -> None:
    facts = table(flat_rows(43.8, num_ranks=16), places=places(16, 2, gpu_model=A100))
    (outcome,) = check_below_expected(facts)
    assert isinstance(outcome, NotSeen)
    assert "for orientation: 43.81 GB/s" in outcome.unread.reason


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (live(flat_rows(0.5), backend="gloo", places=places(8, gpu_model=None)), NotApplicable),
        (live((row(GIB, busbw=1, num_ranks=2),), num_ranks=1, shares_gpus=True), NotSeen),
        (live(()), NotSeen),
        (live((replace(row(GIB, busbw=1), num_ranks=1),), num_ranks=1), NotApplicable),
    ],
    ids=["gloo", "shared GPU", "no rows", "one rank"],
)
def test_what_cannot_be_judged(facts: BenchFacts, kind: type[Outcome]) -> None:
    (outcome,) = check_below_expected(facts)
    assert isinstance(outcome, kind)


def test_a_guessed_collective_lowers_the_confidence() -> None:
    from distdoctor.nccl_bench.facts.bench import TableNotes

    facts = table(
        flat_rows(100),
        places=places(8, gpu_model=H100),
        table=TableNotes(collective_known=False),
        num_hosts=1,
    )
    assert the_found(facts).confidence is Confidence.MEDIUM


def test_of_several_data_types_the_fastest_counts() -> None:
    rows = (*flat_rows(478), *(replace(each, dtype="float64") for each in flat_rows(300)))
    assert nothing_found(check_below_expected(live(rows)))
