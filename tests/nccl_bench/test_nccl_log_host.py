"""NCCL's log about one host: paths between its GPUs, and the reduction in the NVSwitch."""

from __future__ import annotations

import pytest

from distdoctor.nccl_bench.checks import nccl_log_nvls, nccl_log_shm, nccl_log_warn
from distdoctor.nccl_bench.checks.base import NotApplicable, NotSeen, Passed
from distdoctor.nccl_bench.facts.places import HostHardware
from distdoctor.report.model import Confidence, Fault, Severity
from nccl_bench.nccl_log_texts import ONE_HOST, TWO_HOSTS, facts_of, found, lines, outcome

SHM = nccl_log_shm.CHECK
NVLS = nccl_log_nvls.CHECK
THROUGH_MEMORY = lines(
    "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", "Channel 00 : 1[1] -> 0[0] via SHM/direct/direct"
)
DIRECT = lines("Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM/read")


def row(model: str) -> str:
    return f"#  Rank  0 Group  0 Pid    21 on    trainer-7 device  0 [0x0f] {model}\n"


@pytest.mark.parametrize(
    "sign",
    [
        row("NVIDIA A100-SXM4-80GB"),
        row("NVIDIA H200"),
        lines("+ NVL[240.0] - NVS/0"),
        lines("+ NVL[40.0] - GPU/81000"),
    ],
)
def test_host_memory_beside_nvlink_is_critical(sign: str) -> None:
    each = found(SHM, facts_of(sign + THROUGH_MEMORY))
    assert (each.severity, each.confidence) == (Severity.CRITICAL, Confidence.HIGH)


def test_the_live_hosts_links_decide() -> None:
    linked = (HostHardware(host="a", nvlinks_per_gpu=12),)
    bare = (HostHardware(host="a", nvlinks_per_gpu=0),)
    assert found(SHM, facts_of(THROUGH_MEMORY, hardware=linked)).severity is Severity.CRITICAL
    assert found(SHM, facts_of(THROUGH_MEMORY, hardware=bare)).severity is Severity.INFO


@pytest.mark.parametrize(
    "sign",
    [row("NVIDIA L40S"), row("NVIDIA GeForce RTX 4090"), lines("=== System : maxBw 24.0 totalBw 24.0 ===")],
)
def test_host_memory_on_pcie_alone_is_info_with_its_ceiling(sign: str) -> None:
    each = found(SHM, facts_of(sign + THROUGH_MEMORY))
    assert (each.severity, each.confidence) == (Severity.INFO, Confidence.HIGH)
    assert "3.9 GB/s" in each.explanation


def test_direct_and_indirect_pairs_together_are_taken_for_pcie() -> None:
    each = found(SHM, facts_of(THROUGH_MEMORY + DIRECT))
    assert (each.severity, each.confidence) == (Severity.INFO, Confidence.MEDIUM)


def test_host_memory_alone_on_unknown_gpus_is_a_lead() -> None:
    each = found(SHM, facts_of(THROUGH_MEMORY))
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.LOW)


@pytest.mark.parametrize(
    "setting",
    ["NCCL_P2P_DISABLE set by environment to 1.", "NCCL_P2P_LEVEL set by environment to LOC"],
)
def test_a_setting_that_shuts_direct_paths_off_is_the_cause(setting: str) -> None:
    each = found(SHM, facts_of(lines(setting) + THROUGH_MEMORY))
    assert (each.severity, each.fault) == (Severity.WARNING, Fault.CONFIG)
    assert (each.actions[0].command or "").startswith("unset NCCL_P2P_DISABLE")


def test_direct_paths_are_passed_and_no_paths_are_not() -> None:
    assert isinstance(outcome(SHM, facts_of(DIRECT)), Passed)
    assert isinstance(outcome(SHM, facts_of(lines("Using network IB"))), NotSeen)
    alone = "comm 0x1 rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0"
    assert isinstance(outcome(SHM, facts_of(lines(alone))), NotApplicable)


NO_CHANNELS = (
    "24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer"
)
CHANNELS = (
    "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer"
)


@pytest.mark.parametrize(
    "sign",
    [
        row("NVIDIA H100 80GB HBM3"),
        row("NVIDIA H800"),
        row("NVIDIA B200"),
        lines("+ NVL[370.8] - NVS/0-0"),
        lines("+ NVL[164.8] - NVS/0"),
        lines("NET/OFI Running on p5en.48xlarge platform"),
    ],
)
def test_hopper_and_newer_on_nvswitch_without_channels_are_a_warning_with_the_loss(sign: str) -> None:
    each = found(NVLS, facts_of(sign + lines(ONE_HOST, NO_CHANNELS)))
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.HIGH)
    assert "19 to 24 %" in each.explanation


