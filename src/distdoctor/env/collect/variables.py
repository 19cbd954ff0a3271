"""Which variables of the process matter to distributed training, and which NCCL settings are in force."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping

from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading
from distdoctor.env.facts.variables import ConfigFile, Setting, VariableFacts

# Kept by the beginning of the name, in any letter case (a name in small letters is a mistake worth seeing).
RELEVANT_PREFIXES = (
    "NCCL_", "RCCL_", "OFI_NCCL_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "TORCHINDUCTOR_", "GLOO_", "TP_SOCKET_",
    "CUDA_", "NVIDIA_", "NSIGHT_", "NV_LIBNCCL", "HSA_", "ROCR_", "HIP_", "AMD_LOG_LEVEL",
    "LD_LIB", "LD_PRELOAD", "LD_AUDIT", "LD_BIND_", "LD_DEBUG", "LD_RUN_PATH", "OMP_", "MKL_", "KMP_", "GOMP_",
    "UCX_", "UCC_", "FI_", "OFI_", "RDMAV_", "IBV_", "MLX5_", "NVSHMEM_", "SHARP_",
    "MASTER_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_RANK", "MV2_COMM_WORLD_",
)  # fmt: skip

RELEVANT_NAMES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME",
    "COMPUTE_PROFILE", "OPENCL_PROFILE", "GPU_DEVICE_ORDINAL",
    "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "CONDA_PREFIX", "VIRTUAL_ENV", "XDG_CACHE_HOME",
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES",
    "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_MEM_PER_NODE", "SLURM_RESTART_COUNT", "SLURMD_NODENAME",
    "KUBERNETES_SERVICE_HOST",
)  # fmt: skip

# Variables that name a file that NCCL or CUDA must be able to read.
PATH_VARIABLES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "NCCL_TUNER_CONFIG_FILE")

# Longer values are cut: an allow-list of paths is evidence, a dump of data is not.
MAX_VALUE_CHARACTERS = 8192
MAX_VARIABLES = 2000

# What NCCL keeps of a name or a value in its configuration files (src/misc/param.cc).
_NCCL_LIMIT = 1023

# torchrun sets these when they are unset: OMP_NUM_THREADS in torch/distributed/run.py (more than one process
# on the host), the other in elastic/agent/server/local_elastic_agent.py. Read in torch 2.13.
TORCHRUN_SETS = {"OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}

SET_BY_TORCHRUN = "set by torchrun"
ENVIRONMENT = "environment"


def collect_variables(world: World, *, whose: str | None = None) -> VariableFacts:
    """Variables that matter here and NCCL's configuration files; other variables are not kept.

    whose: how reports name the process; by default this shell, or the pid and its name. Never raises.
    """
    reading = Reading()
    reading.put("whose", "", whose or _whose(world))
    environment = _relevant(world.environ)
    reading.put("environment", world.proc("environ"), environment)
    files = tuple(_read_config(world, path) for path in _config_paths(world))
    reading.put("config_files", "NCCL's configuration files", files)
    launcher_set = _launcher_set(world.environ)
    reading.put("launcher_set", "torch.distributed.run", launcher_set)
    reading.put(
        "settings", "environment and configuration files", _settings(environment, files, launcher_set)
    )
    reading.put("path_errors", "open", _path_errors(world, environment))
    return VariableFacts(**reading.fields())


def parse_nccl_conf(text: str) -> dict[str, str]:
    """NAME=VALUE lines as NCCL reads them; the first setting of a name wins.

    A line that begins with '#' is a comment; a line without '=' is nothing. Nothing is trimmed and quotes are
    not removed: " NCCL_DEBUG" is another name than "NCCL_DEBUG", as for NCCL (src/misc/param.cc, setEnvFile).
    """
    values: dict[str, str] = {}
    for line in text.split("\n"):
        name, mark, value = line.partition("=")
        if mark and not line.startswith("#"):
            values.setdefault(name[:_NCCL_LIMIT], value[:_NCCL_LIMIT])
    return values


def _whose(world: World) -> str:
    if world.pid == "self":
        return "this shell"
    try:
        return f"PID {world.pid} ({world.read_proc('comm').strip()})"
    except (OSError, ValueError):
        return f"PID {world.pid}"


def _relevant(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value[:MAX_VALUE_CHARACTERS]
        for name, value in sorted(environ.items())
        if name in RELEVANT_NAMES or name.strip().upper().startswith(RELEVANT_PREFIXES)
    }
    return dict(list(kept.items())[:MAX_VARIABLES])


def _config_paths(world: World) -> list[str]:
    """In NCCL's order: $NCCL_CONF_FILE (2.23 and newer) or else ~/.nccl.conf, then /etc/nccl.conf.

    The home folder is that of the user database; newer sources read $HOME instead. Where the two differ,
    both files are looked at.
    """
    named = world.environ.get("NCCL_CONF_FILE")
    if named:
        paths = [named]
    else:
        homes = [_home_of_user(world), world.environ.get("HOME")]
        paths = [f"{home.rstrip('/')}/.nccl.conf" for home in homes if home]
    return list(dict.fromkeys([*paths, "/etc/nccl.conf"]))


def _home_of_user(world: World) -> str | None:
    """The home folder that getpwuid(3) would give for the process' user."""
    try:
        uid = _uid(world)
    except (OSError, ValueError):
        return None
    try:
        for line in world.read_text("/etc/passwd").splitlines():
            fields = line.split(":")
            if len(fields) >= 6 and fields[2] == str(uid):
                return fields[5]
    except (OSError, ValueError):
        pass
    if str(world.root) != "/":
        return None
    try:
        return pwd.getpwuid(uid).pw_dir  # a user of LDAP or SSSD is in no file
    except KeyError:
        return None


