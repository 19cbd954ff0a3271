"""NVLink, fabric, IMEX, peer-to-peer, PCIe."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.gpu_fabric import check_fabric
from distdoctor.env.checks.gpu_imex import check_imex
from distdoctor.env.checks.gpu_nvlink import check_nvlink
from distdoctor.env.checks.gpu_p2p import check_p2p
from distdoctor.env.checks.gpu_pcie import check_pcie
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, NvLink, PairLink
from distdoctor.env.facts.host import ContainerFacts, HostFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.report.model import Confidence, Severity
from gpu_builders import env, h100, hgx, host_gpus, links, pairs, pasted


def found_in(outcomes: object) -> list[Found]:
    assert isinstance(outcomes, list)
    return [each for each in outcomes if isinstance(each, Found)]


def v100(index: int, down: tuple[int, ...] = ()) -> GpuDevice:
    return GpuDevice(index=index, name="Tesla V100-SXM2-32GB", nvlinks=links(6, down=down, speed_gbps=25.781))


# gpu-nvlink


def test_a_gpu_with_links_down_is_critical_beside_its_siblings() -> None:
    (found,) = found_in(check_nvlink(env(hgx(h100(3, nvlinks=links(down=(7,)))))))
    assert found.title == "GPU 3 (00000000:61:00.0) has 17 of 18 NVLinks up"
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.HIGH)
    assert "link 7" in found.evidence[0].text


def test_one_sibling_in_the_evidence_is_enough() -> None:
    (found,) = found_in(check_nvlink(pasted(v100(2), v100(3, down=(3, 5)))))
    assert "4 of 6" in found.title
    assert found.confidence is Confidence.HIGH


def test_one_gpu_alone_is_judged_by_its_model_and_less_sure() -> None:
    (found,) = found_in(check_nvlink(pasted(v100(3, down=(3, 5)))))
    assert found.confidence is Confidence.MEDIUM
    assert "data sheet" in (found.evidence[0].expected_source or "")


def test_a_list_cut_in_half_counts_what_it_shows() -> None:
    cut = GpuDevice(index=0, name="NVIDIA A100-SXM4-80GB", nvlinks=links(4, down=(2,), speed_gbps=25.0))
    (found,) = found_in(check_nvlink(pasted(cut)))
    assert "3 of 4" in found.title


def test_a_cube_mesh_of_which_half_was_rented_is_well() -> None:
    """Four of eight V100 in a virtual machine: four of six links, on each alike."""
    outcomes = check_nvlink(pasted(*(v100(index, down=(0, 5)) for index in range(4))))
    assert not found_in(outcomes)


def test_an_nvl_board_with_links_unused_is_well() -> None:
    devices = [
        GpuDevice(index=index, name="NVIDIA H100 NVL", nvlinks=links(18, down=(0, 1, 2, 3, 4, 5)))
        for index in range(2)
    ]
    assert not found_in(check_nvlink(pasted(*devices)))


def test_one_bridge_less_board_beside_bridged_ones_is_well() -> None:
    devices = [
        GpuDevice(index=index, name="NVIDIA A40", nvlinks=links(4, speed_gbps=14.062)) for index in range(2)
    ]
    alone = GpuDevice(index=2, name="NVIDIA A40", nvlinks=links(4, down=(0, 1, 2, 3)))
    assert not found_in(check_nvlink(pasted(*devices, alone)))


def test_a_bridge_with_a_link_down_is_found() -> None:
    devices = [
        GpuDevice(index=0, name="NVIDIA A40", nvlinks=links(4)),
        GpuDevice(index=1, name="NVIDIA A40", nvlinks=links(4, down=(2,))),
    ]
    (found,) = found_in(check_nvlink(pasted(*devices)))
    assert "GPU 1" in found.title


def test_all_short_by_the_same_number_points_at_a_switch() -> None:
    devices = [h100(index, nvlinks=links(down=(16, 17))) for index in range(8)]
    (found,) = found_in(check_nvlink(env(host_gpus(*devices))))
    assert found.severity is Severity.WARNING
    assert "NVSwitch" in found.explanation


def test_no_link_at_all_on_boards_that_have_them_is_critical() -> None:
    devices = [h100(index, nvlinks=links(down=tuple(range(18)))) for index in range(4)]
    (found,) = found_in(check_nvlink(env(host_gpus(*devices, pair_links=pairs(4, "SYS")))))
    assert "no NVLink up" in found.title


def test_a_slow_link_is_a_warning() -> None:
    slow = (NvLink(link=0, active=True, speed_gbps=13.281), *links()[1:])
    (found,) = found_in(check_nvlink(env(hgx(h100(2, nvlinks=slow)))))
    assert "slower" in found.title
    assert found.evidence[0].value == 13.281


def test_recoveries_are_a_lead_and_replays_are_nothing() -> None:
    recovered = (NvLink(link=0, active=True, speed_gbps=26.562, recovery_errors=2), *links()[1:])
    replayed = (
        NvLink(link=0, active=True, speed_gbps=26.562, replay_errors=9, recovery_errors=0),
        *links()[1:],
    )
    (found,) = found_in(check_nvlink(env(hgx(h100(2, nvlinks=recovered), h100(3, nvlinks=replayed)))))
    assert found.confidence is Confidence.LOW
    assert found.scope.gpus[0].index == 2


def test_a_pcie_box_has_no_nvlink_to_judge() -> None:
    devices = [h100(index, name="NVIDIA L40S", nvlinks=()) for index in range(4)]
    (outcome,) = check_nvlink(env(host_gpus(*devices, pair_links=pairs(4, "NODE"))))
    assert isinstance(outcome, NotApplicable)


def topology(*pair_links: PairLink, model: str | None = None, count: int = 2) -> EnvFacts:
    devices = tuple(GpuDevice(index=index, name=model) for index in range(count))
    return EnvFacts(origin="topo.txt", gpus=GpuFacts(devices=devices, pair_links=pair_links))


@pytest.mark.parametrize(
    ("model", "confidence"), [("NVIDIA RTX A6000", Confidence.HIGH), (None, Confidence.MEDIUM)]
)
def test_a_bridge_of_three_links_lacks_one(model: str | None, confidence: Confidence) -> None:
    (found,) = found_in(check_nvlink(topology(*pairs(2, "NV3", None), model=model)))
    assert "has 3 links up, not 4" in found.title
    assert (found.severity, found.confidence) == (Severity.WARNING, confidence)


def test_power9_joins_v100_by_three_links() -> None:
    facts = EnvFacts(
        origin="t",
        gpus=GpuFacts(devices=(GpuDevice(index=0), GpuDevice(index=1)), pair_links=pairs(2, "NV3", None)),
        host=HostFacts(architecture="ppc64le"),
    )
    assert not found_in(check_nvlink(facts))


@pytest.mark.parametrize(("count", "kind"), [(4, "NV6"), (8, "NV18"), (4, "NV4"), (2, "NV4"), (2, "NV12")])
def test_pairs_that_are_all_alike_are_well(count: int, kind: str) -> None:
    (outcome,) = check_nvlink(topology(*pairs(count, kind, None), count=count))
    assert isinstance(outcome, Passed)


def test_one_row_below_the_others_is_critical() -> None:
    weak = [
        PairLink(a=pair.a, b=pair.b, kind="NV16" if "GPU5" in (pair.a, pair.b) else "NV18")
        for pair in pairs(8)
    ]
    (found,) = found_in(check_nvlink(topology(*weak, count=8)))
    assert found.severity is Severity.CRITICAL
    assert found.title.startswith("GPU5 has 16 NVLinks")
    assert found.scope.gpus[0].index == 5


def test_a_cube_mesh_of_unequal_pairs_is_well() -> None:
    kinds = ["NV1", "NV1", "NV2", "NV2", "NV1", "NV1"]
    mesh = [PairLink(a=pair.a, b=pair.b, kind=kind) for pair, kind in zip(pairs(4), kinds, strict=True)]
    assert not found_in(check_nvlink(topology(*mesh, count=4)))


# gpu-fabric


@pytest.mark.parametrize(("state", "word"), [(1, "not started"), (2, "in progress")])
def test_a_fabric_that_is_not_ready_is_critical(state: int, word: str) -> None:
    devices = [h100(index, fabric_state=state) for index in range(8)]
    (found,) = found_in(check_fabric(env(host_gpus(*devices), host=HostFacts(uptime_s=86400.0))))
    assert found.severity is Severity.CRITICAL
    assert word in found.title
    assert "802" in found.explanation


def test_just_after_boot_it_may_still_come() -> None:
    devices = [h100(index, fabric_state=2) for index in range(8)]
    (found,) = found_in(check_fabric(env(host_gpus(*devices), host=HostFacts(uptime_s=90.0))))
    assert found.severity is Severity.WARNING


def test_a_registration_that_failed_is_critical() -> None:
    (found,) = found_in(check_fabric(env(hgx(h100(2, fabric_status=999)))))
    assert "failed" in found.title
    assert found.scope.gpus[0].index == 2


@pytest.mark.parametrize(("health", "severity"), [(2, Severity.CRITICAL), (3, Severity.WARNING)])
def test_an_unhealthy_fabric(health: int, severity: Severity) -> None:
    (found,) = found_in(check_fabric(env(hgx(h100(2, fabric_health=health)))))
    assert found.severity is severity


@pytest.mark.parametrize("state", ["failed", "inactive", "not installed"])
def test_a_fabric_manager_that_does_not_run_beside_switches_is_critical(state: str) -> None:
    devices = [h100(index, fabric_state=2) for index in range(8)]
    gpus = host_gpus(*devices, fabric_manager=state, fabric_manager_version="565.57.01")
    (found,) = found_in(check_fabric(env(gpus)))
    assert found.severity is Severity.CRITICAL
    assert found.key == "manager"


def test_a_failed_fabric_manager_on_a_pcie_box_is_harmless() -> None:
    devices = [h100(index, name="NVIDIA A40", fabric_state=None) for index in range(2)]
    gpus = host_gpus(
        *devices, fabric_manager="failed", fabric_manager_error="… [NV_WARN_NOTHING_TO_DO]", num_nvswitches=0
    )
    (outcome,) = check_fabric(env(gpus))
    assert isinstance(outcome, NotApplicable)


def test_a_fabric_manager_that_failed_with_a_reason_is_found_and_less_sure() -> None:
    gpus = GpuFacts(
        fabric_manager="failed", fabric_manager_error="failed to initialize: NVSwitch fatal error"
    )
    (found,) = found_in(check_fabric(EnvFacts(origin="journal.txt", gpus=gpus)))
    assert found.confidence is Confidence.MEDIUM


def test_nothing_to_do_alone_accuses_nobody() -> None:
    gpus = GpuFacts(fabric_manager="failed", fabric_manager_error="Nothing to do [NV_WARN_NOTHING_TO_DO]")
    (outcome,) = check_fabric(EnvFacts(origin="journal.txt", gpus=gpus))
    assert isinstance(outcome, NotApplicable)


def test_nothing_to_do_on_eight_b200_is_a_fault() -> None:
    devices = [h100(index, name="NVIDIA B200", fabric_state=None) for index in range(8)]
    gpus = host_gpus(
        *devices, fabric_manager="failed", fabric_manager_error="[NV_WARN_NOTHING_TO_DO]", num_nvswitches=0
    )
    (found,) = found_in(check_fabric(env(gpus)))
    assert found.severity is Severity.CRITICAL


def test_from_inside_a_container_an_a100_board_is_not_judged() -> None:
    devices = [h100(index, name="NVIDIA A100-SXM4-80GB", fabric_state=None) for index in range(8)]
    gpus = host_gpus(*devices, fabric_manager=None, num_nvswitches=0)
    (outcome,) = check_fabric(env(gpus, container=ContainerFacts(kind="docker")))
    assert isinstance(outcome, NotSeen)


# gpu-imex


def gb200(**changes: object) -> GpuFacts:
    return host_gpus(*(h100(index, name="NVIDIA GB200") for index in range(4)), num_nvswitches=0, **changes)


def test_a_domain_that_is_down_is_critical_over_several_hosts() -> None:
    gpus = gb200(imex_state="DOWN", num_imex_channels=1)
    (found,) = found_in(check_imex(env(gpus)))
    assert found.severity is Severity.CRITICAL
    (alone,) = found_in(check_imex(env(gpus, scheduler=SchedulerFacts(num_nodes=1))))
    assert alone.severity is Severity.WARNING


def test_a_container_without_a_channel_is_a_warning() -> None:
    facts = env(
        gb200(imex_state="not installed", num_imex_channels=0), container=ContainerFacts(kind="kubernetes")
    )
    (found,) = found_in(check_imex(facts))
    assert found.key == "channel"


def test_an_unread_domain_is_not_seen() -> None:
    (outcome,) = check_imex(env(gb200(imex_state=None)))
    assert isinstance(outcome, NotSeen)


# gpu-p2p


def test_nvlink_pairs_that_may_not_are_critical() -> None:
    joined = [
        PairLink(a=pair.a, b=pair.b, kind="NV18", p2p_read="disabled by regkey" if pair.b == "GPU7" else "ok")
        for pair in pairs(8)
    ]
    (found,) = found_in(check_p2p(env(hgx(pair_links=tuple(joined)))))
    assert found.severity is Severity.CRITICAL
    assert "7 pairs" in found.title


@pytest.mark.parametrize(
    ("model", "kind", "why", "severity"),
    [
        ("NVIDIA GeForce RTX 4090", "PHB", "chipset not supported", Severity.INFO),
        ("NVIDIA L4", "PIX", "gpu not supported", Severity.INFO),
        ("NVIDIA A100 80GB PCIe", "SYS", "topology not supported", Severity.INFO),
        ("NVIDIA A100 80GB PCIe", "PIX", "chipset not supported", Severity.WARNING),
        ("NVIDIA L40S", "PIX", "disabled by regkey", Severity.WARNING),
    ],
)
def test_pcie_pairs_without_p2p(model: str, kind: str, why: str, severity: Severity) -> None:
    devices = [h100(index, name=model, nvlinks=()) for index in range(2)]
    (found,) = found_in(check_p2p(env(host_gpus(*devices, pair_links=pairs(2, kind, why)))))
    assert found.severity is severity


def test_a_topology_alone_does_not_decide_and_says_what_would() -> None:
    devices = [GpuDevice(index=index) for index in range(4)]
    facts = EnvFacts(origin="t", gpus=GpuFacts(devices=tuple(devices), pair_links=pairs(4, "PIX", None)))
    (outcome,) = check_p2p(facts)
    assert isinstance(outcome, NotSeen)
    assert "topo -p2p" in (outcome.unread.how or "")


def test_one_gpu_has_nobody_to_reach() -> None:
    outcome: Outcome
    (outcome,) = check_p2p(env(host_gpus(h100())))
    assert isinstance(outcome, NotApplicable)


# gpu-pcie-width


def test_fewer_lanes_than_the_siblings_is_critical() -> None:
    (found,) = found_in(check_pcie(env(hgx(h100(4, pcie_width=8)))))
    assert found.title == "GPU 4 (00000000:9D:00.0) runs at PCIe x8 instead of x16"
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.HIGH)


def test_all_alike_may_be_the_slots_wiring() -> None:
    devices = [h100(index, name="NVIDIA L4", pcie_width=8) for index in range(4)]
    (found,) = found_in(check_pcie(env(host_gpus(*devices))))
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert len(found.scope.gpus) == 4


def test_two_models_are_not_compared() -> None:
    devices = [h100(0), h100(1), h100(2, name="NVIDIA L4", pcie_width=8, pcie_width_max=8)]
    assert not found_in(check_pcie(env(host_gpus(*devices))))


def test_a_low_generation_counts_under_load_only() -> None:
    assert not found_in(check_pcie(env(hgx(h100(1, pcie_gen=1, utilisation_pct=0)))))
    (found,) = found_in(check_pcie(env(hgx(h100(1, pcie_gen=3, utilisation_pct=99)))))
    assert found.severity is Severity.WARNING
    assert "gen 3 of 5" in found.title
