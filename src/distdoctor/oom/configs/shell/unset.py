"""Why a variable that a script uses has no value in it: nobody sets it, the scheduler does, the caller must."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from distdoctor.oom.configs.shell.values import Alternative, Unknown, UnknownKind

_SCHEDULER = re.compile(r"(?:SLURM|SBATCH|PBS|OMPI|PMI|PMIX|LSB|SLURMD|KUBERNETES|FLUX|SGE|COBALT)_")
_ENVIRONMENT = re.compile(
    r"HOME|USER|PWD|OLDPWD|PATH|HOSTNAME|HOST|SHELL|TMPDIR|LANG|UID|EUID|RANDOM|SECONDS|LINENO|BASH_\w+|FUNCNAME|"
    r"PIPESTATUS|IFS|PS1|OPTARG|OPTIND|MASTER_ADDR|MASTER_PORT|NODE_RANK|RANK|LOCAL_RANK|WORLD_SIZE|GROUP_RANK|PET_\w+|"
    r"PYTHONPATH|LD_LIBRARY_PATH|LD_PRELOAD|CONDA_\w+|VIRTUAL_ENV|CUDA_HOME|CUDA_VISIBLE_DEVICES|HF_\w+|WANDB_\w+|"
    r"NCCL_\w+|XDG_\w+|AWS_\w+|SCRATCH|WORK|PROJECT|DISPLAY|LOGNAME|JOB_NAME"
)


class UnsetVariables:
    """Variables that are used before anything sets them, each by its first use.

    `assigned`: what the script assigns anywhere, taken or not. `sources`: files that it sources; grows while it is read.
    """

    def __init__(self, assigned: Mapping[str, tuple[Alternative, ...]], sources: Sequence[str]) -> None:
        self.found: dict[str, Unknown] = {}
        self._assigned = assigned
        self._sources = sources
        self._given: set[str] = set()

    def classify(self, name: str, line: int) -> Unknown:
        """What is known about a variable without a value; `line` is where it is used."""
        kind = self._kind(name)
        alternatives = self._assigned.get(name, ()) if kind is UnknownKind.NOT_TAKEN else ()
        unknown = Unknown(name=name, kind=kind, line=line, alternatives=alternatives)
        return self.found.setdefault(name, unknown)

    def give(self, unknowns: list[Unknown]) -> None:
        """The script ends without these: whoever runs it gives them."""
        for unknown in unknowns:
            unknown.kind = UnknownKind.GIVEN
            self._given.add(unknown.name)
            if unknown.name == "#":
                self._given.update(str(number) for number in range(1, 10))

    def _kind(self, name: str) -> UnknownKind:
        if name in self._given:
            return UnknownKind.GIVEN
        if name.isdigit() or name in ("@", "*", "#"):
            return UnknownKind.ARGUMENT if name != "0" else UnknownKind.ENVIRONMENT
        if not name[:1].isalpha() and name[:1] != "_":
            return UnknownKind.COMMAND
        if _SCHEDULER.match(name):
            return UnknownKind.SCHEDULER
        if _ENVIRONMENT.fullmatch(name):
            return UnknownKind.ENVIRONMENT
        if self._sources:
            return UnknownKind.SOURCED
        return UnknownKind.NOT_TAKEN if name in self._assigned else UnknownKind.NEVER_SET
