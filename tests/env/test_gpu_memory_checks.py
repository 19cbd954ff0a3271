"""ECC errors, row remapping, retired pages, InfoROM."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.env.checks.gpu_ecc import check_ecc
from distdoctor.env.checks.gpu_inforom import check_inforom
from distdoctor.env.checks.gpu_retired_pages import check_retired_pages
from distdoctor.env.checks.gpu_row_remap import check_row_remap
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Confidence, Severity, SkipCause
from gpu_builders import env, h100, hgx, host_gpus, pasted

V100 = {
    "name": "Tesla V100-SXM2-32GB",
    "compute_capability": (7, 0),
    "remap_pending": None,
    "remap_failed": None,
}


def test_a_contained_error_is_a_warning_and_the_gpu_is_fit() -> None:
    gpu = h100(2, ecc_uncorrected_volatile=1, remapped_uncorrectable=1)
    (found,) = check_ecc(env(hgx(gpu)))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert "contained" in found.title
    assert "GPU 2 (00000000:52:00.0)" in found.title


@pytest.mark.parametrize(
    "changes",
    [
        {"remapped_uncorrectable": 1, "remap_pending": True},
        {"remapped_uncorrectable": 1, "remap_failed": True},
        {"remapped_uncorrectable": 0},
    ],
)
def test_an_error_without_a_finished_repair_is_critical(changes: dict[str, object]) -> None:
    (found,) = check_ecc(env(hgx(h100(2, ecc_uncorrected_volatile=1, **changes))))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert found.confidence is Confidence.HIGH


def test_a_table_that_shows_no_remapping_is_less_sure() -> None:
    gpu = GpuDevice(index=2, name="NVIDIA H100 80GB HBM3", ecc_uncorrected_volatile=1)
    (found,) = check_ecc(pasted(gpu))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert found.confidence is Confidence.MEDIUM


@pytest.mark.parametrize("field", ["sram_threshold_exceeded", "unrepairable_memory"])
def test_memory_beyond_repair_is_told_before_the_counter(field: str) -> None:
    (found,) = check_ecc(env(hgx(h100(0, ecc_uncorrected_volatile=3, **{field: True}))))
    assert isinstance(found, Found)
    assert "replaced" in found.title


def test_errors_of_the_past_are_no_finding() -> None:
    (outcome,) = check_ecc(env(hgx(h100(0, ecc_uncorrected_aggregate=4, remapped_uncorrectable=2))))
    assert isinstance(outcome, Passed)
    assert "4 in their life" in outcome.detail


def test_ecc_off_on_a_server_board_is_one_warning_for_all() -> None:
    devices = [
        h100(index, ecc_mode=False, ecc_mode_pending=False, ecc_uncorrected_volatile=None)
        for index in range(4)
    ]
    found = [each for each in check_ecc(env(host_gpus(*devices))) if isinstance(each, Found)]
    assert len(found) == 1
    assert len(found[0].scope.gpus) == 4


def test_ecc_off_on_a_workstation_board_is_nothing() -> None:
    device = h100(
        0, name="NVIDIA RTX A6000", ecc_mode=False, ecc_mode_pending=False, ecc_uncorrected_volatile=None
    )
    (outcome,) = check_ecc(env(host_gpus(device)))
    assert isinstance(outcome, NotApplicable)


def test_a_board_without_ecc_is_not_applicable() -> None:
    why = Unread(cause=SkipCause.UNSUPPORTED, reason="N/A")
    device = GpuDevice(index=0, name="NVIDIA GeForce RTX 4090", unread={"ecc_uncorrected_volatile": why})
    (outcome,) = check_ecc(pasted(device))
    assert isinstance(outcome, NotApplicable)


def test_a_mode_that_waits_for_a_reset_is_a_warning() -> None:
    found = [each for each in check_ecc(env(hgx(h100(1, ecc_mode_pending=False)))) if isinstance(each, Found)]
    assert [each.key for each in found] == ["mode-pending"]


def test_counters_that_need_root_are_not_seen() -> None:
    why = Unread(cause=SkipCause.NEEDS_ROOT, reason="NVML: Insufficient Permissions (4)")
    device = h100(0, ecc_uncorrected_volatile=None, unread={"ecc_uncorrected_volatile": why})
    outcomes = check_ecc(env(host_gpus(device)))
    assert [each.unread for each in outcomes if isinstance(each, NotSeen)] == [why]
    assert not any(isinstance(each, Passed) for each in outcomes)


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({"remap_failed": True, "remap_pending": True}, Severity.CRITICAL, "no longer be repaired"),
        ({"remap_pending": True, "remapped_uncorrectable": 1}, Severity.WARNING, "waits for a reset"),
        ({"remap_banks_without_spare": 2}, Severity.WARNING, "2 memory banks have no spare row"),
    ],
)
def test_row_remapping(changes: dict[str, object], severity: Severity, words: str) -> None:
    (found,) = check_row_remap(env(hgx(h100(6, **changes))))
    assert isinstance(found, Found)
    assert found.severity is severity
    assert words in found.title
    assert "GPU 6 (00000000:D1:00.0)" in found.title


def test_finished_remappings_pass() -> None:
    (outcome,) = check_row_remap(env(hgx(h100(6, remapped_correctable=3, remapped_uncorrectable=1))))
    assert isinstance(outcome, Passed)
    assert "4 rows remapped" in outcome.detail


def test_under_mig_remapping_is_not_seen() -> None:
    why = Unread(cause=SkipCause.UNSUPPORTED, reason="NVML: Not Supported (3)")
    device = h100(0, remap_pending=None, remap_failed=None, unread={"remap_pending": why})
    (outcome,) = check_row_remap(env(host_gpus(device)))
    assert outcome == NotSeen(unread=why, what="row remapping of GPU 0")


def test_v100_retires_pages_instead() -> None:
    (outcome,) = check_row_remap(env(host_gpus(h100(0, **V100))))
    assert isinstance(outcome, NotApplicable)
    (passed,) = check_retired_pages(
        env(host_gpus(h100(0, **V100, retired_pages=3, retired_pages_pending=False)))
    )
    assert isinstance(passed, Passed)


@pytest.mark.parametrize(
    ("pages", "pending", "word"), [(2, True, "waits for a reset"), (61, False, "has retired 61")]
)
def test_retired_pages(pages: int, pending: bool, word: str) -> None:
    device = h100(0, **V100, retired_pages=pages, retired_pages_pending=pending)
    (found,) = check_retired_pages(env(host_gpus(device)))
    assert isinstance(found, Found)
    assert word in found.title
    assert found.severity is Severity.WARNING


def test_unread_pages_are_not_seen() -> None:
    (outcome,) = check_retired_pages(pasted(GpuDevice(index=0, name="Tesla V100-SXM2-32GB")))
    assert isinstance(outcome, NotSeen)


def test_a_corrupted_inforom_names_its_gpu() -> None:
    (found,) = check_inforom(env(hgx(h100(4, inforom_valid=False))))
    assert isinstance(found, Found)
    assert "GPU 4" in found.title
