"""Do torch's build and the GPUs' vendor belong together, and is there a runtime for it?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.torch_import import COLLECT_ENV_STEP
from distdoctor.env.checks.torch_view import (
    TorchBuild,
    has_amd,
    has_nvidia,
    nvidia_devices,
    nvidia_driver,
    torch_build,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team


def check_rocm_runtime(facts: EnvFacts) -> Sequence[Outcome]:
    """A ROCm torch without an AMD GPU or runtime: critical where it was seen to fail, else a warning."""
    probe = facts.torch_probe
    if probe is not None and probe.last_step == COLLECT_ENV_STEP and _asked_for_hip(facts):
        return [_runtime_missing(facts, probe.error_text or "", probe.error_where)]
    build = torch_build(facts)
    if build is None:
        if facts.torch is not None and facts.torch.found is False:
            return [NotApplicable(detail="no torch in this Python")]
        return [missing(facts, "torch.hip_build", what="what torch was built for")]
    if build.hip is None:
        return [NotApplicable(detail="torch is not built for ROCm")]
    amd = has_amd(facts)
    if amd:
        return [Passed(detail=f"torch for ROCm {build.hip}, with an AMD GPU")]
    if probe is not None and probe.cuda_available:
        return [Passed(detail=f"torch for ROCm {build.hip} sees its GPUs")]
    if amd is False and not has_nvidia(facts):
        return [_no_amd_gpu(build)]
    if amd is False:
        return [NotApplicable(detail="told by gpu-vendors-mixed")]
    return [missing(facts, "gpus.devices", what="AMD GPUs")]


def _asked_for_hip(facts: EnvFacts) -> bool:
    """collect_env looks for the line “HIP Runtime” only in a ROCm build, and fails when torch does not print it."""
    files, probe = facts.torch, facts.torch_probe
    text = (probe.error_text or "") + (probe.error_type or "") if probe is not None else ""
    return (
        files is not None and files.found is True and files.is_cpu_build is False and "IndexError" in text
    ) or "HIP Runtime" in text


def _runtime_missing(facts: EnvFacts, text: str, where: str | None) -> Found:
    return Found(
        title="A ROCm build of torch finds no AMD runtime here",
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"collect_env failed while it looked for the HIP runtime: {text[:200]}",
                source=where or facts.origin,
            ),
        ),
        explanation="torch is built for ROCm, and prints no HIP runtime: ROCm's libraries or the GPU's device files are not visible to "
        "this process. collect_env itself fails on that (pytorch issue 99983), so the rest of its output is missing.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Give the container /dev/kfd and /dev/dri and the group video, or install ROCm; on an NVIDIA host install the CUDA build",
                command="ls -l /dev/kfd /dev/dri; rocminfo | head; python -c 'import torch; print(torch.version.hip)'",
            ),
        ),
        cause_class="env:rocm_init",
        fault=Fault.SOFTWARE,
    )


def _no_amd_gpu(build: TorchBuild) -> Found:
    return Found(
        title="torch is built for ROCm, and no AMD GPU is visible here",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(text=f"torch is built for ROCm {build.hip}", value=build.hip, source=build.source),
            Evidence(
                text="no AMD GPU on the PCI bus",
                expected="at least one",
                expected_source="a ROCm build of torch",
            ),
        ),
        explanation="Nothing can run on a GPU: the container was started without /dev/kfd and /dev/dri, this is a login node, or the "
        "wrong build was installed.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See whether the devices are here",
                command="ls -l /dev/kfd /dev/dri; lspci -d 1002:",
            ),
        ),
        cause_class="env:rocm_init",
        fault=Fault.CONFIG,
    )


def check_gpu_vendors(facts: EnvFacts) -> Sequence[Outcome]:
    """A ROCm torch beside an NVIDIA driver, or a CUDA torch where only AMD GPUs are."""
    build = torch_build(facts)
    nvidia, amd = has_nvidia(facts), has_amd(facts)
    if build is None:
        if facts.torch is not None and facts.torch.found is False:
            return [NotApplicable(detail="no torch in this Python")]
        return [missing(facts, "torch.cuda_build", what="what torch was built for")]
    if build.hip is not None and nvidia:
        return [_rocm_with_nvidia(facts, build, bool(amd))]
    if build.cuda is not None and amd and not nvidia_devices(facts) and nvidia is False:
        return [_cuda_with_amd(build)]
    if build.cuda is None and build.hip is None:
        return [NotApplicable(detail="torch is not built for GPUs")]
    if nvidia is None and not amd:
        return [missing(facts, "gpus.devices", what="vendors of the GPUs")]
    return [Passed(detail="torch's build and the GPUs are of one vendor")]


def _rocm_with_nvidia(facts: EnvFacts, build: TorchBuild, amd: bool) -> Found:
    driver, devices = nvidia_driver(facts), nvidia_devices(facts)
    if driver is not None:
        seen = Evidence(
            text=f"an NVIDIA driver {driver.text} is here too", value=driver.text, source=driver.source
        )
    else:
        seen = Evidence(text=f"an NVIDIA GPU is here too{f': {devices[0].name}' if devices else ''}")
    return Found(
        title="torch is built for AMD GPUs, and NVIDIA's driver is here too"
        if amd
        else "torch is built for AMD GPUs, on a host with NVIDIA's driver",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(text=f"torch is built for ROCm {build.hip}", value=build.hip, source=build.source),
            seen,
        ),
        explanation=(
            "Both vendors' software is on this host. Packages that look for NVIDIA first (through NVML or nvcc) then take the wrong "
            "path, and CUDA_VISIBLE_DEVICES speaks of other GPUs than HIP_VISIBLE_DEVICES."
            if amd
            else "This torch cannot use NVIDIA GPUs."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Keep one vendor's software in the job's environment, or install the build for the GPUs that the job uses",
                command="nvidia-smi -L; rocminfo | grep -i 'marketing name'; python -c 'import torch; print(torch.version.cuda, torch.version.hip)'",
            ),
        ),
        cause_class="env:gpu_vendors",
        fault=Fault.CONFIG,
    )


def _cuda_with_amd(build: TorchBuild) -> Found:
    return Found(
        key="amd",
        title="torch is built for NVIDIA GPUs, and the GPUs here are AMD's",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"torch is built for CUDA {build.cuda}",
                value=build.cuda,
                expected="a ROCm build",
                expected_source="AMD GPUs on the PCI bus",
                source=build.source,
            ),
        ),
        explanation="Nothing of this torch runs on these GPUs.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Install the ROCm build from PyTorch's own wheel index",
                command="python -m pip install --force-reinstall torch --index-url WHEEL_INDEX/rocm7.0",
            ),
        ),
        cause_class="env:gpu_vendors",
        fault=Fault.SOFTWARE,
    )


RUNTIME_CHECK = Check(
    id="rocm-runtime-missing", title="ROCm torch against the AMD runtime", run=check_rocm_runtime
)
VENDORS_CHECK = Check(
    id="gpu-vendors-mixed",
    title="torch's build against the GPUs' vendor",
    run=check_gpu_vendors,
    preflight=True,
)
