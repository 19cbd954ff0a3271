"""Does a libcuda from a cuda-compat folder stand in front of the driver's own?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.torch_view import Known, has_nvidia, nvidia_devices, nvidia_driver
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.versions import parse_version
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# 803: user and kernel parts of the driver do not fit; 804: forward compatibility on a GPU without it (driver_types.h).
FAILS = re.compile(r"Error 80[34]\b")

_COMPAT_FOLDER = re.compile(r"/compat(?:/|$)|/cuda-compat|/compat_orig/|/forward_compat/")

# Forward compatibility is for data-centre GPUs (NVIDIA, CUDA Compatibility); these names mark the others.
_NOT_DATA_CENTRE = re.compile(r"GeForce|TITAN|Quadro|\bRTX\b|\bGTX\b", re.IGNORECASE)


def check_cuda_compat(facts: EnvFacts) -> Sequence[Outcome]:
    """Critical when CUDA failed with 803 or 804; else a warning, or an info where it is what the package is for."""
    if has_nvidia(facts) is False:
        return [NotApplicable(detail="no NVIDIA GPU or driver here")]
    library = _libcuda(facts)
    if library is None:
        return [missing(facts, "gpus.libcuda_path", what="which libcuda.so.1 is loaded")]
    if not is_compat_path(library.text):
        return [Passed(detail=f"libcuda comes from {library.text}")]
    driver = nvidia_driver(facts)
    version = facts.gpus.libcuda_version if facts.gpus is not None else None
    failed = FAILS.search(_init_error(facts))
    if driver is None or version is None:
        if failed is None:
            field = "gpus.libcuda_version" if version is None else "gpus.driver_version"
            return [missing(facts, field, what=f"version of {library.text} or of the driver")]
    elif version == driver.text:
        return [Passed(detail=f"{library.text} has the driver's own version {version}")]
    return [_found(facts, library, version, driver, failed is not None)]


def is_compat_path(path: str) -> bool:
    """True for a folder of the cuda-compat packages."""
    return _COMPAT_FOLDER.search(path) is not None


def _libcuda(facts: EnvFacts) -> Known | None:
    """The mapped libcuda before the one that the loader would take."""
    if facts.torch_probe is not None:
        for path in facts.torch_probe.mapped_libraries:
            if path.rpartition("/")[2].startswith("libcuda.so"):
                return Known(text=path, source=facts.torch_probe.sources.get("mapped_libraries"))
    gpus = facts.gpus
    if gpus is None or not gpus.libcuda_path:
        return None
    return Known(text=gpus.libcuda_path, source=gpus.sources.get("libcuda_path"))


def _init_error(facts: EnvFacts) -> str:
    return (facts.torch_probe.cuda_init_error if facts.torch_probe is not None else None) or ""


def _found(facts: EnvFacts, library: Known, version: str | None, driver: Known | None, failed: bool) -> Found:
    severity, confidence, why = _judge(facts, version, driver, failed)
    evidence = [
        Evidence(
            text=f"libcuda {version or 'of unknown version'} is taken from {library.text}",
            value=version,
            expected=f"{driver.text}, the driver's own" if driver else None,
            expected_source=driver.source if driver else None,
            source=library.source,
        )
    ]
    if _init_error(facts):
        evidence.append(Evidence(text=f"CUDA says: {_init_error(facts)[:300]}"))
    return Found(
        title="The CUDA compatibility library is used instead of the driver's own libcuda",
        severity=severity,
        confidence=confidence,
        evidence=tuple(evidence),
        explanation=f"{why} NCCL also takes the driver for newer than it is (NCCL user guide, cuMem host allocations).",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Take the compat folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d; or update the host's driver",
                command="ldconfig -p | grep libcuda.so; echo $LD_LIBRARY_PATH; cat /proc/driver/nvidia/version",
            ),
        ),
        cause_class="env:cuda_compat",
        fault=Fault.CONFIG,
    )


def _judge(
    facts: EnvFacts, version: str | None, driver: Known | None, failed: bool
) -> tuple[Severity, Confidence, str]:
    if failed:
        return (
            Severity.CRITICAL,
            Confidence.HIGH,
            "CUDA cannot start: this library and the loaded kernel module do not work together.",
        )
    have, want = parse_version(version), parse_version(driver.text if driver else None)
    if have is not None and want is not None and have < want:
        return (
            Severity.WARNING,
            Confidence.HIGH,
            "It is older than the driver, which no combination allows: expect error 803 (unsupported driver combination).",
        )
    names = [device.name or "" for device in nvidia_devices(facts)]
    if any(_NOT_DATA_CENTRE.search(name) for name in names):
        return (
            Severity.WARNING,
            Confidence.HIGH,
            "Forward compatibility works on data-centre GPUs only: expect error 804 on this one.",
        )
    if names:
        return (
            Severity.INFO,
            Confidence.HIGH,
            "Forward compatibility: a newer libcuda on an older driver, which NVIDIA supports on data-centre GPUs.",
        )
    return (
        Severity.WARNING,
        Confidence.MEDIUM,
        "It works on data-centre GPUs only, and only when it is newer than the driver.",
    )


CHECK = Check(
    id="cuda-compat-library", title="libcuda against the driver", run=check_cuda_compat, preflight=True
)
