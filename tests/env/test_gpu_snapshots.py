"""Snapshots of GPUs, synthetic and recorded, against the findings that they must give."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from distdoctor.env.checks.all import ENV_CHECKS
from distdoctor.env.checks.base import run_check
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.host import ContainerFacts
from distdoctor.report.model import Finding
from gpu_builders import h100, host_gpus

FOLDER = Path(__file__).parent / "gpu_snapshots"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))

# Snapshot → (check, severity, GPU index, PCI address) of every finding. Index None: about the whole host.
EXPECTED: dict[str, list[tuple[str, str, int | None, str | None]]] = {
    "all-well": [],
    "gpu-lost": [("gpu-lost", "critical", 5, "00000000:C3:00.0")],
    "library-mismatch": [("gpu-driver-unreachable", "critical", None, None)],
    "driver-not-loaded": [("gpu-driver-unreachable", "critical", None, None)],
    "mig": [("gpu-mode", "warning", 0, "00000000:1B:00.0")],
    "throttled": [("gpu-throttled", "critical", 6, "00000000:D1:00.0")],
    "row-remap-pending": [("gpu-row-remap", "warning", 2, "00000000:52:00.0")],
    "ecc-contained": [("gpu-ecc", "warning", 3, "00000000:61:00.0")],
    "ecc-uncontained": [("gpu-ecc", "critical", 3, "00000000:61:00.0")],
    "pcie-x8": [("gpu-pcie-width", "critical", 4, "00000000:9D:00.0")],
    "nvlink-down": [("gpu-nvlink", "critical", 1, "00000000:43:00.0")],
    "power-limits-mixed": [("gpu-power-limit", "warning", 7, "00000000:DF:00.0")],
}


def read(name: str) -> tuple[dict[str, object], GpuFacts]:
    content = json.loads((FOLDER / f"{name}.json").read_text())
    return content, msgspec.convert(content["facts"], GpuFacts)


def findings_of(facts: GpuFacts) -> list[Finding]:
    env = EnvFacts(host_name="host-a", gpus=facts, container=ContainerFacts(kind="none"))
    return [
        finding for check in ENV_CHECKS if check.id.startswith("gpu-") for finding in run_check(check, env)[0]
    ]


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_gives_exactly_its_findings(name: str) -> None:
    content, facts = read(name)
    if content["provenance"] == "recorded":
        pytest.skip("recorded snapshots are compared by their fields")
    found = [
        (finding.id, finding.severity.value, gpu.index if gpu else None, gpu.pci if gpu else None)
        for finding in findings_of(facts)
        for gpu in finding.scope.gpus or (None,)
    ]
    assert found == EXPECTED[name]


@pytest.mark.parametrize("name", NAMES)
def test_titles_and_commands_are_fit_to_be_pasted(name: str) -> None:
    for finding in findings_of(read(name)[1]):
        assert len(finding.title) <= 80
        assert finding.evidence
        assert any(action.command for action in finding.actions)


def test_the_synthetic_snapshots_are_current() -> None:
    writer = module_at(Path(__file__).parent / "write_gpu_snapshots.py")
    assert set(writer.SNAPSHOTS) == set(EXPECTED)
    for name, facts in writer.SNAPSHOTS.items():
        assert (FOLDER / f"{name}.json").read_text() == writer.as_json(facts), (
            "run tests/env/write_gpu_snapshots.py"
        )


def test_recorded_and_synthetic_snapshots_have_the_same_fields() -> None:
    """A recorded one may lack fields that its driver does not know; it has none that the others do not know."""
    recorded = [name for name in NAMES if read(name)[0]["provenance"] == "recorded"]
    if not recorded:
        pytest.skip("no snapshot was recorded on a GPU yet: scripts/record_nvml_snapshot.py")
    for name in recorded:
        _, facts = read(name)
        for device in facts.devices or ():
            for field in GpuDevice.__dataclass_fields__:
                known = getattr(device, field) is not None
                assert known or field in device.unread or getattr(h100(), field, None) is None, (name, field)


def test_a_recorded_snapshot_names_no_machine() -> None:
    script = module_at(Path(__file__).parents[2] / "scripts" / "record_nvml_snapshot.py")
    device = h100(2, uuid="GPU-11111111-2222-3333-4444-555555555555", serial="1320423012345")
    content = script.snapshot(host_gpus(h100(0), device, cuda_visible_devices="GPU-11111111-2222"))
    text = json.dumps(content)
    assert "555555555555" not in text
    assert "1320423012345" not in text
    assert "GPU-11111111" not in text
    assert content["provenance"] == "recorded"
    assert "H100" in content["machine"]
