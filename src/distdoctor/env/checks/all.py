"""Every check of a process on its host, in the order in which reports show them. One line a check."""

from __future__ import annotations

from distdoctor.env.checks import shm
from distdoctor.env.checks.base import Check

ENV_CHECKS: tuple[Check, ...] = (
    # Software: torch, CUDA, NCCL
    # Variables and launch
    # GPUs
    # Network
    # Host and container
    shm.CHECK,
)
