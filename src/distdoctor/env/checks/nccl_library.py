"""Is the NCCL that a job loads the one that torch was made for, and how many copies lie about?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.nccl import NcclFacts, NcclLibrary
from distdoctor.env.facts.torch import ProbeState
from distdoctor.env.versions import parse_version
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

_WHEEL = re.compile(r"nvidia-nccl-cu(\d+)\Z")
_NCCL_SYMBOL = re.compile(r"undefined symbol: p?nccl\w+")

# Places that every process on the host shares, whatever its environment.
_SYSTEM = ("ldconfig", "/usr", "/lib")

# csrc/cuda/nccl.cpp returns the NCCL_MAJOR, _MINOR and _PATCH of compile time, whatever is loaded.
_COMPILED_SOURCE = "nccl.version()"

_PIN_SOURCE = "torch's metadata, or the version that torch was compiled with"


def check_pinned(facts: EnvFacts) -> Sequence[Outcome]:
    """Older than torch's pin is critical, another version a warning; so is a system copy that differs."""
    if _has_no_nccl(facts):
        return [NotApplicable(detail="this torch is built without CUDA, so it uses no NCCL")]
    nccl = facts.nccl or NcclFacts()
    expected = _expected(facts)
    used, is_loaded = nccl.loaded_version or nccl.predicted_version, nccl.loaded_version is not None
    if _COMPILED_SOURCE in nccl.sources.get("loaded_version", ""):
        # A text's torch.cuda.nccl.version() is what torch was compiled with; the wheel is what it would load.
        used, is_loaded, expected = nccl.expected_version or nccl.loaded_version, False, nccl.loaded_version
    if expected is None:
        return [missing(facts, "nccl.expected_version")]
    outcomes: list[Outcome] = []
    if nccl.loaded_deleted:
        outcomes.append(_replaced(nccl))
    if used is None:
        seen = missing(facts, "nccl.loaded_version", what="which NCCL a job loads")
        if not (nccl.loaded_deleted or _other_copies(nccl, expected)):
            return [seen]
        outcomes.append(seen)
    elif parse_version(used) != parse_version(expected):
        outcomes.append(_another(facts, used, expected, is_loaded=is_loaded))
    if used is None or parse_version(used) == parse_version(expected):
        outcomes += _other_copies(nccl, expected, is_installed=_image_installed_it(facts))
    word = "loaded" if is_loaded else "would be loaded (predicted)"
    return outcomes or [Passed(detail=f"NCCL {used} {word}, as torch asks for")]


def check_duplicates(facts: EnvFacts) -> Sequence[Outcome]:
    """Two nvidia-nccl wheels overwrite each other's file; several versions on disk are worth knowing."""
    if facts.python is None and facts.nccl is None:
        return [missing(facts, "nccl.libraries")]
    outcomes: list[Outcome] = []
    wheels = {
        name: version
        for name, version in (facts.python.distributions if facts.python is not None else {}).items()
        if _WHEEL.match(name)
    }
    if len(wheels) > 1:
        outcomes.append(_two_wheels(facts, wheels))
    libraries = facts.nccl.libraries if facts.nccl is not None else ()
    versions = {each.version for each in libraries if each.version}
    if len(versions) > 1:
        outcomes.append(_several(libraries))
    if outcomes:
        return outcomes
    if facts.python is None or "distributions" in facts.python.unread:
        return [missing(facts, "python.distributions")]
    if not wheels and not libraries:
        return [NotApplicable(detail="no NCCL found here")]
    return [Passed(detail=f"{len(wheels)} nvidia-nccl wheel, {len(libraries)} libraries of one version")]


def _has_no_nccl(facts: EnvFacts) -> bool:
    torch = facts.torch
    return torch is not None and bool(torch.is_cpu_build) and not torch.hip_build


def _expected(facts: EnvFacts) -> str | None:
    """What torch wants: the pin, else what it says it was compiled with."""
    if facts.nccl is not None and facts.nccl.expected_version:
        return facts.nccl.expected_version
    pins = facts.torch.required_nvidia if facts.torch is not None else {}
    pinned = next((version for name, version in pins.items() if _WHEEL.match(name)), None)
    return pinned or (facts.torch_probe.nccl_version if facts.torch_probe is not None else None)


