"""What a launch configuration says, what it leaves open, and what was seen on the way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from distdoctor.oom.settings import Settings


class ConfigFamily(str, Enum):
    """Whose configuration it is."""

    DEEPSPEED = "DeepSpeed"
    ACCELERATE = "accelerate"
    TORCHTITAN = "TorchTitan"
    MEGATRON = "Megatron-LM"
    HF_TRAINER = "Hugging Face Trainer"
    HF_MODEL = "Hugging Face model config"
    KUBERNETES = "Kubernetes"
    AXOLOTL = "axolotl"
    LLAMA_FACTORY = "LLaMA-Factory"
    NEMO = "NeMo"
    SCRIPT = "launch script"
    """A shell script that starts a program of no family that we know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key as it stands in the file: dotted path, the value as text, and the line (from 1) where known."""

    name: str
    value: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Something that the file determines, in words: `ZeRO-3`, `parameters and optimizer states in host memory`."""

    topic: str
    """`strategy`, `mesh`, `precision`, `batch`, `model`, `optimizer`, `activations`, `launch` …"""
    text: str
    keys: tuple[ConfigKey, ...] = ()
    """The keys that say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Something that the file leaves open, why, and who would know."""

    what: str
    why: str
    """`"auto"`: the trainer decides at run time; `$NUM_NODES` is a template variable; the file names no model."""
    how: str
    """The option of ours, or the step, that supplies it: `--gpus N`, `--model …`."""
    settles: str | None = None
    """The field of `Settings` that it is about: another file of the same job may supply it."""


class Defect(str, Enum):
    """Kinds of contradiction or mistake that a file can show by itself."""

    PLACEHOLDER_ADDRESS = "placeholder address"
    MORE_RANKS_THAN_DEVICES = "more ranks than devices"
    MESH_DOES_NOT_DIVIDE = "degrees do not multiply to the ranks"
    BATCH_DOES_NOT_DIVIDE = "batch sizes do not divide"
    INEFFECTIVE = "setting without effect"
    EMPTY_VALUE = "option without a value"
    UNSET_VARIABLE = "variable that is never set"
    NAME_DISAGREES = "name or comment disagrees with the sizes"
    COSTLY_PRECISION = "precision that costs memory"
    CONFLICT = "settings that exclude each other"
    UNKNOWN_KEY = "key that nobody reads"
    SAME_ON_EVERY_NODE = "value that must differ between nodes"
    HOST_MEMORY = "host memory is the limit"
    SLOW_BY_DESIGN = "setting that slows the job down"


DECIDES_SIZES = frozenset(
    {Defect.MESH_DOES_NOT_DIVIDE, Defect.BATCH_DOES_NOT_DIVIDE, Defect.MORE_RANKS_THAN_DEVICES}
)
"""Kinds after which no sizes can be worked out; a wrong address, for one, changes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDefect:
    """One defect with its words: what is wrong (at most 80 characters), why it matters, what to do."""

    kind: Defect
    title: str
    why: str
    fix: str
    keys: tuple[ConfigKey, ...] = ()
    is_certain: bool = True
    """False: it may be on purpose, or depend on something that the file does not show."""
    stops_job: bool = False
    """The job cannot start, or cannot fit, as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """One configuration, read. `settings` holds only what the file says; nothing in it is a default of ours."""

    path: str
    family: ConfigFamily
    settings: Settings
    statements: tuple[Statement, ...] = ()
    open_points: tuple[Open, ...] = ()
    defects: tuple[ConfigDefect, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know: keys ignored, values taken from a comment, a part that could not be read."""
    implied: tuple[str, ...] = ()
    """Fields of `settings` that follow from a key's absence or from a weak key; they give way to another file's."""
    setting_keys: tuple[tuple[str, ConfigKey], ...] = ()
    """For fields of `settings`, the key that says so."""
    dtype: str | None = None
    """`bf16`, `fp16` or `fp32`: the type of computation, which `Settings.precision` does not tell apart."""
    host_memory_limit_bytes: int | None = None
    """Memory that one node of the job may use on the host (Kubernetes limits.memory)."""
    visible_gpus: ConfigKey | None = None
    """CUDA_VISIBLE_DEVICES, where it lists the GPUs that a node's ranks may use."""
    references: tuple[str, ...] = ()
    """Files that this one names and that decide something: a DeepSpeed JSON, an accelerate YAML."""
    in_hf: bool = False
    """The DeepSpeed file is completed by Hugging Face: it holds `"auto"`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """All configurations of one job, and what they say together."""

    configs: tuple[LaunchConfig, ...]
    joined: Settings
    defects: tuple[ConfigDefect, ...] = ()
    """Of single files and of their combination."""

    def unopened(self) -> tuple[str, ...]:
        """Files that a given one names, that decide something, and that were not given."""
        given = {config.path.rsplit("/", 1)[-1] for config in self.configs}
        named = [each for config in self.configs for each in config.references]
        return tuple(dict.fromkeys(each for each in named if each.rsplit("/", 1)[-1] not in given))

    def still_open(self) -> tuple[tuple[str, Open], ...]:
        """What no file of the job supplies, each with the path of the file that leaves it open."""
        given = {path.rsplit("/", 1)[-1] for path in (config.path for config in self.configs)}
        points: dict[str, tuple[str, Open]] = {}
        for config in self.configs:
            for each in config.open_points:
                if each.settles and getattr(self.joined, each.settles, None) is not None:
                    continue
                if any(name in each.what for name in given):
                    continue
                points.setdefault(each.what, (config.path, each))
        return tuple(points.values())
