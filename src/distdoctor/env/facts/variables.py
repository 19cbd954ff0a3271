"""Facts about environment variables and NCCL configuration files, and which value is in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distdoctor.env.facts.base import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """One NCCL configuration file, in NCCL's order."""

    path: str
    exists: bool
    values: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value in force and where it comes from."""

    name: str
    value: str
    origin: str
    """"environment", "set by torchrun", or the path of the configuration file."""
    overridden: tuple[str, ...] = ()
    """Other places that set it and lost, as "origin=value"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableFacts(Section):
    """Variables of the process that matter to distributed training (see catalog), and the values in force."""

    whose: str | None = None
    """"this shell", "PID 4242 (python3)"."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """NCCL_*, TORCH_*, GLOO_*, CUDA_*, PYTORCH_*, LD_*, OMP_* …; others are not kept."""
    config_files: tuple[ConfigFile, ...] = ()
    settings: tuple[Setting, ...] = ()
    """NCCL_* in force: environment first, then NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf."""
    launcher_set: tuple[str, ...] = ()
    """Names that a launcher sets by itself (torchrun: OMP_NUM_THREADS, TORCH_NCCL_ASYNC_ERROR_HANDLING)."""

    path_errors: Mapping[str, str] = field(default_factory=dict)
    """Variable that names a file (NCCL_TOPO_FILE …) → why it cannot be read; an empty text: it can."""

    def in_force(self) -> dict[str, Setting]:
        """Every variable that is set, with its value and origin, configuration files included."""
        settings = {
            name: Setting(name=name, value=value, origin="environment")
            for name, value in self.environment.items()
        }
        return {**settings, **{each.name: each for each in self.settings}}

    def value(self, name: str) -> str | None:
        """The value in force, or None when unset."""
        for setting in self.settings:
            if setting.name == name:
                return setting.value
        return self.environment.get(name)
