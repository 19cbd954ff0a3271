"""Checks of the kernel log: each fires, stays silent, and says so when the log was not seen."""

from __future__ import annotations

import pytest

from distdoctor.env.catalog.xid import xid_of, xid_table
from distdoctor.env.checks import (
    kernel_memory_error,
    kernel_nccl_segfault,
    kernel_nic,
    kernel_oom_kill,
    kernel_pcie,
    kernel_sxid,
    kernel_xid,
)
from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome, Passed
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.kernel_log import KernelLogFacts
from distdoctor.env.readers import kernel_log
from distdoctor.report.model import Confidence, Fault, Severity, SkipCause

CHECKS = (
    kernel_xid.CHECK, kernel_sxid.CHECK, kernel_oom_kill.CHECK, kernel_nic.CHECK, kernel_pcie.CHECK,
    kernel_nccl_segfault.CHECK, kernel_memory_error.CHECK,
)  # fmt: skip


def run(check: Check, *lines: str, gpus: GpuFacts | None = None, live: bool = False) -> list[Outcome]:
    text = "\n".join(f"[ 5000.{number:06d}] {line}" for number, line in enumerate(lines))
    log = kernel_log.read(text, "dmesg.txt")
    facts = EnvFacts(host_name="node-a", kernel_log=log, gpus=gpus)
    return list(check.run(facts if live else EnvFacts(origin="dmesg.txt", kernel_log=log, gpus=gpus)))


def found(outcomes: list[Outcome]) -> list[Found]:
    assert all(isinstance(each, Found) for each in outcomes), outcomes
    return [each for each in outcomes if isinstance(each, Found)]


def xid(code: int, text: str = "pid=1, name=python3, x", pci: str = "0000:4f:00") -> str:
    return f"NVRM: Xid (PCI:{pci}): {code}, {text}"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_an_ordinary_log_passes_and_says_how_much_was_seen(check: Check) -> None:
    (outcome,) = run(check, "usb 1-1: new device", "mlx5_core 0000:3b:00.0 mlx5_2: Port: 1 Link ACTIVE")
    assert isinstance(outcome, Passed)
    assert "2 lines of dmesg.txt" in outcome.detail


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_log_that_was_not_seen_is_no_empty_log(check: Check) -> None:
    unread = Unread(cause=SkipCause.NEEDS_ROOT, reason="/dev/kmsg: Operation not permitted", how="sudo dmesg")
    (outcome,) = check.run(EnvFacts(kernel_log=KernelLogFacts(unread={"events": unread})))
    assert outcome == NotSeen(unread=unread)
    (outcome,) = check.run(EnvFacts(origin="env.txt"))
    assert isinstance(outcome, NotSeen) and outcome.unread.cause is SkipCause.NOT_IN_EVIDENCE


def test_victims_are_folded_under_the_root_cause() -> None:
    (outcome,) = found(
        run(
            kernel_xid.CHECK, xid(31), xid(45), xid(119, "Timeout after 6s of waiting for RPC response"), xid(45),
            xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
        )
    )  # fmt: skip
    assert "Xid 119" in outcome.title and outcome.severity is Severity.CRITICAL
    assert any("Xid 45 (2 times)" in each.text for each in outcome.evidence)
    assert "reboot it" in outcome.actions[0].text


def test_the_first_of_two_equal_causes_is_the_root() -> None:
    (outcome,) = found(run(kernel_xid.CHECK, xid(62), xid(119)))
    assert "Xid 62" in outcome.title


@pytest.mark.parametrize("code", [13, 31, 69, 137])
def test_program_faults_ask_the_job_owner_first(code: int) -> None:
    (outcome,) = found(run(kernel_xid.CHECK, xid(code), xid(43)))
    assert outcome.severity is Severity.WARNING and outcome.fault is Fault.USER_CODE
    assert outcome.confidence is Confidence.MEDIUM
    assert outcome.actions[0].team.value == "job owner"


def test_many_programs_that_fail_on_one_gpu_accuse_the_gpu() -> None:
    (outcome,) = found(run(kernel_xid.CHECK, *(xid(31, f"pid={number}, name=a, x") for number in range(3))))
    assert "3 programs" in outcome.explanation


def test_a_victim_alone_accuses_nobody() -> None:
    (outcome,) = found(run(kernel_xid.CHECK, xid(45)))
    assert outcome.severity is Severity.INFO and outcome.fault is Fault.UNKNOWN


