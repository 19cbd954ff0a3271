"""Why an import failed, when the dynamic loader said why: a missing library or version, a broken file, a symbol."""

from __future__ import annotations

import shlex

from distdoctor.env.catalog.libraries import Supplier, library_supplier
from distdoctor.env.checks.torch_import_cause import ImportCause, library_path_evidence
from distdoctor.env.checks.torch_import_symbols import symbol_cause
from distdoctor.env.checks.torch_view import installed, pinned, pip_command, torch_build
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.readers.import_error import ImportFault
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Team


def library_cause(facts: EnvFacts, fault: ImportFault) -> ImportCause | None:
    """The cause that the loader's words name; None when they name none."""
    if fault.undefined_symbol is not None:
        return symbol_cause(facts, fault, fault.undefined_symbol)
    if fault.missing_library is not None:
        if fault.missing_library.startswith(("GLIBC_", "GLIBCXX_", "CXXABI_", "GCC_", "GOMP_", "OMP_")):
            return _missing_version(fault, fault.missing_library)
        return _missing_library(facts, fault, fault.missing_library)
    if fault.bad_file is not None:
        return _bad_file(fault.bad_file, fault.file_fault or "")
    return None


def _missing_library(facts: EnvFacts, fault: ImportFault, name: str) -> ImportCause:
    build = torch_build(facts)
    supplier = library_supplier(name, build.cuda_major if build else None)
    shown = name.rpartition("/")[2][:40]
    evidence: list[Evidence] = []
    if fault.why_missing:
        evidence.append(Evidence(text=f"the loader says: {fault.why_missing[:200]}"))
    if supplier is None:
        return ImportCause(
            title=f"torch does not import: {shown} is missing",
            explanation=f"The dynamic loader finds no {shown} in LD_LIBRARY_PATH, in torch's own folders or in its cache. We do "
            "not know which package supplies it.",
            evidence=(*evidence, *library_path_evidence(facts)),
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="Look for it",
                    command=f"ldconfig -p | grep {shlex.quote(shown)}; apt-file search {shlex.quote(shown)}",
                ),
            ),
        )
    return ImportCause(
        title=f"torch does not import: {shown} is missing",
        explanation=f"{shown} is {supplier.what}. {_why_absent(facts, supplier)}",
        evidence=(*evidence, *_package_evidence(facts, supplier), *library_path_evidence(facts)),
        actions=(_supply(facts, supplier, shown),),
        fault=Fault.HOST if supplier.kind == "driver" else Fault.SOFTWARE,
    )


def _why_absent(facts: EnvFacts, supplier: Supplier) -> str:
    match supplier.kind:
        case "wheel":
            have = installed(facts, supplier.package or "")
            if have:
                return f"{supplier.package} {have} is installed, yet its file is not found: it was removed or moved, or is of another CUDA major."
            return f"It comes with the Python distribution {supplier.package}, which torch requires and which is not installed here."
        case "driver":
            return (
                "It is no part of torch or CUDA: the host's driver brings it, and the NVIDIA container runtime puts it into a "
                "container (capabilities `compute,utility`)."
            )
        case "torch":
            return "It lies in torch/lib: the installation is incomplete."
        case "mpi":
            return "Most wheels are built without it; the MPI module of that build must be loaded."
        case "rocm":
            return "The ROCm release that this torch was built with must be installed or mounted, and found by the loader."
        case _:
            return "The operating system or image supplies it."


def _supply(facts: EnvFacts, supplier: Supplier, name: str) -> Action:
    match supplier.kind:
        case "wheel":
            package = supplier.package or ""
            pin = pinned(facts, package)
            wanted = f"{package}=={pin}" if pin else package.partition(" ")[0]
            return Action(
                team=Team.JOB_OWNER,
                text=f"Install {package}, in the version that torch pins",
                command=pip_command(facts, f"install --force-reinstall --no-deps {shlex.quote(wanted)}"),
            )
        case "driver":
            return Action(
                team=Team.PLATFORM,
                text="Give the container the GPU driver (`--gpus all`, NVIDIA_DRIVER_CAPABILITIES=compute,utility), or install the driver",
                command="nvidia-smi; ldconfig -p | grep libcuda.so",
            )
        case "torch":
            return Action(
                team=Team.JOB_OWNER,
                text="Install torch anew",
                command=pip_command(facts, "install --force-reinstall torch"),
            )
        case "system":
            return Action(
                team=Team.PLATFORM,
                text=f"Install the package that has {name}",
                command=f"apt-get install {supplier.package}   # Debian, Ubuntu; other systems name it otherwise",
            )
        case _:
            return Action(
                team=Team.PLATFORM,
                text=f"Make {name} available to the loader",
                command=f"ldconfig -p | grep {shlex.quote(name.partition('.so')[0])}; echo $LD_LIBRARY_PATH",
            )


