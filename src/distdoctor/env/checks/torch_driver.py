"""Is the NVIDIA driver new enough for the CUDA that torch was built with?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.catalog.drivers import Need, driver_floor, generation_driver, toolkit_driver
from distdoctor.env.catalog.gpu_models import capability_of_model
from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.torch_view import (
    Known,
    TorchBuild,
    gpu_ref,
    has_nvidia,
    nvidia_devices,
    nvidia_driver,
    torch_build,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.versions import below, parse_version
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team

TOO_OLD = re.compile(
    r"driver on your system is too old(?: \(found version (?P<number>\d{4,6})\))?|Error 35\b|insufficient for CUDA runtime"
)
"""What CUDA itself says; then nothing needs to be compared."""

# Since 11.0 a program runs on every driver of its CUDA major (NVIDIA, CUDA Compatibility).
FIRST_COMPATIBLE_MAJOR = 11


def check_torch_driver(facts: EnvFacts) -> Sequence[Outcome]:
    """By CUDA's own words, else the driver's version against the floor of the major, else its CUDA version."""
    error = facts.torch_probe.cuda_init_error if facts.torch_probe is not None else None
    build = torch_build(facts)
    said = TOO_OLD.search(error or "")
    if said is not None:
        return [_too_old_by_its_words(facts, build, error or "", said["number"])]
    if build is None:
        if facts.torch is not None and facts.torch.found is False:
            return [NotApplicable(detail="no torch in this Python")]
        return [missing(facts, "torch.cuda_build", what="CUDA that torch was built with")]
    if build.cuda is None:
        return [NotApplicable(detail="torch is not built for CUDA")]
    if facts.torch_probe is not None and facts.torch_probe.cuda_available:
        return [Passed(detail=f"torch for CUDA {build.cuda} sees its GPUs with this driver")]
    if has_nvidia(facts) is False:
        return [NotApplicable(detail="no NVIDIA GPU or driver here")]
    driver = nvidia_driver(facts)
    if driver is not None:
        return [_by_driver(facts, build, build.cuda, driver), *_newer_gpus(facts, driver)]
    if facts.gpus is not None and facts.gpus.cuda_driver_version is not None:
        return [_by_cuda_version(facts, build, build.cuda, facts.gpus.cuda_driver_version)]
    return [missing(facts, "gpus.driver_version", what="version of the NVIDIA driver")]


def _by_driver(facts: EnvFacts, build: TorchBuild, cuda: str, driver: Known) -> Outcome:
    floor, own = driver_floor(cuda), toolkit_driver(cuda)
    too_old = below(driver.text, floor.version) if floor else None
    if floor is None or too_old is None:
        return Passed(detail=f"driver {driver.text}; the tables say nothing about CUDA {cuda}")
    if too_old:
        compat = _forward_compatible(facts, floor)
        if compat is not None:
            return Passed(detail=compat)
        return _too_old(build, f"driver {driver.text} is loaded", driver, floor, cuda)
    if own is not None and below(driver.text, own.version):
        return Passed(
            detail=f"driver {driver.text} runs CUDA {cuda} by minor-version compatibility (from {floor.version}; CUDA {cuda} "
            f"itself came with {own.version})"
        )
    return Passed(detail=f"driver {driver.text} is new enough for CUDA {cuda}")


def _by_cuda_version(facts: EnvFacts, build: TorchBuild, cuda: str, of_driver: str) -> Outcome:
    """Only the driver's CUDA version is known: decide by the major, before 11 by the minor too."""
    have, want, floor = parse_version(of_driver), parse_version(cuda), driver_floor(cuda)
    if have is None or want is None or floor is None:
        return missing(facts, "gpus.driver_version", what="version of the NVIDIA driver")
    compared = (have[:1], want[:1]) if want[0] >= FIRST_COMPATIBLE_MAJOR else (have[:2], want[:2])
    if compared[0] < compared[1]:
        source = facts.gpus.sources.get("cuda_driver_version") if facts.gpus else None
        value = Known(text=of_driver, source=source)
        return _too_old(build, f"the driver supports CUDA {of_driver}", value, floor, cuda)
    return Passed(detail=f"the driver supports CUDA {of_driver}, torch is built for {cuda}")


def _forward_compatible(facts: EnvFacts, floor: Need) -> str | None:
    """A newer libcuda from the cuda-compat package lets an older driver run it, on data-centre GPUs."""
    gpus = facts.gpus
    if gpus is None or not gpus.libcuda_path or "compat" not in gpus.libcuda_path:
        return None
    if below(gpus.libcuda_version, floor.version) is not False:
        return None
    return f"the driver is older than {floor.version}, but {gpus.libcuda_path} ({gpus.libcuda_version}) stands in for it"