@pytest.mark.parametrize(
    ("word", "severity", "confidence"),
    [
        ("Fatal", Severity.CRITICAL, Confidence.MEDIUM),
        ("Nonfatal", Severity.WARNING, Confidence.MEDIUM),
        ("", Severity.WARNING, Confidence.LOW),
    ],
)
def test_nvlink_5_numbers_are_judged_by_their_words(
    word: str, severity: Severity, confidence: Confidence
) -> None:
    (outcome,) = found(run(kernel_xid.CHECK, xid(145, f"RLW_REMAP {word} XC1 i0 Link 01")))
    assert (outcome.severity, outcome.confidence) == (severity, confidence)


def test_a_contained_memory_error_is_a_warning_and_an_uncontained_one_critical() -> None:
    (contained,) = found(run(kernel_xid.CHECK, xid(94), xid(63)))
    (uncontained,) = found(run(kernel_xid.CHECK, xid(95), xid(63)))
    assert (contained.severity, uncontained.severity) == (Severity.WARNING, Severity.CRITICAL)
    assert contained.cause_class == uncontained.cause_class == "gpu:ecc_uncorrectable"


def test_a_recovery_that_is_wanted_no_more_is_good_news() -> None:
    line = xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    (outcome,) = run(kernel_xid.CHECK, line)
    assert isinstance(outcome, Passed)


def test_an_unknown_number_is_a_lead() -> None:
    (outcome,) = found(run(kernel_xid.CHECK, xid(9999)))
    assert (outcome.severity, outcome.confidence) == (Severity.WARNING, Confidence.LOW)


def test_gpus_with_the_same_cause_are_one_finding() -> None:
    (outcome,) = found(run(kernel_xid.CHECK, xid(74, pci="0000:1b:00"), xid(74, pci="0000:43:00")))
    assert outcome.title.startswith("2 GPUs") and len(outcome.scope.gpus) == 2
    assert outcome.cause_class == "gpu:nvlink"


def test_a_lost_gpu_its_sentence_and_its_nvml_error_are_one_root_cause() -> None:
    lines = (
        xid(79, "GPU has fallen off the bus."), "NVRM: GPU 0000:4f:00.0: GPU has fallen off the bus.",
        "exporter: GPU-eeeeeeee-0000-0000-0000-000000000001: ERROR_GPU_IS_LOST",
    )  # fmt: skip
    (outcome,) = found(run(kernel_xid.CHECK, *lines))
    assert outcome.cause_class == "gpu:fell_off_bus" and outcome.severity is Severity.CRITICAL


def test_what_gpu_lost_tells_is_not_told_again() -> None:
    lost = GpuFacts(
        devices=(GpuDevice(index=2, pci="00000000:4F:00.0", lost=True, lost_reason="GPU is lost"),)
    )
    (outcome,) = run(kernel_xid.CHECK, xid(79, "GPU has fallen off the bus."), gpus=lost)
    assert isinstance(outcome, Passed) and "gpu-lost" in outcome.detail


def test_the_gpu_is_named_by_index_when_other_evidence_has_it() -> None:
    gpus = GpuFacts(devices=(GpuDevice(index=5, pci="00000000:4F:00.0", uuid="GPU-x", name="NVIDIA H200"),))
    (outcome,) = found(run(kernel_xid.CHECK, xid(48), gpus=gpus))
    assert outcome.title.startswith("GPU 5")
    assert outcome.scope.gpus[0].model == "NVIDIA H200"


def test_every_number_of_the_catalogue_gives_a_short_title() -> None:
    for code in xid_table():
        for outcome in run(kernel_xid.CHECK, xid(code, pci="00000000:4f:00.0")):
            if isinstance(outcome, Found):
                assert len(outcome.title) <= 80 and outcome.actions, code
    assert xid_of(131) == xid_of(39) or xid_of(131) is not None


def test_history_of_this_machine_is_information() -> None:
    from dataclasses import replace

    log = kernel_log.read(f"[1.000001] {xid(79)}", "/dev/kmsg")
    assert log.events is not None
    old = replace(log, events=tuple(replace(event, seconds_ago=3 * 86400.0) for event in log.events))
    (outcome,) = kernel_xid.CHECK.run(EnvFacts(kernel_log=old))
    assert isinstance(outcome, Found) and outcome.severity is Severity.INFO
    (outcome,) = kernel_xid.CHECK.run(EnvFacts(origin="dmesg.txt", kernel_log=old))
    assert isinstance(outcome, Found) and outcome.severity is Severity.CRITICAL


def test_sxids_are_judged_by_their_words() -> None:
    line = "nvidia-nvswitch1: SXid (PCI:0000:c2:00.0): 12028, {}, Link 04 egress non-posted"
    assert found(run(kernel_sxid.CHECK, line.format("Fatal")))[0].severity is Severity.CRITICAL
    assert found(run(kernel_sxid.CHECK, line.format("Non-fatal")))[0].severity is Severity.INFO
    assert found(run(kernel_sxid.CHECK, *[line.format("Non-fatal")] * 12))[0].severity is Severity.WARNING
    assert found(run(kernel_sxid.CHECK, line.format("x")))[0].confidence is Confidence.LOW


