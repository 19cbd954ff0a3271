"""Facts about the Python interpreter and torch: what metadata says, and what importing it in a child showed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from distdoctor.env.facts.base import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFacts(Section):
    """The interpreter that the job uses (`--python`), not necessarily ours."""

    executable: str | None = None
    version: str | None = None
    prefix: str | None = None
    conda_prefix: str | None = None
    in_virtualenv: bool | None = None
    search_path: tuple[str, ...] = ()
    """sys.path of that interpreter as `python -c "import torch"` would have it, in order; no empty entries."""
    chosen_by: str | None = None
    """Why this one: "--python", "runs distdoctor", "first python of PATH that has torch", "the live process"."""
    also_looked_at: tuple[str, ...] = ()
    """Other interpreters in which torch was looked for and not found."""
    distributions: Mapping[str, str] = field(default_factory=dict)
    """Installed distributions that matter here (torch*, nvidia-*, pynvml, deepspeed, …), normalised name → version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFacts(Section):
    """What files and metadata say about torch, without importing it."""

    found: bool | None = None
    path: str | None = None
    """The package folder that `import torch` would take."""
    version: str | None = None
    cuda_build: str | None = None
    """CUDA version that torch was built with ("13.0"). None with `is_cpu_build` True: built without CUDA."""
    hip_build: str | None = None
    xpu_build: str | None = None
    is_cpu_build: bool | None = None
    git_version: str | None = None
    is_local: bool | None = None
    """True when the working folder or PYTHONPATH gives it rather than an installation."""
    shadowed_path: str | None = None
    """The installed package that a local `torch` folder or file hides."""
    has_native_code: bool | None = None
    """False: no compiled `_C` module beside `__init__.py`, as in a source tree or a half-removed installation."""
    leftovers: tuple[str, ...] = ()
    """`~orch…` folders that an interrupted pip left behind."""
    dist_infos: tuple[str, ...] = ()
    """Paths of all torch *.dist-info and *.egg-info on the search path."""
    dist_versions: tuple[str, ...] = ()
    """Their versions; more than one in a folder is a broken installation."""
    required_nvidia: Mapping[str, str] = field(default_factory=dict)
    """nvidia-* distributions that torch's metadata pins: name → exact version; "13.0.96.*" admits any suffix."""
    bundled_libraries: tuple[str, ...] = ()
    """File names of interest in torch/lib."""
    arch_list: tuple[str, ...] = ()
    """`sm_90`, `compute_120`, …: from the probe or from a printed warning."""


class ProbeState(str, Enum):
    """How the child that imports torch ended."""

    OK = "ok"
    RAISED = "raised"
    ABORTED = "ended by a signal"
    EXITED_EARLY = "exited before the end"
    HUNG = "hung"
    NOT_FOUND = "torch not installed"
    BAD_INTERPRETER = "interpreter does not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchProbe(Section):
    """What a child process saw when it imported torch, step by step."""

    state: ProbeState | None = None
    last_step: str | None = None
    """The last step that was reached: "start", "import torch", "torch.distributed", "nccl", "done"."""
    duration_s: float | None = None
    timeout_s: float | None = None
    error_type: str | None = None
    error_text: str | None = None
    error_where: str | None = None
    """File and line of the innermost frame (of the hang, abort or exception)."""
    signal_name: str | None = None
    returncode: int | None = None
    missing_library: str | None = None
    undefined_symbol: str | None = None
    symbol_wanted_by: str | None = None
    """The file that needed the missing library or symbol."""
    torch_version: str | None = None
    cuda_build: str | None = None
    hip_build: str | None = None
    arch_list: tuple[str, ...] = ()
    nccl_available: bool | None = None
    gloo_available: bool | None = None
    mpi_available: bool | None = None
    nccl_version: str | None = None
    """By torch.cuda.nccl.version(), "2.28.9"."""
    cuda_init_error: str | None = None
    """Text of a CUDA initialisation failure ("Error 802: system not yet initialized"), verbatim."""
    cuda_available: bool | None = None
    """Only from text (collect_env); the live probe makes no CUDA context."""
    mapped_libraries: tuple[str, ...] = ()
    """Paths of libnccl, libcuda, libcudart, libtorch_cuda … mapped after the import."""
    import_s: float | None = None
    """Seconds that `import torch` alone took."""
    torch_file: str | None = None
    """`torch.__file__`."""
    warnings: tuple[str, ...] = ()
    """Lines that torch or its imports printed and that a rule reads (NumPy ABI, pynvml …)."""
    num_gpus_seen: int | None = None