def _too_old(build: TorchBuild, what: str, value: Known, floor: Need, cuda: str) -> Found:
    return Found(
        title=f"The NVIDIA driver is too old for this torch (CUDA {cuda})"[:80],
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=what,
                value=value.text,
                expected=f"driver {floor.version} or newer for CUDA {cuda}",
                expected_source=floor.source,
                source=value.source,
            ),
            Evidence(
                text=f"torch {build.version or ''} is built for CUDA {cuda}".replace("  ", " "),
                value=cuda,
                source=build.source,
            ),
        ),
        explanation=(
            "The driver is older than the first one of this CUDA major, so no program of it runs: torch.cuda.is_available() is "
            "False. A driver within the same major would do, however old (minor-version compatibility)."
            if (parse_version(cuda) or (0,))[0] >= FIRST_COMPATIBLE_MAJOR
            else "Before CUDA 11 every toolkit needs at least the driver that came with it: torch.cuda.is_available() is False."
        ),
        actions=_actions(floor, cuda),
        cause_class="env:driver_too_old",
        fault=Fault.SOFTWARE,
    )


def _too_old_by_its_words(facts: EnvFacts, build: TorchBuild | None, error: str, number: str | None) -> Found:
    cuda = build.cuda if build is not None else None
    floor = driver_floor(cuda) if cuda else None
    driver = nvidia_driver(facts)
    evidence = [
        Evidence(
            text=f"CUDA says: {error[:300]}",
            source=facts.torch_probe.sources.get("cuda_init_error") if facts.torch_probe else None,
        )
    ]
    if number is not None:
        # cudaDriverGetVersion: 1000 × major + 10 × minor.
        of_driver = f"{int(number) // 1000}.{int(number) % 1000 // 10}"
        evidence.append(
            Evidence(
                text=f"version {number} is CUDA {of_driver}, the newest that the driver supports",
                value=of_driver,
                expected=f"CUDA {(parse_version(cuda) or (0,))[0]}.x" if cuda else None,
                expected_source="torch.version.cuda" if cuda else None,
            )
        )
    if driver is not None:
        evidence.append(
            Evidence(
                text=f"driver {driver.text}",
                value=driver.text,
                expected=f"{floor.version} or newer" if floor else None,
                expected_source=floor.source if floor else None,
                source=driver.source,
            )
        )
    return Found(
        title=f"The NVIDIA driver is too old for this torch (CUDA {cuda})"
        if cuda
        else "The NVIDIA driver is too old for this torch",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        evidence=tuple(evidence),
        explanation="CUDA refuses to start on this driver, so torch sees no GPU.",
        actions=_actions(floor, cuda),
        cause_class="env:driver_too_old",
        fault=Fault.SOFTWARE,
    )


def _actions(floor: Need | None, cuda: str | None) -> tuple[Action, ...]:
    major = (parse_version(cuda) or (0,))[0]
    older = f" of CUDA {major - 1}" if major > FIRST_COMPATIBLE_MAJOR else " of an older CUDA"
    return (
        Action(
            team=Team.PLATFORM,
            text=f"Install driver {floor.version} or newer on the host (a container uses the host's)"
            if floor
            else "Install a newer driver on the host",
            command="cat /proc/driver/nvidia/version",
        ),
        Action(
            team=Team.JOB_OWNER,
            text=f"Or install a torch build{older}, which this driver runs",
            command=f"python -m pip install torch --index-url WHEEL_INDEX/{'cu126' if major >= 13 else 'cu118'}",
        ),
    )


def _newer_gpus(facts: EnvFacts, driver: Known) -> list[Outcome]:
    """GPUs of a generation that came after the driver."""
    found: list[Outcome] = []
    for device in nvidia_devices(facts):
        capability = device.compute_capability or capability_of_model(device.name or "")
        generation = generation_driver(capability) if capability else None
        if generation is None or not below(driver.text, generation[1].version):
            continue
        name, need = generation
        found.append(
            Found(
                key="generation",
                title=f"The NVIDIA driver is older than the GPU's generation ({name})",
                severity=Severity.WARNING,
                confidence=Confidence.MEDIUM,
                evidence=(
                    Evidence(
                        text=f"driver {driver.text} with {device.name}",
                        value=driver.text,
                        expected=f"{need.version} or newer",
                        expected_source=need.source,
                        source=driver.source,
                    ),
                ),
                explanation="A driver knows the GPUs that were there when it was released; newer ones are not initialised.",
                actions=(
                    Action(team=Team.PLATFORM, text=f"Install a driver of branch R{need.version} or newer"),
                ),
                scope=Scope(gpus=(gpu_ref(device),)),
                cause_class="env:driver_too_old",
                fault=Fault.SOFTWARE,
            )
        )
        break  # one is enough to say it
    return found


CHECK = Check(
    id="torch-driver-too-old",
    title="NVIDIA driver against torch's CUDA",
    run=check_torch_driver,
    preflight=True,
)
