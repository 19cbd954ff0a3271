"""What a child of a simulation is asked, and what it answers: JSON of our own types."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from distdoctor.oom.facts.simulated import ModelStates, RoleSimulation, SelfCheck, SimulationFailure
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.roles import Role
from distdoctor.oom.simulation.torchtitan import TitanModel


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModule:
    """A user's own module: `function` of `module` gives an nn.Module, and perhaps its inputs."""

    module: str
    function: str
    inputs: tuple[str, ...] = ()
    """`8x1024:int64`: shapes and types of the inputs, or one `pkg.data:make_batch`, where the function does not give
    them."""
    folder: str = "."
    """Is put in front of the import path."""
    settings: Settings = field(default_factory=Settings)
    """Strategy, ranks, optimizer, precision, checkpointing, micro-batches; its model is not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One child's work: a kind of rank of a job, or the self-check where there is no role."""

    settings: Settings | None = None
    role: Role | None = None
    fold: bool = True
    capacities_bytes: tuple[int, ...] = ()
    """What the allocator can have at most, where a GPU was named."""
    own_module: OwnModule | None = None
    torchtitan: TitanModel | None = None
    """Whose code does the job; None: ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Exactly one of these is there."""

    role: RoleSimulation | None = None
    failure: SimulationFailure | None = None
    self_check: SelfCheck | None = None
    states: ModelStates | None = None
    """Said on the way, before a user's own module runs; another answer follows unless the child dies."""


def encode_question(question: Question) -> str:
    """For the child's command line."""
    return msgspec.json.encode(question).decode()


def decode_question(text: str) -> Question:
    """As the child reads it; it trusts its parent."""
    return msgspec.json.decode(text, type=Question)


def encode_answer(answer: Answer) -> bytes:
    """For the pipe back: one line."""
    return msgspec.json.encode(answer) + b"\n"


def decode_answer(text: str) -> Answer | None:
    """The last answer. None where there is none: the child died while it wrote, or never wrote."""
    for line in reversed(text.splitlines()):
        try:
            return msgspec.json.decode(line, type=Answer)
        except (msgspec.DecodeError, ValueError):
            continue
    return None
