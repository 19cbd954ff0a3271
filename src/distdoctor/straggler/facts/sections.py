"""The parts of a training step, and what a part can prove: own time, waiting, or both in one.

In synchronous training every rank's step takes equally long: who is slow has much own time and little waiting,
everybody else the reverse. So the role of a section decides what may be concluded from it.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """What a time contains."""

    OWN = "own work, before any other rank is waited for"
    WAIT = "waiting for other ranks in collectives"
    TRANSFER = "moving data after everybody has arrived"
    COMM = "waiting and moving data in one"
    WALL = "own work and waiting in one: equal on all ranks, names nobody"
    PART = "lies inside other sections: a cause, not a time of its own"


class Section(str, Enum):
    """A part of a step. Values are the names that people see."""

    DATA = "data"
    """Waiting for the data loader."""
    H2D = "h2d"
    """Copies from host to device."""
    FORWARD = "forward"
    """Without waiting in collectives."""
    BACKWARD = "backward"
    """Local: until the last gradient is ready, or without time in collectives."""
    COMPUTE = "compute"
    """Work of the device that is not split into forward and backward. Never beside FORWARD or BACKWARD."""
    UNSPLIT = "own"
    """The step without its collectives, where nothing tells its parts: the host's work too. Beside other parts it holds what they do not."""
    OPTIMIZER = "optimizer"
    CHECKPOINT = "checkpoint"
    OTHER = "other"
    """What no other section holds: logging, Python between the parts."""

    WAIT = "wait"
    """In collectives until the last rank arrives; may hold the transfer too when nothing better is known."""
    TRANSFER = "transfer"
    COMM = "comm"
    """Exposed communication, waiting and transfer not separated."""

    STEP = "step"
    """The whole step by the wall clock."""
    FORWARD_WALL = "forward_wall"
    """Forward with the collectives inside it (FSDP, tensor or pipeline parallel)."""
    BACKWARD_WALL = "backward_wall"

    GC = "gc"
    """Python's garbage collector, inside other sections."""
    IDLE = "idle"
    """The device had nothing to do and waited for no collective: the host is behind."""


_ROLES = {
    Section.WAIT: Role.WAIT,
    Section.TRANSFER: Role.TRANSFER,
    Section.COMM: Role.COMM,
    Section.STEP: Role.WALL,
    Section.FORWARD_WALL: Role.WALL,
    Section.BACKWARD_WALL: Role.WALL,
    Section.GC: Role.PART,
    Section.IDLE: Role.PART,
}


def role_of(section: Section) -> Role:
    """What a time of this section contains."""
    return _ROLES.get(section, Role.OWN)
