"""Which attention kernel Transformer Engine takes for a Megatron-LM job, as far as settings and GPU decide it."""

from __future__ import annotations

from enum import Enum

from distdoctor.oom.catalog.gpus import find_gpu_type
from distdoctor.oom.job import Job
from distdoctor.oom.megatron_details import MegatronDetails
from distdoctor.oom.settings import Attention

_BEFORE_HOPPER = frozenset({"pascal", "volta", "turing", "ampere", "ada"})


class Generation(str, Enum):
    """Of the GPU, as far as kernels ask for it."""

    AMPERE = "Ampere or before"
    HOPPER = "Hopper"
    BLACKWELL = "Blackwell"


class Backend(str, Enum):
    """Transformer Engine's three kinds of attention."""

    FLASH = "FlashAttention"
    FUSED = "FusedAttention"
    """cuDNN."""
    UNFUSED = "UnfusedDotProductAttention"


def generation_of(gpu_type: str | None) -> Generation:
    """By the type's architecture; unknown ones are taken for Hopper."""
    known = find_gpu_type(gpu_type) if gpu_type else None
    architecture = (known.architecture if known else None) or ""
    if architecture in _BEFORE_HOPPER:
        return Generation.AMPERE
    return Generation.BLACKWELL if architecture == "blackwell" else Generation.HOPPER


def backend_of(job: Job) -> Backend:
    """The kernel that was asked for, or that `auto` finds.

    `get_attention_backend` (Transformer Engine, attention/dot_product_attention/utils.py) prefers cuDNN from Hopper
    on, FlashAttention before. In deterministic mode cuDNN is out before Hopper, and FlashAttention before its version
    2.4.1, as in images for Ampere of 2024: then scores are written. On Blackwell cuDNN's deterministic backward needs
    cuDNN 9.18, so FlashAttention is taken there. Scores cannot be written with context parallelism.
    """
    details = job.said.megatron or MegatronDetails()
    if job.attention is Attention.UNFUSED:
        return Backend.UNFUSED
    if details.attention_backend in ("flash", "fused"):
        return Backend(Backend.FLASH if details.attention_backend == "flash" else Backend.FUSED)
    generation = generation_of(job.said.gpu_type)
    if generation is Generation.AMPERE:
        return Backend.UNFUSED if details.is_deterministic and job.mesh.cp == 1 else Backend.FLASH
    if generation is Generation.BLACKWELL and details.is_deterministic:
        return Backend.FLASH
    return Backend.FUSED
