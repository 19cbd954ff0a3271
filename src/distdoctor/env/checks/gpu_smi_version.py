"""Are nvidia-smi, its library and the driver of one version?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.gpus import NO_GPU, no_nvidia_hardware
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import NvmlState
from distdoctor.env.versions import parse_version
from distdoctor.report.model import Action, Evidence, Fault, Severity, Team


def check_smi_version(facts: EnvFacts) -> Sequence[Outcome]:
    """Another major version than the driver's is a warning: a second driver package lies on this machine."""
    gpus = facts.gpus
    if gpus is None:
        return [missing(facts, "gpus.smi_version")]
    if no_nvidia_hardware(gpus) and not gpus.devices:
        return [NO_GPU]
    if gpus.nvml_state is NvmlState.VERSION_MISMATCH:
        return [NotApplicable(detail="told by gpu-driver-unreachable")]
    driver = gpus.driver_version or gpus.kernel_module_version
    tools = {
        "nvidia-smi": (gpus.smi_version, gpus.sources.get("smi_version")),
        "libnvidia-ml": (gpus.nvml_library_version, gpus.sources.get("nvml_library_version")),
    }
    known = {name: (version, source) for name, (version, source) in tools.items() if version}
    if driver is None or not known:
        return [_unseen(facts, driver)]
    for name, (version, source) in known.items():
        if version is not None and _major(version) != _major(driver):
            return [_differs(facts, name, version, driver, source)]
    return [Passed(detail=f"{' and '.join(known)} and the driver are version {driver.partition('.')[0]}")]


def _unseen(facts: EnvFacts, driver: str | None) -> NotSeen:
    return missing(facts, "gpus.driver_version" if driver is None else "gpus.smi_version")


def _major(version: str) -> int | None:
    parsed = parse_version(version)
    return parsed[0] if parsed else None


def _differs(facts: EnvFacts, name: str, version: str, driver: str, source: str | None) -> Found:
    wsl = facts.host is not None and facts.host.virtualisation == "wsl"
    return Found(
        key=name,
        title=f"{name} is version {version}, the driver {driver}",
        severity=Severity.WARNING,
        evidence=(
            Evidence(
                text=f"{name} {version}, driver {driver}",
                value=version,
                expected=driver,
                expected_source="they come in one package",
                source=source,
            ),
        ),
        explanation=(
            "Two driver packages are mixed. Under WSL the driver is Windows' and brings its own tools and libraries; a "
            "Linux driver installed inside hides them and breaks CUDA."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Remove the driver packages that do not belong to the loaded driver"
                + (" (under WSL: all Linux driver packages)" if wsl else ""),
                command="which -a nvidia-smi; ldconfig -p | grep -E 'libcuda|libnvidia-ml'; dpkg -l | grep -i nvidia",
            ),
        ),
        fault=Fault.SOFTWARE,
    )


CHECK = Check(id="gpu-smi-version", title="version of nvidia-smi", run=check_smi_version, preflight=True)