def _uid(world: World) -> int:
    if world.pid == "self" and str(world.root) == "/":
        return os.getuid()
    match = re.search(r"^Uid:\s+(\d+)", world.read_proc("status"), re.MULTILINE)
    if match is None:
        raise ValueError("no Uid in /proc/PID/status")
    return int(match[1])


def _read_config(world: World, path: str) -> ConfigFile:
    try:
        return ConfigFile(path=path, exists=True, values=parse_nccl_conf(world.read_text(path)))
    except (FileNotFoundError, NotADirectoryError):
        return ConfigFile(path=path, exists=False)
    except OSError as error:
        return ConfigFile(path=path, exists=True, error=error.strerror or str(error))
    except ValueError as error:
        return ConfigFile(path=path, exists=True, error=str(error))


def _launcher_set(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names whose value is the one that torchrun gives when the user gave none."""
    if "TORCHELASTIC_RUN_ID" not in environ:
        return ()
    return tuple(name for name, value in TORCHRUN_SETS.items() if environ.get(name) == value)


def _settings(
    environment: Mapping[str, str], files: tuple[ConfigFile, ...], launcher_set: tuple[str, ...]
) -> tuple[Setting, ...]:
    """NCCL settings in force and what torchrun set. The environment wins, then the files in their order."""
    sources = [(ENVIRONMENT, environment), *((each.path, each.values) for each in files)]
    names = {name for _, values in sources for name in values if name.startswith("NCCL_")}
    settings = []
    for name in sorted(names):
        (origin, value), *lost = [(where, values[name]) for where, values in sources if name in values]
        settings.append(
            Setting(
                name=name,
                value=value,
                origin=origin,
                overridden=tuple(f"{where}={other}" for where, other in lost if other != value),
            )
        )
    settings += [
        Setting(name=name, value=environment[name], origin=SET_BY_TORCHRUN)
        for name in launcher_set
        if name in environment
    ]
    return tuple(settings)


def _path_errors(world: World, environment: Mapping[str, str]) -> dict[str, str]:
    """Variable → why the file that it names cannot be read; an empty text: it can."""
    errors = {}
    for name in PATH_VARIABLES:
        if environment.get(name):
            try:
                with world.path(environment[name]).open("rb") as stream:
                    stream.read(1)
                errors[name] = ""
            except OSError as error:
                errors[name] = error.strerror or str(error)
    return errors
