"""Evidence as people pasted it, where the folder of cases lies beside the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdoctor.env.checks.all import ENV_CHECKS
from distdoctor.env.checks.base import run_checks
from distdoctor.env.from_text import facts_from_text
from distdoctor.report.model import Severity

CASES = Path(__file__).parents[3] / "shared" / "cases" / "nvidia_smi"

# The check that must speak; in the cases that are not here no GPU check may say more than info.
SPEAKS = {
    "device_handle_unknown": "gpu-lost",
    "gpu_is_lost": "gpu-lost",
    "fallen_off_multiline_journal": "gpu-lost",
    "topo_nv3_partial_bridge": "gpu-nvlink",
    "nvlink_v100_two_inactive": "gpu-nvlink",
    "power_cap_one_of_four_v100": "gpu-power-limit",
    "smi_wsl_version_mismatch": "gpu-smi-version",
    "smi_hang_100util_low_power": "gpu-hang-signature",
    "ecc_uncorrectable_recovered": "gpu-ecc",
}


def cases() -> list[dict[str, str]]:
    index = CASES / "index.json"
    return json.loads(index.read_text())["items"] if index.is_file() else []


def test_the_folder_of_cases_is_there() -> None:
    if not CASES.is_dir():
        pytest.skip("no ../shared/cases beside the project: pasted evidence is not tested")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_the_right_check_speaks_and_traps_stay_quiet(case: dict[str, str]) -> None:
    text = (CASES / case["file"]).read_text()
    findings = [
        finding
        for facts in facts_from_text(text, case["file"])
        for finding in run_checks(ENV_CHECKS, facts)[0]
        if finding.id.startswith("gpu-") and finding.severity is not Severity.INFO
    ]
    ids = [finding.id for finding in findings]
    if case["id"] in SPEAKS:
        assert SPEAKS[case["id"]] in ids
    else:
        assert ids == []
