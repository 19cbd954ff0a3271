"""Installed Python distributions by the names of their metadata folders: `torch-2.9.1+cu130.dist-info`.

importlib.metadata opens every file and takes three times as long; names are all that most rules need.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DIST_INFO = re.compile(r"(?P<name>[A-Za-z0-9][\w.]*)-(?P<version>[^-/]+)\.dist-info")
_EGG_INFO = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.+-]*?)-(?P<version>\d[^-/]*)(?:-py\d[\d.]*)?(?:-[\w-]+)?\.egg-info"
)

# What decides about torch and its surroundings; other distributions are not kept.
_OF_INTEREST = re.compile(
    r"(?:torch(?:vision|audio|data|titan|tune|ao|elastic|text|rec|metrics|snapshot|comms|-.*)?|pytorch-.*|nvidia-.*|cuda-.*|"
    r"pynvml|triton.*|deepspeed|accelerate|transformers|lightning|pytorch-lightning|megatron-.*|transformer-engine.*|apex|"
    r"flash-attn.*|xformers|vllm|sglang|bitsandbytes|horovod|mpi4py|numpy|nccl.*|cupy.*|intel-extension-for-pytorch|"
    r"intel-openmp|mkl|amdsmi|ray|nemo-.*|composer|colossalai|jax.*|tensorflow.*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One metadata folder or file."""

    name: str
    """Normalised: lower case, runs of `-_.` as one `-` (PEP 503)."""
    version: str
    folder_name: str


def normalise_name(name: str) -> str:
    """`name` as PEP 503 compares it: "nvidia_nccl_cu12" → "nvidia-nccl-cu12"."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_folder_name(folder_name: str) -> Distribution | None:
    """The distribution that a metadata folder stands for; None for other names."""
    match = _DIST_INFO.fullmatch(folder_name) or _EGG_INFO.fullmatch(folder_name)
    if match is None:
        return None
    return Distribution(name=normalise_name(match["name"]), version=match["version"], folder_name=folder_name)


def is_of_interest(name: str) -> bool:
    """True for a normalised name that a rule or a reader of the report may want."""
    return _OF_INTEREST.fullmatch(name) is not None
