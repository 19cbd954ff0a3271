"""What was reproduced: for each combination of strategies what each rank measured, and how it ended.

The structs are also what ranks tell one another, as JSON, from the moment there is something to tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec

from distdoctor.oom.facts.estimate import Estimate, RoleEstimate
from distdoctor.oom.job import Job
from distdoctor.ranks.blame import tells_of_a_peer
from distdoctor.ranks.lost import Stopped
from distdoctor.ranks.places import Place


class Outcome(str, Enum):
    """How a combination ended on one rank."""

    UNFINISHED = "unfinished"
    """Nothing was told of its end: it was still running, or lost."""
    DONE = "ran"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"
    CANNOT_RUN = "cannot run"
    """This torch, this device or this program cannot run it."""


class At(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a program was. Steps count from 1; 0 is initialisation."""

    step: int = 0
    phase: str = ""
    micro_batch: int | None = None
    module: str = ""
    layer: int | None = None
    op: str = ""

    def words(self) -> str:
        """`step 2, backward, micro-batch 1, in layers.3.attention (aten.mm.default)`."""
        parts = [f"step {self.step}" if self.step else "", self.phase]
        parts.append(f"micro-batch {self.micro_batch}" if self.micro_batch is not None else "")
        words = ", ".join(part for part in parts if part)
        if self.module:
            words += f", in {self.module}"
        return f"{words} ({self.op})" if self.op else words


class PeakTold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that a rank's tensors took."""

    num_bytes: int
    at: At
    by_category: dict[str, int]


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rank's allocation that failed."""

    at: At
    message: str
    """torch's words, one line."""
    enforced_by: str
    """Who refused: the allocator of a device, or our own count."""
    requested_bytes: int | None = None
    live_bytes: int | None = None
    """Of tensors, when it was refused."""
    limit_bytes: int | None = None
    by_category: dict[str, int] = {}
    snapshot: str | None = None
    """Path, on the rank's host, of what was allocated then."""
    no_snapshot: str = ""
    """Why there is none though it was asked for."""


class RankPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rank's part in one combination, so far."""

    rank: int
    outcome: Outcome = Outcome.UNFINISHED
    made_by: str = ""
    """Whose code partitioned states, where it was not torch's."""
    at: At = At()
    """Where its program was when it last told."""
    steps_done: int = 0
    peak: PeakTold | None = None
    rss_before_bytes: int | None = None
    """Resident memory of the process before the program was built: Python, torch, what is cached."""
    rss_peak_bytes: int | None = None
    no_rss: str = ""
    """Why the peak of resident memory is not known."""
    allocated_peak_bytes: int | None = None
    """`torch.cuda.max_memory_allocated`; None on the CPU, which does not count."""
    reserved_peak_bytes: int | None = None
    losses: tuple[float | None, ...] = ()
    step_s: tuple[float, ...] = ()
    """With the tracker on, which slows every op."""
    error: str = ""
    out_of_memory: OutOfMemory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """One combination."""

    name: str
    job: Job
    estimate: Estimate | None = None
    """By formula, for the same settings."""
    parts: tuple[RankPart, ...] = ()
    """Of ranks that have told anything, by rank."""
    not_begun: str = ""
    """Why it was not run at all; empty: it was begun."""

    def role_of(self, rank: int) -> RoleEstimate | None:
        """What the formula says of a rank: pp is the outermost dimension of the mesh."""
        if self.estimate is None:
            return None
        stage = rank // max(1, self.job.mesh.num_ranks // self.job.mesh.pp)
        return next((role for role in self.estimate.roles if role.stage == stage), None)

    @property
    def own_failures(self) -> tuple[RankPart, ...]:
        """Ranks whose program raised an error of their own, not one that tells of a peer that went away."""
        failed = (part for part in self.parts if part.outcome is Outcome.FAILED)
        return tuple(part for part in failed if not tells_of_a_peer(part.error))

    @property
    def outcome(self) -> Outcome:
        """The worst of its ranks: out of memory before failed; a rank that only lost its peers is unfinished."""
        outcomes = {part.outcome for part in self.parts}
        if Outcome.OUT_OF_MEMORY in outcomes:
            return Outcome.OUT_OF_MEMORY
        if self.own_failures:
            return Outcome.FAILED
        if Outcome.CANNOT_RUN in outcomes:
            return Outcome.CANNOT_RUN
        complete = len(self.parts) == self.job.mesh.num_ranks and outcomes == {Outcome.DONE}
        return Outcome.DONE if complete else Outcome.UNFINISHED

    @property
    def worst(self) -> RankPart | None:
        """The rank whose tensors took most; None where none was measured."""
        measured = [part for part in self.parts if part.peak is not None]
        return max(measured, key=_peak_bytes, default=None)


def _peak_bytes(part: RankPart) -> int:
    return part.peak.num_bytes if part.peak is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproduceFacts:
    """A run, complete or cut short."""

    num_ranks: int
    steps: int
    combinations: tuple[Reproduced, ...]
    places: tuple[Place, ...] = ()
    """By rank; empty where the run ended before ranks had told."""
    backend: str | None = None
    memory_limit_bytes: int | None = None
    torch: str | None = None
    stopped: Stopped | None = None
    shares_gpus: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether tensors were on GPUs."""
        return any(place.device != "cpu" for place in self.places)

    def place_of(self, rank: int) -> Place | None:
        """Where a rank sits, if it has told."""
        return next((place for place in self.places if place.rank == rank), None)
