"""Is torch built without CUDA on a host that has NVIDIA GPUs?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.torch_view import (
    TorchBuild,
    has_amd,
    has_nvidia,
    nvidia_devices,
    nvidia_driver,
    pip_command,
)
from distdoctor.env.checks.torch_view import torch_build as build_of
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team


def check_torch_build(facts: EnvFacts) -> Sequence[Outcome]:
    """Decided by torch.version.cuda being None, never by the suffix: wheels for aarch64 had none."""
    if facts.torch is not None and facts.torch.found is False:
        return [NotApplicable(detail="no torch in this Python")]
    build = build_of(facts)
    if build is None:
        return [missing(facts, "torch.is_cpu_build")]
    if build.cuda:
        return [Passed(detail=f"torch is built for CUDA {build.cuda}")]
    if build.hip or build.xpu or not build.is_cpu:
        return [NotApplicable(detail="torch is built for another accelerator than CUDA")]
    nvidia = has_nvidia(facts)
    if nvidia:
        return [_without_cuda(facts, build)]
    if has_amd(facts):
        return [_without_rocm(facts, build)]
    if nvidia is False:
        return [NotApplicable(detail="torch is built without CUDA, and no NVIDIA GPU is here")]
    return [_gpu_not_seen(facts)]


def _without_cuda(facts: EnvFacts, build: TorchBuild) -> Found:
    devices, driver = nvidia_devices(facts), nvidia_driver(facts)
    seen = f"{len(devices)} × {devices[0].name}" if devices else "an NVIDIA GPU"
    with_driver = f", driver {driver.text}" if driver else ""
    hidden = facts.gpus is not None and facts.gpus.cuda_visible_devices in ("", "-1")
    return Found(
        title="torch is built without CUDA, on a host with NVIDIA GPUs",
        severity=Severity.WARNING if hidden else Severity.CRITICAL,
        confidence=Confidence.LOW if hidden else Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"torch.version.cuda is None (torch {build.version or 'of unknown version'})",
                expected="a CUDA version",
                source=build.source,
            ),
            Evidence(text=f"this host has {seen}{with_driver}", source=driver.source if driver else None),
        ),
        explanation=(
            "Nothing of this torch runs on a GPU: training falls back to the CPU or stops with “Torch not compiled with CUDA "
            "enabled”. It happens when pip resolves torch again for another package, and on aarch64, where the default wheel "
            "was CPU-only until torch 2.11."
            + (" CUDA_VISIBLE_DEVICES hides all GPUs, so it may be on purpose." if hidden else "")
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Install the CUDA build from PyTorch's own wheel index (its “Get Started” page names the URL per CUDA version), "
                "and pin it, so that no other package replaces it",
                command=pip_command(facts, "install --force-reinstall torch --index-url WHEEL_INDEX/cu130"),
            ),
        ),
        cause_class="env:cpu_build",
        fault=Fault.SOFTWARE,
    )


def _without_rocm(facts: EnvFacts, build: TorchBuild) -> Found:
    return Found(
        key="amd",
        title="torch is built without ROCm, on a host with AMD GPUs",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text="torch.version.hip and torch.version.cuda are None",
                expected="a ROCm version",
                source=build.source,
            ),
        ),
        explanation="Nothing of this torch runs on the GPUs.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Install the ROCm build from PyTorch's own wheel index (its “Get Started” page names the URL)",
                command=pip_command(facts, "install --force-reinstall torch --index-url WHEEL_INDEX/rocm7.0"),
            ),
        ),
        cause_class="env:cpu_build",
        fault=Fault.SOFTWARE,
    )


def _gpu_not_seen(facts: EnvFacts) -> NotSeen:
    unread = facts.gpus.unread.get("devices") if facts.gpus is not None else None
    reason = unread.reason if unread else "whether this host has a GPU was not seen"
    return NotSeen(
        unread=Unread(
            cause=unread.cause if unread else SkipCause.NOT_IN_EVIDENCE,
            reason=f"torch is built without CUDA; {reason}",
            how=(unread.how if unread else None) or "nvidia-smi -L",
        )
    )


CHECK = Check(
    id="torch-cpu-build", title="torch's build against the GPUs", run=check_torch_build, preflight=True
)
