"""The log of one rank's memory: which storage grew or shrank, where the program was at that moment, what it was for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from distdoctor.oom.facts.estimate import Category


class Phase(str, Enum):
    """What a training program is doing."""

    INITIALISATION = "initialisation"
    DATA = "data"
    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    RECOMPUTATION = "recomputation"
    """Forward once more, inside the backward pass: activation checkpointing."""
    OPTIMIZER_STEP = "optimizer step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the program was: one step (0 is initialisation), one micro-batch (from 0), one module, one op."""

    step: int
    phase: Phase
    micro_batch: int | None = None
    module: str = ""
    """Dotted name of the innermost module; in a backward pass that of the module whose gradient is computed."""
    layer: int | None = None
    """Position, from 0, among this rank's layers; None: not inside one of the repeated layers."""
    op: str = ""
    """`aten.mm.default`; `free` where a storage died."""


class Origin(str, Enum):
    """Whose code asked for the bytes."""

    PROGRAM = "program"
    COLLECTIVE = "collective"
    """Buffers of collectives: torch's distributed package, FSDP2's gather and reduce."""
    UNSHARDED = "unsharded"
    """Parameters that FSDP2 or ZeRO-3 made whole, and their gradients."""
    OPTIMIZER = "optimizer"


@dataclass(slots=True, kw_only=True)
class Storage:
    """One storage. What it is for is often known only after it was born: a tensor that becomes a parameter's `.grad`
    is a gradient from its first byte on."""

    label: Category | None = None
    """What somebody said that it is; None: memory/categories.py decides by where it lived."""
    origin: Origin = Origin.PROGRAM
    stream: int = 0
    """The stream that was current at its birth: 0 for the default one. The allocator keeps a pool for each."""
    layer: int | None = None
    """Of a parameter, gradient or optimizer state: the layer that it belongs to."""
    name: str = ""
    """Of a parameter: its dotted name."""


@dataclass(frozen=True, slots=True)
class Event:
    """From now on `storage` (an index into the log's storages) has `num_bytes`; 0: it died."""

    storage: int
    num_bytes: int
    place: int
    """An index into the log's places."""


@dataclass(slots=True, kw_only=True)
class MemoryLog:
    """All of one rank, in the order in which it happened. Bytes are as the storage has them, not rounded."""

    places: list[Place] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
