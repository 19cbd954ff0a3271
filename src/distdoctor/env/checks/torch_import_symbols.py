"""Why an import failed on an undefined symbol: two versions of one library, and the wrong one comes first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from distdoctor.env.catalog.nccl_symbols import SymbolOrigin, nccl_symbol_origin
from distdoctor.env.checks.torch_import_cause import ImportCause, library_path_evidence, without_paths
from distdoctor.env.checks.torch_view import pinned, pip_command, torch_build
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.nccl import NcclLibrary
from distdoctor.env.readers.import_error import ImportFault
from distdoctor.env.versions import below
from distdoctor.report.model import Action, Confidence, Evidence, Team


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """Symbols that belong to one library."""

    pattern: re.Pattern[str]
    title: str
    explanation: str
    remedy: str
    command: str | None = None


_LD_PATH = "echo $LD_LIBRARY_PATH; echo $LD_PRELOAD; ldconfig -p | grep -E 'libcud|libnv|libnccl'"

# First match wins. Each was met with `import torch`; the words in `explanation` say which library lacks the symbol.
_FAMILIES = (
    _Family(
        pattern=re.compile(r"__nvJitLink"),
        title="torch does not import: an older nvJitLink library is loaded first",
        explanation="torch's cuSPARSE asks libnvJitLink for a function that the loaded copy is too old to have. As a rule "
        "LD_LIBRARY_PATH names a CUDA toolkit that is older than the one torch was built with.",
        remedy="Take the CUDA folders out of LD_LIBRARY_PATH for this job: torch's wheels bring their own libraries",
        command="env -u LD_LIBRARY_PATH python -c 'import torch; print(torch.__version__)'",
    ),
    _Family(
        pattern=re.compile(r"iJIT_|__itt_|mkl_"),
        title="torch does not import: its Intel MKL is of another version",
        explanation="torch was built against an MKL whose profiling hooks MKL 2024.1 removed (pytorch issue 123097).",
        remedy="Install an MKL older than 2024.1 beside this torch, or a newer torch",
        command="conda install 'mkl<2024.1'",
    ),
    _Family(
        pattern=re.compile(r"cudnn"),
        title="torch does not import: another cuDNN is loaded first",
        explanation="The loaded cuDNN lacks a function that torch was built with: it is of another version.",
        remedy="Find the other libcudnn, and take its folder out of LD_LIBRARY_PATH",
        command=_LD_PATH,
    ),
    _Family(
        pattern=re.compile(r"cublas|cusparse|cusolver|cufft|curand|cupti|nvrtc|nvshmem|cuFile"),
        title="torch does not import: a CUDA library of another version is loaded first",
        explanation="The loaded copy of this CUDA library lacks a function that torch was built with.",
        remedy="Find the other copy, and take its folder out of LD_LIBRARY_PATH",
        command=_LD_PATH,
    ),
    _Family(
        pattern=re.compile(r"_*cuda[A-Z]"),
        title="torch does not import: an older CUDA runtime is loaded first",
        explanation="The loaded libcudart lacks a function that torch was built with: it is older.",
        remedy="Find the other libcudart, and take its folder out of LD_LIBRARY_PATH",
        command=_LD_PATH,
    ),
    _Family(
        pattern=re.compile(r"cu[A-Z]|nvml"),
        title="torch does not import: the NVIDIA driver's library lacks a function",
        explanation="libcuda.so.1 or libnvidia-ml.so.1 is older than what this torch asks for, or is a stub for building.",
        remedy="See which libcuda.so.1 is taken; a `stubs` folder must not be on LD_LIBRARY_PATH",
        command="ldconfig -p | grep libcuda.so; echo $LD_LIBRARY_PATH; cat /proc/driver/nvidia/version",
    ),
    _Family(
        pattern=re.compile(r"_?Py[A-Z]|_Py_"),
        title="torch does not import: it was built for another Python version",
        explanation="The compiled module asks for a function that this interpreter does not have.",
        remedy="Install torch for this very interpreter",
        command="python -m pip install --force-reinstall torch",
    ),
    _Family(
        pattern=re.compile(r"MPI_|ompi_|PMPI_|opal_"),
        title="torch does not import: it was built against another MPI",
        explanation="The MPI library that is loaded is not the one that this torch was compiled with.",
        remedy="Load the MPI module that this torch was built with, or take a torch without MPI",
    ),
    _Family(
        pattern=re.compile(r"ibv_|mlx5|rdma_"),
        title="torch does not import: the RDMA libraries are of another version",
        explanation="libibverbs or a NIC's provider library lacks a function that is asked for.",
        remedy="Let the container's RDMA libraries match those of its own release",
        command="ldconfig -p | grep -E 'libibverbs|libmlx5|librdmacm'",
    ),
    _Family(
        pattern=re.compile(r"hip[A-Z]|hsa_|roc|miopen|amd_comgr|rccl"),
        title="torch does not import: the ROCm libraries are of another version",
        explanation="A ROCm library lacks a function that this torch was built with.",
        remedy="Match torch's ROCm version (torch.version.hip) and the installed ROCm",
        command="cat /opt/rocm/.info/version; echo $LD_LIBRARY_PATH",
    ),
    _Family(
        pattern=re.compile(r"omp_|GOMP_|__kmpc|kmp_"),
        title="torch does not import: another OpenMP library is loaded first",
        explanation="The loaded OpenMP runtime lacks a function that torch was built with.",
        remedy="Look for a second libgomp or libiomp5 in LD_LIBRARY_PATH and LD_PRELOAD",
        command=_LD_PATH,
    ),
)

# c10, at, torch and caffe2 as they stand in C++'s mangled names: `_ZN3c10…`, `_ZNK2at6Tensor…`.
_TORCH_SYMBOL = re.compile(r"_Z\w*?(?:3c10|2at\d|5torch|6caffe2)")
_TORCH_OWN = re.compile(r"/torch/(?:lib/|_C\.)|^lib(?:torch|c10|caffe2|shm)")


def symbol_cause(facts: EnvFacts, fault: ImportFault, symbol: str) -> ImportCause:
    """The library whose wrong version an undefined `symbol` betrays."""
    if re.match(r"p?nccl[A-Z]", symbol):
        return _nccl_symbol(facts, symbol)
    if _TORCH_SYMBOL.match(symbol):
        return _torch_symbol(facts, fault)
    for family in _FAMILIES:
        if family.pattern.match(symbol):
            return ImportCause(
                title=family.title,
                explanation=family.explanation,
                evidence=library_path_evidence(facts),
                actions=(Action(team=Team.PLATFORM, text=family.remedy, command=family.command),),
            )
    wanted = (fault.wanted_by or "a library").rpartition("/")[2]
    return ImportCause(
        title=f"torch does not import: {wanted[:40]} misses a symbol",
        explanation=f"`{symbol[:120]}` is defined in no library that is loaded. As a rule two versions of one library are "
        "installed, and the wrong one comes first.",
        evidence=library_path_evidence(facts),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Try without LD_LIBRARY_PATH and LD_PRELOAD",
                command=without_paths(facts),
            ),
        ),
        confidence=Confidence.MEDIUM,
    )


def _nccl_symbol(facts: EnvFacts, symbol: str) -> ImportCause:
    origin = nccl_symbol_origin(symbol)
    culprit = _older_nccl(facts, origin)
    since = (
        f"{symbol} exists since NCCL {origin.version}"
        if origin
        else f"{symbol} is not in our table of NCCL functions"
    )
    evidence = [
        Evidence(
            text=since,
            expected=f"NCCL {origin.version} or newer" if origin else None,
            expected_source="exported functions of the NCCL releases, compared"
            if origin and origin.is_measured
            else None,
        )
    ]
    if culprit is not None:
        evidence.append(
            Evidence(
                text=f"{culprit.path} is NCCL {culprit.version}, found through {culprit.found_by}",
                value=culprit.version,
                source=culprit.path,
            )
        )
    evidence += _two_nccl_wheels(facts)
    return ImportCause(
        title="torch does not import: an older NCCL library takes the place of its own",
        explanation=(
            "torch was compiled against a newer NCCL than the one that is loaded. Either LD_LIBRARY_PATH, LD_PRELOAD or a "
            "module loaded before torch brings an older libnccl, or an older nvidia-nccl wheel was installed over the right "
            "one: nvidia-nccl-cu12 and nvidia-nccl-cu13 write the same file (pytorch issue 186591)."
        ),
        evidence=(*evidence, *library_path_evidence(facts)),
        actions=_nccl_actions(facts, culprit),
        cause_class="env:nccl_conflict",
        confidence=Confidence.HIGH if origin is not None else Confidence.MEDIUM,
    )


def _older_nccl(facts: EnvFacts, origin: SymbolOrigin | None) -> NcclLibrary | None:
    """The libnccl that lacks the symbol: the one that would be loaded, else one that a variable names."""
    if facts.nccl is None or origin is None:
        return None
    older = [each for each in facts.nccl.libraries if below(each.version, origin.version)]
    predicted = [each for each in older if facts.nccl.predicted_path in (each.path, each.real_path)]
    by_variable = [each for each in older if each.found_by in ("LD_PRELOAD", "LD_LIBRARY_PATH")]
    return next(iter([*predicted, *by_variable]), None)


def nccl_wheels(facts: EnvFacts) -> dict[str, str]:
    """Installed nvidia-nccl-cuNN distributions."""
    distributions = facts.python.distributions if facts.python is not None else {}
    return {name: version for name, version in distributions.items() if name.startswith("nvidia-nccl-cu")}


def _two_nccl_wheels(facts: EnvFacts) -> list[Evidence]:
    wheels = nccl_wheels(facts)
    if len(wheels) < 2:
        return []
    named = " and ".join(f"{name} {version}" for name, version in sorted(wheels.items()))
    return [
        Evidence(
            text=f"{named} are both installed; they write the same file, the last one wins",
            expected="one",
            expected_source="pytorch issue 186591",
            source=facts.python.sources.get("distributions") if facts.python else None,
        )
    ]


def _nccl_actions(facts: EnvFacts, culprit: NcclLibrary | None) -> tuple[Action, ...]:
    actions: list[Action] = []
    if culprit is not None and culprit.found_by in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        actions.append(
            Action(
                team=Team.PLATFORM,
                text=f"Take {culprit.path} out of {culprit.found_by} for this job",
                command=without_paths(facts),
            )
        )
    elif "nccl" in _variable(facts, "LD_PRELOAD"):
        actions.append(
            Action(
                team=Team.PLATFORM,
                text="Take libnccl out of LD_PRELOAD for this job",
                command=without_paths(facts),
            )
        )
    wheels = nccl_wheels(facts)
    wanted = next((name for name in wheels if pinned(facts, name)), None) or _wheel_of_build(facts, wheels)
    if wanted is not None:
        pin = pinned(facts, wanted)
        others = sorted(set(wheels) - {wanted})
        command = pip_command(
            facts, f"install --force-reinstall --no-deps {shlex.quote(f'{wanted}=={pin}' if pin else wanted)}"
        )
        if others:
            command = f"{pip_command(facts, f'uninstall -y {shlex.join(others)}')} && {command}"
        actions.append(
            Action(
                team=Team.JOB_OWNER,
                text=f"Put back the NCCL that torch was built for ({wanted})",
                command=command,
            )
        )
    if not actions:
        actions.append(
            Action(
                team=Team.PLATFORM,
                text="Find every libnccl, and which one comes first",
                command="ldconfig -p | grep libnccl; echo $LD_LIBRARY_PATH $LD_PRELOAD; python -m pip list | grep -i nccl",
            )
        )
    return tuple(actions)


def _variable(facts: EnvFacts, name: str) -> str:
    return facts.variables.environment.get(name, "") if facts.variables is not None else ""


def _wheel_of_build(facts: EnvFacts, wheels: Iterable[str]) -> str | None:
    build = torch_build(facts)
    name = f"nvidia-nccl-cu{build.cuda_major}" if build is not None and build.cuda_major else ""
    return name if name in wheels else None


def _torch_symbol(facts: EnvFacts, fault: ImportFault) -> ImportCause:
    wanted = fault.wanted_by or ""
    if not wanted or _TORCH_OWN.search(wanted):
        return ImportCause(
            title="torch does not import: its own libraries come from two versions",
            explanation="One of torch's libraries asks another for a function that it does not have. An upgrade ended half-way, "
            "or LD_LIBRARY_PATH names another torch's lib folder.",
            evidence=library_path_evidence(facts),
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="Remove torch, and install it anew",
                    command=f"{pip_command(facts, 'uninstall -y torch')} && {pip_command(facts, 'install torch')}",
                ),
            ),
        )
    package = re.sub(r".*/(?:site|dist)-packages/", "", wanted).partition("/")[0]
    return ImportCause(
        title=f"An extension was built for another torch: {package[:40]}",
        explanation=f"{wanted} asks torch for a C++ function that this torch does not have: it was compiled against another "
        "torch version.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Install the build of that package which belongs to this torch, or build it again",
                command=pip_command(
                    facts, "install --force-reinstall --no-deps --no-build-isolation --no-cache-dir PACKAGE"
                ),
            ),
        ),
    )