@pytest.mark.parametrize(
    "sign",
    [
        row("NVIDIA A100-SXM4-80GB"),
        row("NVIDIA H100 PCIe"),
        row("NVIDIA H100 NVL"),
        row("NVIDIA L40S"),
        lines("+ NVL[240.0] - NVS/0"),
        lines("=== System : maxBw 48.0 totalBw 48.0 ==="),
        "RCCL version : 2.26.6-HEAD:f224e2c\n",
    ],
)
def test_gpus_that_cannot_have_it_are_not_applicable(sign: str) -> None:
    assert isinstance(outcome(NVLS, facts_of(sign + lines(ONE_HOST, NO_CHANNELS))), NotApplicable)


def test_unknown_gpus_without_channels_are_info_that_asks_which_they_are() -> None:
    each = found(NVLS, facts_of(lines(ONE_HOST, NO_CHANNELS)))
    assert (each.severity, each.confidence) == (Severity.INFO, Confidence.LOW)
    assert "nvidia-smi -L" in (each.actions[0].command or "")


def test_somebody_who_asks_for_nvls_and_does_not_get_it_is_warned_at_low_confidence() -> None:
    each = found(NVLS, facts_of(lines("NCCL_ALGO set by environment to NVLS,Ring", NO_CHANNELS)))
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.LOW)


def test_multicast_that_is_available_without_channels_is_a_warning() -> None:
    each = found(NVLS, facts_of(lines("NVLS multicast support is available on dev 0", ONE_HOST, NO_CHANNELS)))
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.MEDIUM)


def test_a_failure_that_nccl_writes_down_is_a_warning_on_any_gpu() -> None:
    text = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 5 : CUDA error 1 'x'. Proceeding without NVLS support."
    each = found(NVLS, facts_of(lines(text, level="WARN")))
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.HIGH)


def test_a_failure_that_ends_the_job_is_left_to_nccls_warning() -> None:
    text = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 5 : CUDA error 401 'x'."
    facts = facts_of(lines(text, level="WARN"))
    assert isinstance(outcome(NVLS, facts), NotApplicable)
    each = found(nccl_log_warn.CHECK, facts, "nvls-bind")
    assert (each.severity, each.fault) == (Severity.CRITICAL, Fault.HOST)


def test_a_setting_that_turns_it_off_is_the_cause() -> None:
    each = found(
        NVLS, facts_of(row("NVIDIA H200") + lines("NCCL_NVLS_ENABLE set by environment to 0.", ONE_HOST))
    )
    assert each.fault is Fault.CONFIG
    assert each.actions[0].command == "unset NCCL_NVLS_ENABLE"


def test_buffers_that_cannot_be_registered_are_no_failure_of_nvls() -> None:
    text = lines("rank 0 failed to NVLS register sendbuff 0x1 sendbuffSize 5 recvbuff 0x2 recvbuffSize 5")
    assert isinstance(outcome(NVLS, facts_of(text)), NotSeen)


@pytest.mark.parametrize(
    "text",
    [
        CHANNELS,
        "Connected NVLS tree",
        "NVLS multicast support is available on dev 0",
        "AllReduce: 67108864 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
    ],
)
def test_channels_a_set_up_or_a_use_are_passed(text: str) -> None:
    assert isinstance(outcome(NVLS, facts_of(row("NVIDIA H100 80GB HBM3") + lines(text))), Passed)


def test_two_gpus_a_host_never_have_it() -> None:
    few = "comm 0x1 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0"
    assert isinstance(outcome(NVLS, facts_of(row("NVIDIA H200") + lines(few, NO_CHANNELS))), NotApplicable)


def test_a_log_that_says_nothing_of_it_is_not_passed() -> None:
    assert isinstance(outcome(NVLS, facts_of(row("NVIDIA H200") + lines(TWO_HOSTS))), NotSeen)


@pytest.mark.parametrize("value", ["ring,tree", "Ring", "^NVLS", "allreduce:tree,ring"])
def test_a_choice_of_algorithms_that_shuts_it_out_is_a_warning_though_channels_are_there(value: str) -> None:
    each = found(NVLS, facts_of(lines(f"NCCL_ALGO set by environment to {value}", ONE_HOST, CHANNELS)))
    assert (each.severity, each.confidence, each.fault) == (Severity.WARNING, Confidence.HIGH, Fault.CONFIG)


@pytest.mark.parametrize("value", ["^Tree", "NVLS,Ring", "broadcast:ring", "NVLSTree"])
def test_a_choice_of_algorithms_that_leaves_it_in_is_no_fault_of_nvls(value: str) -> None:
    text = lines(f"NCCL_ALGO set by environment to {value}", ONE_HOST, CHANNELS)
    assert isinstance(outcome(NVLS, facts_of(text)), Passed)