def _package_evidence(facts: EnvFacts, supplier: Supplier) -> tuple[Evidence, ...]:
    package = supplier.package
    if supplier.kind != "wheel" or package is None or facts.python is None or not facts.python.distributions:
        return ()
    have, pin = installed(facts, package), pinned(facts, package)
    return (
        Evidence(
            text=f"{package} {have} is installed" if have else f"{package} is not installed",
            expected=f"{package}=={pin}" if pin else None,
            expected_source="Requires-Dist of the installed torch" if pin else None,
            source=facts.python.sources.get("distributions"),
        ),
    )


def _missing_version(fault: ImportFault, version: str) -> ImportCause:
    provider = fault.provider or "a system library"
    if version.startswith("GLIBC_"):
        return ImportCause(
            title=f"torch does not import: the system's C library is older than {version[6:][:12]}",
            explanation=f"{fault.wanted_by or 'A library'} was built on a newer Linux than this one; {provider} has no {version}. "
            "The C library cannot be replaced under a running system.",
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="Use a newer image or system, or a torch that was built for an older one",
                    command="ldd --version | head -1",
                ),
            ),
        )
    return ImportCause(
        title=f"torch does not import: an older runtime library lacks {version[:24]}",
        explanation=f"{provider} is older than what {fault.wanted_by or 'a library'} was built with. In a conda environment as a "
        "rule the system's libstdc++ is found before the environment's own, or the other way round.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See which copy is taken and which versions it has; update it, or let the newer one come first",
                command=f"strings {shlex.quote(provider)} | grep {version.partition('_')[0]}_ | sort -V | tail -3; echo $LD_LIBRARY_PATH",
            ),
        ),
    )


def _bad_file(path: str, what: str) -> ImportCause:
    shown = path.rpartition("/")[2][:32]
    if "static TLS" in what:
        return ImportCause(
            title=f"torch does not import: no room for {shown} in static TLS",
            explanation="Libraries with static thread-local storage share a small block of memory; when torch is imported after "
            "other large libraries, none is left for this one.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="Import torch before the other packages, or load this library first",
                    command=f"export LD_PRELOAD={shlex.quote(path)}",
                ),
            ),
            fault=Fault.SOFTWARE,
        )
    if "wrong ELF class" in what or "Exec format" in what:
        return ImportCause(
            title=f"torch does not import: {shown} is for another processor",
            explanation=f"{path} was built for another processor architecture than that of this Python.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="Install torch for this machine",
                    command=f"file {shlex.quote(path)}; uname -m",
                ),
            ),
        )
    if (
        "failed to map" in what
        or "executable stack" in what
        or "memory protection" in what
        or "zero-fill" in what
    ):
        return ImportCause(
            title=f"torch does not import: {shown} may not be mapped",
            explanation=f"{path}: {what}. The file system is mounted noexec, a memory limit is too low, or the kernel forbids an "
            "executable stack.",
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="See mount options and limits",
                    command=f"findmnt -T {shlex.quote(path)}; ulimit -v; getenforce 2>/dev/null",
                ),
            ),
            fault=Fault.HOST,
            confidence=Confidence.MEDIUM,
        )
    return ImportCause(
        title=f"torch does not import: {shown} is damaged",
        explanation=f"{path}: {what}. The file was cut off while it was copied or downloaded, or is a Git LFS pointer.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="See its size, and install the package that it belongs to anew",
                command=f"ls -l {shlex.quote(path)}; df -h {shlex.quote(path)}",
            ),
        ),
    )
