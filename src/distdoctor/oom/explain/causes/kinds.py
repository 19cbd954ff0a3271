"""The causes, and an event with its cause."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from distdoctor.oom.explain.numbers import Account
from distdoctor.oom.facts.events import OomEvent
from distdoctor.report.model import Confidence


class Cause(str, Enum):
    """Cause classes of docs/report.md, `class` or `class:detail`."""

    CAPACITY = "capacity"
    LOGITS = "capacity:logits"
    ACTIVATIONS = "capacity:activations"
    PARAMETERS = "capacity:parameters"
    STATES = "capacity:optimizer-state"
    LEAK = "capacity:leak"
    KV_CACHE = "capacity:kv-cache"
    WORKSPACE = "capacity:cublas-workspace"
    FRAGMENTATION = "fragmentation"
    OTHER_PROCESS = "other-process"
    PEER_RANKS = "other-process:peer-ranks"
    PROCESS_CAP = "process-cap"
    REQUEST_TOO_LARGE = "single-request>capacity"
    WRONG_CAPACITY = "wrong-visible-capacity"
    SHARDING_INEFFECTIVE = "sharding-ineffective"
    NOT_SHARDED = "not-sharded:parameters"
    OPTIMIZER = "optimizer-step"
    OPTIMIZER_FOREACH = "optimizer-step:foreach"
    NCCL = "nccl-buffers"
    NON_TORCH = "non-torch-or-async-pool"
    OTHER_ALLOCATIONS = "other-allocations"
    HOST_RAM = "host-ram"
    HOST_PINNED = "host-pinned"
    HOST_SHM = "host:shm_full"
    DRIVER_LIMIT = "not-capacity:driver-limit"
    CORRUPT_SIZE = "secondary:corrupt-size"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One event with its account and its cause."""

    event: OomEvent
    account: Account
    cause: Cause
    confidence: Confidence
    why: str
    """The deciding comparison in words."""
    alternative: Cause | None = None
    """What it may be instead, where the message does not decide."""


# (cause, how sure, the deciding comparison, what it may be instead)
Verdict = tuple[Cause, Confidence, str] | tuple[Cause, Confidence, str, Cause]