def test_a_killed_training_process_is_critical_and_others_a_warning() -> None:
    kill = "Memory cgroup out of memory: Killed process 8 ({}) total-vm:1kB"
    (job,) = found(run(kernel_oom_kill.CHECK, kill.format("pt_data_worker")))
    (other,) = found(run(kernel_oom_kill.CHECK, kill.format("node_exporter")))
    assert (job.severity, other.severity) == (Severity.CRITICAL, Severity.WARNING)
    assert job.cause_class == "host:oom_killed" and "cgroup" in job.title


DOWN = "mlx5_core 0000:3b:00.0 mlx5_2: Port: 1 Link DOWN"
UP = "mlx5_core 0000:3b:00.0 mlx5_2: Port: 1 Link ACTIVE"


def test_a_link_that_came_back_is_a_warning_and_one_that_did_not_critical() -> None:
    (flap,) = found(run(kernel_nic.CHECK, UP, DOWN, UP))
    (gone,) = found(run(kernel_nic.CHECK, UP, DOWN))
    assert (flap.severity, gone.severity) == (Severity.WARNING, Severity.CRITICAL)
    assert flap.confidence is Confidence.MEDIUM and flap.cause_class == "network:link_down"


def test_links_that_come_up_at_boot_are_no_flaps() -> None:
    text = f"[   14.000001] {DOWN}\n[   19.000001] {UP}\n"
    log = kernel_log.read(text, "x")
    (outcome,) = kernel_nic.CHECK.run(EnvFacts(origin="x", kernel_log=log))
    assert isinstance(outcome, Passed)
    # Without a stamp of the kernel a single down, then up, may be a boot as well.
    log = kernel_log.read(f"Mar  5 10:00:00 n1 kernel: {DOWN}\nMar  5 10:00:05 n1 kernel: {UP}\n", "x")
    (outcome,) = kernel_nic.CHECK.run(EnvFacts(origin="x", kernel_log=log))
    assert isinstance(outcome, Passed)


def test_cards_without_power_or_firmware() -> None:
    power = "mlx5_core 0000:3b:00.0: Detected insufficient power on the PCIe slot (27W)."
    fatal = "mlx5_core 0000:5e:00.0: poll_health:825:(pid 0): Fatal error 3 detected"
    first, second = found(run(kernel_nic.CHECK, power, fatal))
    assert (first.severity, second.severity) == (Severity.WARNING, Severity.CRITICAL)
    assert second.cause_class == "network:hca_fatal"


def test_pcie_errors_by_kind() -> None:
    fatal = "pcieport 0000:80:01.1: AER: Uncorrected (Fatal) error received: 0000:81:00.0"
    non_fatal = "pcieport 0000:80:01.1: AER: Uncorrected (Non-Fatal) error received: 0000:81:00.0"
    corrected = "pcieport 0000:80:01.1: AER: Corrected error received: 0000:81:00.0"
    assert found(run(kernel_pcie.CHECK, fatal))[0].severity is Severity.CRITICAL
    assert found(run(kernel_pcie.CHECK, non_fatal))[0].severity is Severity.WARNING
    assert found(run(kernel_pcie.CHECK, corrected))[0].severity is Severity.INFO
    assert found(run(kernel_pcie.CHECK, *[corrected] * 200))[0].severity is Severity.WARNING


@pytest.mark.parametrize(("have", "severity"), [("63.008", Severity.WARNING), ("126.016", Severity.INFO)])
def test_a_slot_that_halves_a_card_is_information_and_less_a_warning(have: str, severity: Severity) -> None:
    line = (
        f"mlx5_core 0000:3b:00.0: {have} Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x8 link at "
        "0000:00:01.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"
    )
    (outcome,) = found(run(kernel_pcie.CHECK, line))
    assert outcome.severity is severity
    assert outcome.evidence[0].expected == "252 Gb/s"


def test_a_crash_in_nccl() -> None:
    line = "python3[812]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2[7f+9000]"
    (outcome,) = found(run(kernel_nccl_segfault.CHECK, line))
    assert outcome.severity is Severity.CRITICAL and outcome.cause_class == "rank_died:sigsegv"


def test_host_memory_errors() -> None:
    (bad,) = found(run(kernel_memory_error.CHECK, "EDAC MC0: 1 UE memory read error on CPU_SrcID#0"))
    (fine,) = found(run(kernel_memory_error.CHECK, "EDAC MC0: 1 CE memory read error on CPU_SrcID#0"))
    assert (bad.severity, fine.severity) == (Severity.CRITICAL, Severity.INFO)
