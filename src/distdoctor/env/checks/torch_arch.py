"""Does this torch hold code for the GPUs that are here?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distdoctor.env.catalog.drivers import driver_floor, generation_toolkit
from distdoctor.env.catalog.gpu_models import capability_of_model
from distdoctor.env.catalog.torch_wheels import wheel_archs
from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.torch_arch_amd import check_amd
from distdoctor.env.checks.torch_view import (
    TorchBuild,
    gpu_ref,
    has_nvidia,
    nvidia_devices,
    torch_build,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.env.versions import below
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team

Capability = tuple[int, int]

_ARCH = re.compile(r"(?P<kind>sm|compute)_(?P<number>\d{2,3})(?P<suffix>[af]?)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchList:
    """Architectures and how well they are known."""

    archs: tuple[str, ...]
    source: str
    confidence: Confidence
    is_minimum: bool = False
    """The text named only the oldest one ("the minimum cuda capability supported by this library is 5.0")."""

    def holds(self, capability: Capability) -> bool:
        """True when code in this list runs on a GPU of this compute capability, as far as the list tells."""
        oldest = _ARCH.match(self.archs[0]) if self.is_minimum else None
        if oldest is not None:
            return capability >= (int(oldest["number"][:-1]), int(oldest["number"][-1]))
        return runs_on(self.archs, capability)


def check_torch_arch(facts: EnvFacts) -> Sequence[Outcome]:
    """By the list that torch itself gives or printed, else by that of PyTorch's published wheel."""
    build = torch_build(facts)
    if build is None:
        if facts.torch is not None and facts.torch.found is False:
            return [NotApplicable(detail="no torch in this Python")]
        return [missing(facts, "torch.cuda_build", what="what torch was built for")]
    if build.hip is not None:
        return check_amd(facts, build)
    if build.cuda is None:
        return [NotApplicable(detail="torch is not built for GPUs")]
    if has_nvidia(facts) is False:
        return [NotApplicable(detail="no NVIDIA GPU here")]
    gpus = _capabilities(facts)
    if not gpus:
        return [missing(facts, "gpus.devices", what="compute capability of the GPUs")]
    archs = arch_list(facts, build)
    if archs is None:
        return _by_toolkit(facts, build, build.cuda, gpus)
    lacking = [(device, capability) for device, capability in gpus if not archs.holds(capability)]
    if not lacking:
        names = ", ".join(sorted({f"{major}.{minor}" for _, (major, minor) in gpus}))
        return [Passed(detail=f"torch holds code for compute capability {names} ({archs.source})")]
    return [_no_code(facts, archs, lacking, build.cuda)]


def arch_list(facts: EnvFacts, build: TorchBuild) -> ArchList | None:
    """The best known list of architectures of this torch; None when none is known."""
    for section, fallback in ((facts.torch_probe, "torch itself"), (facts.torch, "a warning of torch")):
        if section is not None and section.arch_list:
            return ArchList(
                archs=section.arch_list,
                source=section.sources.get("arch_list") or fallback,
                confidence=Confidence.HIGH,
                is_minimum=not facts.is_live and len(section.arch_list) == 1,
            )
    machine = (facts.host.architecture if facts.host is not None else None) or "x86_64"
    wheel = wheel_archs(build.version or "", build.cuda or "", machine)
    if wheel is None:
        return None
    return ArchList(
        archs=wheel.archs,
        source=f"PyTorch's published wheel of this version: {wheel.source}",
        confidence=Confidence.MEDIUM if wheel.confident else Confidence.LOW,
    )


def runs_on(archs: Iterable[str], capability: Capability) -> bool:
    """True when code in `archs` runs on a GPU of this compute capability.

    sm_XY runs on X.Z for Z >= Y; with the suffix `a` on X.Y alone; compute_XY (PTX) is compiled by the driver for
    every newer GPU. Source: CUDA C++ Programming Guide, binary and PTX compatibility.
    """
    for arch in archs:
        match = _ARCH.match(arch)
        if match is None:
            continue
        own = (int(match["number"][:-1]), int(match["number"][-1]))
        if match["suffix"] == "a":
            fits = own == capability
        elif match["kind"] == "compute":
            fits = own <= capability
        else:
            fits = own[0] == capability[0] and own <= capability
        if fits:
            return True
    return False