def _another(facts: EnvFacts, used: str, expected: str, *, is_loaded: bool) -> Found:
    nccl = facts.nccl or NcclFacts()
    older = (parse_version(used) or ()) < (parse_version(expected) or ())
    path = nccl.loaded_path if is_loaded else nccl.predicted_path
    where = path or ("the mapped library" if is_loaded else "the installed nvidia-nccl wheel")
    how = "is loaded" if is_loaded else "would be loaded"
    reason = (
        f" It wins by {nccl.predicted_why}."
        if nccl.predicted_why and path and path == nccl.predicted_path
        else ""
    )
    danger = (
        "Functions that torch calls may be missing (`undefined symbol: nccl…`), and fixes that it counts on are."
        if older
        else "torch was not tested with it; a newer NCCL mostly works."
    )
    return Found(
        key=f"{used}-for-{expected}",
        title=f"NCCL {used} {how} instead of the {expected} that torch wants"[:80],
        severity=Severity.CRITICAL if older else Severity.WARNING,
        confidence=Confidence.HIGH if is_loaded else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{where} holds NCCL {used}" + ("" if is_loaded else " (predicted, not observed)"),
                value=used,
                expected=expected,
                expected_source=nccl.sources.get("expected_version", _PIN_SOURCE),
                source=nccl.sources.get("loaded_path" if is_loaded else "predicted_path"),
            ),
        ),
        explanation=f"{danger}{reason}",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Take away what puts the other copy first (LD_PRELOAD, LD_LIBRARY_PATH, conda), or reinstall torch's own",
                command=f"pip install --force-reinstall --no-deps {_wheel_name(facts)}=={expected}",
            ),
        ),
        cause_class="env:nccl_conflict",
        fault=Fault.SOFTWARE,
    )


def _wheel_name(facts: EnvFacts) -> str:
    """The NCCL wheel that belongs to this torch."""
    pins = facts.torch.required_nvidia if facts.torch is not None else {}
    installed = facts.python.distributions if facts.python is not None else {}
    cuda = (facts.torch.cuda_build if facts.torch is not None else None) or (
        facts.torch_probe.cuda_build if facts.torch_probe is not None else None
    )
    named = next((name for name in (*pins, *installed) if _WHEEL.match(name)), None)
    return named or f"nvidia-nccl-cu{(cuda or '13').partition('.')[0]}"


def _replaced(nccl: NcclFacts) -> Found:
    return Found(
        key="replaced",
        title="The NCCL that this process uses was replaced on disk since",
        severity=Severity.WARNING,
        evidence=(
            Evidence(
                text=f"{nccl.loaded_path} is mapped but deleted", source=nccl.sources.get("loaded_path")
            ),
        ),
        explanation="Processes that start now load another file: after a restart of single ranks, versions can differ.",
        actions=(Action(team=Team.JOB_OWNER, text="Restart all ranks of the job together"),),
        cause_class="env:nccl_conflict",
        fault=Fault.SOFTWARE,
    )


def _image_installed_it(facts: EnvFacts) -> bool:
    """True when the image says that it holds NCCL's package; all of NVIDIA's base images set NCCL_VERSION."""
    return facts.variables is not None and "NV_LIBNCCL_PACKAGE_VERSION" in facts.variables.environment


def _other_copies(nccl: NcclFacts, expected: str, *, is_installed: bool = False) -> list[Outcome]:
    """The image's or the system's NCCL, when it is another version than torch's own.

    NCCL_VERSION alone is an info: images that are made from NVIDIA's inherit it, with the library or without.
    """
    want = parse_version(expected)
    evidence = [
        Evidence(
            text=f"{each.path} holds NCCL {each.version}" + (f" ({each.owner})" if each.owner else ""),
            value=each.version,
            expected=expected,
            expected_source=_PIN_SOURCE,
            source=each.found_by,
        )
        for each in nccl.libraries
        if each.version and parse_version(each.version) != want and each.found_by.startswith(_SYSTEM)
    ][:8]
    is_there = bool(evidence) or is_installed
    if nccl.image_version and parse_version(nccl.image_version) != want:
        evidence.append(
            Evidence(
                text=f"NCCL_VERSION of the image says {nccl.image_version}",
                value=nccl.image_version,
                expected=expected,
                expected_source=_PIN_SOURCE,
                source="NCCL_VERSION",
            )
        )
    if not evidence:
        return []
    other = nccl.image_version or str(evidence[0].value)
    return [
        Found(
            key="system-copy",
            title=f"The {'system has' if is_there else 'image names'} NCCL {other}; torch brings {expected}"[
                :80
            ],
            severity=Severity.WARNING if is_there else Severity.INFO,
            confidence=Confidence.MEDIUM if is_there else Confidence.LOW,
            evidence=tuple(evidence),
            explanation=(
                "torch uses its own as long as nothing puts the system's first. Programs that use the system's "
                "(nccl-tests, CuPy, DALI, plugins built against it) run another version than the job, and one "
                "entry in LD_LIBRARY_PATH or LD_PRELOAD turns this into a failure."
            ),
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="Keep one version in the image, and keep its folder out of LD_LIBRARY_PATH",
                ),
            ),
            cause_class="env:nccl_conflict",
            fault=Fault.SOFTWARE,
        )
    ]


