"""Throttling, power limits, clocks, temperatures, the signature of a hang."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotSeen, Passed
from distdoctor.env.checks.gpu_clocks import check_clocks
from distdoctor.env.checks.gpu_hang_signature import check_hang_signature
from distdoctor.env.checks.gpu_power_limit import check_power_limit
from distdoctor.env.checks.gpu_temperature import check_temperature
from distdoctor.env.checks.gpu_throttled import check_throttled
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Confidence, Severity
from gpu_builders import env, h100, hgx, host_gpus, pasted


def found_in(outcomes: object) -> list[Found]:
    assert isinstance(outcomes, list)
    return [each for each in outcomes if isinstance(each, Found)]


@pytest.mark.parametrize(
    ("reasons", "severity"),
    [
        (("hw_slowdown", "power_brake"), Severity.CRITICAL),
        (("hw_slowdown", "hw_thermal"), Severity.CRITICAL),
        (("hw_slowdown",), Severity.CRITICAL),
        (("sw_power_cap", "hw_slowdown"), Severity.CRITICAL),
        (("idle", "hw_slowdown"), Severity.WARNING),
        (("sw_thermal",), Severity.WARNING),
        (("sw_power_cap", "sw_thermal"), Severity.WARNING),
    ],
)
def test_slowdowns(reasons: tuple[str, ...], severity: Severity) -> None:
    (found,) = found_in(check_throttled(env(hgx(h100(2, throttle_reasons=reasons)))))
    assert found.severity is severity
    assert found.title.startswith("GPU 2 (00000000:52:00.0)")
    assert len(found.title) <= 80


@pytest.mark.parametrize(
    "reasons", [(), ("idle",), ("sw_power_cap",), ("app_clocks",), ("sync_boost", "display")]
)
def test_what_is_normal_passes(reasons: tuple[str, ...]) -> None:
    (outcome,) = check_throttled(env(hgx(h100(2, throttle_reasons=reasons))))
    assert isinstance(outcome, Passed)


def test_the_gpu_with_less_power_is_the_odd_one() -> None:
    devices = [
        GpuDevice(
            index=index,
            name="Tesla V100-SXM2...",
            pci=f"00000000:{0x1C + index:02X}:00.0",
            power_limit_w=watts,
        )
        for index, watts in enumerate((300.0, 300.0, 150.0, 300.0))
    ]
    (found,) = found_in(check_power_limit(pasted(*devices)))
    assert found.title == "GPU 2 (00000000:1E:00.0) is limited to 150 W, its siblings to 300 W"
    assert found.severity is Severity.WARNING


def test_with_two_gpus_the_lower_one_is_named() -> None:
    devices = [h100(0), h100(1, power_limit_w=350.0)]
    (found,) = found_in(check_power_limit(env(host_gpus(*devices))))
    assert "GPU 1" in found.title


def test_all_capped_alike_is_one_warning() -> None:
    devices = [h100(index, power_limit_w=500.0) for index in range(8)]
    (found,) = found_in(check_power_limit(env(host_gpus(*devices))))
    assert found.confidence is Confidence.MEDIUM
    assert len(found.scope.gpus) == 8


def test_rounding_is_no_difference() -> None:
    devices = [h100(0, power_limit_w=700.0), h100(1, power_limit_w=699.5), h100(2, power_limit_w=700.0)]
    assert not found_in(check_power_limit(env(host_gpus(*devices))))


def test_two_models_have_two_limits() -> None:
    devices = [h100(0), h100(1), h100(2, name="NVIDIA L4", power_limit_w=72.0, power_limit_default_w=72.0)]
    assert not found_in(check_power_limit(env(host_gpus(*devices))))


def test_limits_that_are_not_shown_are_not_seen() -> None:
    (outcome,) = check_power_limit(pasted(GpuDevice(index=0, name="NVIDIA GeForce ...")))
    assert isinstance(outcome, NotSeen)


def test_a_lower_clock_setting_names_the_gpu() -> None:
    (found,) = found_in(check_clocks(env(hgx(h100(5, application_clock_mhz=1200)))))
    assert "GPU 5" in found.title
    assert "1200" in found.title


def test_a_far_lower_clock_under_load_names_the_gpu() -> None:
    devices = [h100(index, utilisation_pct=100, sm_clock_mhz=1755) for index in range(7)]
    devices.append(h100(7, utilisation_pct=100, sm_clock_mhz=1065))
    (found,) = found_in(check_clocks(env(host_gpus(*devices))))
    assert "GPU 7" in found.title
    assert found.confidence is Confidence.MEDIUM


def test_clocks_of_idle_gpus_say_nothing() -> None:
    devices = [h100(index, sm_clock_mhz=1980 if index else 345) for index in range(8)]
    assert not found_in(check_clocks(env(host_gpus(*devices))))


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature_c": 86, "temperature_slowdown_c": 90},
        {"temperature_c": 84, "temperature_margin_c": 3},
        {"temperature_c": 91, "temperature_margin_c": None},
        {"memory_temperature_c": 93, "memory_temperature_max_c": 95},
    ],
)
def test_near_its_threshold_a_gpu_is_hot(changes: dict[str, object]) -> None:
    (found,) = found_in(check_temperature(env(hgx(h100(3, **changes)))))
    assert found.severity is Severity.WARNING
    assert "°C" in found.title


def test_heat_that_slows_already_is_told_once() -> None:
    hot = h100(3, temperature_c=91, temperature_margin_c=0, throttle_reasons=("hw_slowdown", "hw_thermal"))
    assert not found_in(check_temperature(env(hgx(hot))))


def test_a_warm_gpu_with_margin_is_well() -> None:
    assert not found_in(check_temperature(env(hgx(h100(3, temperature_c=80, temperature_margin_c=10)))))


def spinning(index: int, **changes: object) -> GpuDevice:
    fields: dict[str, object] = {"utilisation_pct": 100, "power_w": 44.0, "power_limit_w": 250.0, **changes}
    return GpuDevice(index=index, name="Tesla V100-PCIE...", **fields)  # type: ignore[arg-type]


def test_two_gpus_that_spin_without_power_look_like_a_hang() -> None:
    idle = spinning(2, utilisation_pct=0, power_w=26.0)
    (found,) = found_in(check_hang_signature(pasted(spinning(0), spinning(1), idle)))
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert [each.index for each in found.scope.gpus] == [0, 1]


def test_one_gpu_that_spins_is_a_lead() -> None:
    (found,) = found_in(check_hang_signature(pasted(spinning(0))))
    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)


def test_real_work_is_no_hang() -> None:
    assert not found_in(check_hang_signature(pasted(spinning(0, power_w=180.0), spinning(1, power_w=120.0))))


def test_without_power_nothing_is_said() -> None:
    (outcome,) = check_hang_signature(pasted(spinning(0, power_w=None)))
    assert isinstance(outcome, NotSeen)
