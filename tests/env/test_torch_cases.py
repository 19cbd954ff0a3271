"""Real pasted dumps with known answers, where they are at hand: the torch checks fire there and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdoctor.env.checks import (
    cuda_compat,
    cuda_init,
    gpu_vendors,
    pynvml_shadow,
    torch_arch,
    torch_build,
    torch_driver,
    torch_import,
    torch_pins,
)
from distdoctor.env.checks.base import run_checks
from distdoctor.report.model import Severity

CASES = Path(__file__).parents[3] / "shared" / "cases" / "collect_env"

CHECKS = (
    torch_import.CHECK,
    torch_build.CHECK,
    torch_driver.CHECK,
    torch_arch.CHECK,
    torch_pins.CHECK,
    cuda_compat.CHECK,
    cuda_init.CHECK,
    gpu_vendors.RUNTIME_CHECK,
    gpu_vendors.VENDORS_CHECK,
    pynvml_shadow.CHECK,
)

# Family of the case → what must be found; a case of another family may find nothing critical of ours.
EXPECTED = {
    "rtx5090d_torch26_cu126": {"torch-gpu-arch"},
    "rtx5090x2_nightly_cu124": {"torch-gpu-arch"},
    "p100x4_driver410_cu102": {"torch-driver-too-old"},
    "k2_driver9010_cu102": {"torch-driver-too-old"},
    "cu130_driver_cuda124": {"torch-driver-too-old"},
    "aarch64_gb200_pypi_cpu": {"torch-cpu-build"},
    "rocm62_mixed_nvidia_driver": {"gpu-vendors-mixed", "torch-gpu-arch", "python-pynvml-shadow"},
    "rocm_collect_env_crash": {"rocm-runtime-missing"},
    "wsl2_rtx4000ada_x8_oom": {"cuda-init-error"},
    "nccl_cu12_and_cu13": {"torch-import-fails"},
    "fabric_802_h100": {"cuda-init-error"},
    "forward_compat_804": {"cuda-init-error"},
    "driver_mismatch_803": {"cuda-init-error"},
}


def items() -> list[dict[str, str]]:
    index = CASES / "index.json"
    if not index.exists():
        return []
    found: list[dict[str, str]] = json.loads(index.read_text())["items"]
    return found


@pytest.mark.skipif(not items(), reason="no folder of real dumps beside the repository")
@pytest.mark.parametrize("item", items(), ids=lambda item: item["id"])
def test_real_dumps(item: dict[str, str]) -> None:
    collect_env = pytest.importorskip("distdoctor.env.readers.collect_env")
    facts = collect_env.read((CASES / item["file"]).read_text(), item["file"])
    findings, _, _ = run_checks(CHECKS, facts)
    fired = {finding.id for finding in findings if finding.severity is not Severity.INFO}
    assert fired == EXPECTED.get(item["id"], set())