def _two_wheels(facts: EnvFacts, wheels: dict[str, str]) -> Found:
    probe = facts.torch_probe
    symbol = probe is not None and (
        (probe.undefined_symbol or "").lstrip("p").startswith("nccl")
        or _NCCL_SYMBOL.search(probe.error_text or "") is not None
    )
    imports = probe is not None and probe.state is ProbeState.OK
    names = sorted(wheels)
    wanted = [
        name for name in (facts.torch.required_nvidia if facts.torch is not None else {}) if name in wheels
    ]
    major = (facts.torch.cuda_build or "").partition(".")[0] if facts.torch is not None else ""
    keep = wanted[0] if wanted else f"nvidia-nccl-cu{major}" if f"nvidia-nccl-cu{major}" in wheels else None
    if keep:
        drop = " ".join(name for name in names if name != keep)
        command = f"pip uninstall -y {drop} && pip install --force-reinstall --no-deps {keep}=={wheels[keep]}"
    else:
        command = None
    evidence = [
        Evidence(text=f"{name} {wheels[name]} is installed", value=wheels[name], source="package metadata")
        for name in names
    ]
    if symbol and probe is not None:
        evidence.append(
            Evidence(
                text=(probe.error_text or f"undefined symbol: {probe.undefined_symbol}")[:300],
                source="import torch",
            )
        )
    return Found(
        key="wheels",
        title=f"Two NCCL packages write the same file: {' and '.join(names)}"[:80],
        severity=Severity.WARNING if imports and not symbol else Severity.CRITICAL,
        confidence=Confidence.HIGH if symbol or imports else Confidence.MEDIUM,
        evidence=tuple(evidence),
        explanation=(
            "Both put libnccl.so.2 into nvidia/nccl/lib; whichever was installed last is there. "
            + ("torch cannot be imported for it." if symbol else "")
            + (
                "torch can be imported at the moment; the next installation may end that."
                if imports and not symbol
                else ""
            )
        ).strip(),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Uninstall the one that torch does not ask for, then put the other's file back",
                command=command,
            ),
        ),
        cause_class="env:nccl_conflict",
        fault=Fault.SOFTWARE,
    )


def _several(libraries: Sequence[NcclLibrary]) -> Found:
    versions = sorted(
        {each.version for each in libraries if each.version}, key=lambda text: parse_version(text) or ()
    )
    return Found(
        key="versions",
        title=f"{len(libraries)} copies of NCCL in {len(versions)} versions: {', '.join(versions)}"[:80],
        severity=Severity.INFO,
        evidence=tuple(
            Evidence(
                text=f"{each.path}: {each.version or 'no banner'}"
                + (f" ({each.owner})" if each.owner else ""),
                value=each.version,
                source=each.found_by,
            )
            for each in libraries[:12]
        ),
        explanation="Harmless while each program finds its own; a path that is set later can change which one is taken.",
        actions=(Action(team=Team.PLATFORM, text="Keep one version for each environment"),),
        cause_class="env:nccl_conflict",
        fault=Fault.SOFTWARE,
    )


PINNED = Check(id="nccl-not-the-pinned-one", title="NCCL in use against torch's own", run=check_pinned)
DUPLICATES = Check(id="nccl-duplicates", title="copies of NCCL", run=check_duplicates, preflight=True)