def _capabilities(facts: EnvFacts) -> list[tuple[GpuDevice, Capability]]:
    found: list[tuple[GpuDevice, Capability]] = []
    for device in nvidia_devices(facts):
        capability = device.compute_capability or capability_of_model(device.name or "")
        if capability is not None:
            found.append((device, capability))
    return found


def _by_toolkit(
    facts: EnvFacts, build: TorchBuild, cuda: str, gpus: list[tuple[GpuDevice, Capability]]
) -> Sequence[Outcome]:
    """No list is known, but a toolkit that came before the GPU cannot have made code for it."""
    for device, capability in gpus:
        need = generation_toolkit(capability)
        if need is not None and below(cuda, need.version):
            evidence = Evidence(
                text=f"torch {build.version or ''} is built with CUDA {cuda}; {device.name} has compute capability {_dotted(capability)}",
                value=cuda,
                expected=f"CUDA {need.version} or newer",
                expected_source=need.source,
                source=build.source,
            )
            return [
                _found([(device, capability)], (evidence,), Confidence.MEDIUM, _wheel_tag(facts, capability))
            ]
    return [missing(facts, "torch_probe.arch_list", what="architectures that torch was compiled for")]


def _wheel_tag(facts: EnvFacts, capability: Capability) -> str:
    """The wheel index to name: CUDA 13 only where the driver can run it."""
    if capability < (7, 5):
        return "cu126"
    driver, floor = facts.gpus.driver_version if facts.gpus is not None else None, driver_floor("13.0")
    return "cu128" if floor is None or below(driver, floor.version) is not False else "cu130"


def _no_code(
    facts: EnvFacts, archs: ArchList, lacking: list[tuple[GpuDevice, Capability]], cuda: str
) -> Found:
    wanted = sorted({_dotted(capability) for _, capability in lacking})
    evidence = Evidence(
        text=f"torch holds {' '.join(archs.archs)}; the GPUs need {', '.join(wanted)}",
        expected=" or ".join(f"sm_{each.replace('.', '')}" for each in wanted),
        expected_source="compute capability of the GPUs; CUDA C++ Programming Guide, binary compatibility",
        source=archs.source,
    )
    need = generation_toolkit(lacking[0][1])
    # Whatever the list is worth: a toolkit that came before the GPU cannot have made code for it.
    older = need is not None and below(cuda, need.version) is True
    confidence = Confidence.MEDIUM if older and archs.confidence is Confidence.LOW else archs.confidence
    return _found(lacking, (evidence,), confidence, _wheel_tag(facts, lacking[0][1]))


def _found(
    lacking: list[tuple[GpuDevice, Capability]],
    evidence: tuple[Evidence, ...],
    confidence: Confidence,
    wheel_tag: str,
) -> Found:
    device, capability = lacking[0]
    need = generation_toolkit(capability)
    is_old = capability < (7, 5)
    remedy = (
        "Install a build for an older CUDA (…/cu126 holds Maxwell, Pascal and Volta up to torch 2.14)"
        if is_old
        else f"Install a torch built with CUDA {need.version if need else '12.8'} or newer (…/cu128, …/cu130)"
    )
    return Found(
        title=f"This torch has no code for {(device.name or 'the GPU').removeprefix('NVIDIA ')[:34]} (sm_{_dotted(capability).replace('.', '')})",
        severity=Severity.CRITICAL,
        confidence=confidence,
        evidence=evidence,
        explanation="The first kernel fails with “no kernel image is available for execution on the device”. The CUDA version of "
        "the wheel decides, not torch's own version alone.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text=f"{remedy}, from PyTorch's own wheel index",
                command=f"python -m pip install --force-reinstall torch --index-url WHEEL_INDEX/{wheel_tag}",
            ),
        ),
        scope=Scope(gpus=tuple(gpu_ref(each) for each, _ in lacking)),
        cause_class="env:gpu_arch",
        fault=Fault.SOFTWARE,
    )


def _dotted(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"


CHECK = Check(id="torch-gpu-arch", title="torch's compiled code against the GPUs", run=check_torch_arch)
