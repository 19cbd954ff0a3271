"""What an estimate says: bytes by category at each moment of a step, for each kind of rank."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Category(str, Enum):
    """What the bytes are for. Every byte of an estimate is in exactly one category."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer states"
    """Moments, and the fp32 master copy where there is one."""
    GATHERED = "gathered parameters"
    """Parameters (and their gradients) that are whole for a moment: FSDP, ZeRO-3."""
    ACTIVATIONS = "activations"
    LOGITS = "logits and loss"
    COMMUNICATION = "communication buffers"
    TEMPORARIES = "temporaries"
    INPUTS = "inputs"
    """Tokens and labels; too few to be estimated."""


STATES = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER)
"""What the ZeRO paper calls model states."""


class Moment(str, Enum):
    """When memory can be at its peak."""

    INITIALISATION = "initialisation"
    LOSS = "loss"
    """Forward is over, all activations are kept, and the loss begins the backward pass."""
    BACKWARD = "backward"
    """The first layer's turn in the backward pass: activations are kept, gathered parameters and gradients come."""
    GRADIENTS_DONE = "end of backward"
    OPTIMIZER_STEP = "optimizer step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Bytes on one rank, in which category, and how they come about (`4 B x 8.03e9 parameters / 8 ranks`)."""

    category: Category
    num_bytes: float
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentBytes:
    """All that is allocated at one moment of one step (0 for initialisation, then 1 and 2)."""

    moment: Moment
    step: int
    amounts: tuple[Amount, ...]

    @property
    def num_bytes(self) -> float:
        """Allocated bytes, as `torch.cuda.memory_allocated` would count them."""
        return sum(amount.num_bytes for amount in self.amounts)

    def of(self, category: Category) -> float:
        """Bytes of one category."""
        return sum(amount.num_bytes for amount in self.amounts if amount.category is category)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bytes that are known only as a range, where from, and why."""

    what: str
    low_bytes: float
    high_bytes: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Over which ranks one parameter group's states are sharded, in words; `whole` is on every rank."""

    group: str
    numel: float
    """Elements of the whole model in this group."""
    parameters: str
    gradients: str
    optimizer: str
    dtensor: str
    """DTensor placements of the parameters: `Shard(0) on dp_shard, Shard(1) on tp`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEstimate:
    """One kind of rank: all ranks of a pipeline stage hold the same number of bytes."""

    role: str
    """`every rank`, `pipeline stage 1 of 4 (first)`."""
    stage: int
    num_ranks: int
    local_params: float
    """Parameters of this rank's slice before data-parallel sharding."""
    moments: tuple[MomentBytes, ...]
    host_bytes: float = 0.0
    """Host memory of one rank for offloaded states."""
    host_how: str = ""

    @property
    def peak(self) -> MomentBytes:
        """The worst moment."""
        return max(self.moments, key=lambda each: each.num_bytes)

    def peak_of_step(self, step: int) -> MomentBytes:
        """The worst moment of one step."""
        return max((each for each in self.moments if each.step == step), key=lambda each: each.num_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimate of one job."""

    title: str
    """`FSDP2 on dp_shard=8`."""
    roles: tuple[RoleEstimate, ...]
    outside: tuple[Range, ...] = ()
    """On the GPU, not counted by torch's allocator: context, NCCL."""
    slack: Range | None = None
    """Reserved by the allocator above what is allocated."""
    placements: tuple[Placement, ...] = ()
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    """What the formulas do not know of this job, so that it may need more."""
    is_whole: bool = True
    """False: only model states are in it, for the model's shape is not known."""

    @property
    def worst(self) -> RoleEstimate:
        """The rank that runs out first."""
        return max(self.roles, key=lambda role: role.peak.num_bytes)

    @property
    def need_bytes(self) -> tuple[float, float]:
        """(least, most) that the worst rank's GPU must hold: allocated, reserved slack, and what is outside torch."""
        peak = self.worst.peak.num_bytes
        low = (
            peak + sum(each.low_bytes for each in self.outside) + (self.slack.low_bytes if self.slack else 0)
        )
        high = (
            peak
            + sum(each.high_bytes for each in self.outside)
            + (self.slack.high_bytes if self.slack else 0)
        )
        return low, high
