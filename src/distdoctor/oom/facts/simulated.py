"""What a simulation says: the peak of each kind of rank, what it was made of and where it was, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, field

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.log import Phase, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeak:
    """The most that was allocated in one phase of one step."""

    step: int
    phase: Phase
    place: Place
    num_bytes: int
    by_category: dict[Category, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """What the caching allocator would hold, replayed for the simulated order of allocations."""

    expandable_segments: bool
    peak_bytes: int
    allocated_then_bytes: int
    """Allocated at the moment when most was reserved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capped:
    """The same replay with no more than a GPU can give: the allocator first gives cached memory back, then fails."""

    expandable_segments: bool
    capacity_bytes: int
    num_retries: int
    """How often it gave everything free back to the driver, which makes a step slow."""
    failed_at: Place | None = None
    """None: everything was served."""
    requested_bytes: int = 0
    """What could not be served."""
    allocated_bytes: int = 0
    """What was allocated then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePoint:
    """The fullest or the emptiest moment of one stretch of a step."""

    step: int
    phase: Phase
    by_category: dict[Category, int]
    event: int = 0
    """How many allocations and frees came before."""

    @property
    def num_bytes(self) -> int:
        """All categories."""
        return sum(self.by_category.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleBytes:
    """Bytes that were alive at the peak, by the module that they came from."""

    module: str
    category: Category
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSimulation:
    """One kind of rank. Bytes are as CUDA's allocator would count them, in blocks of 512."""

    role: str
    """`every rank`, `pipeline stage 1 of 4`."""
    rank: int
    """The rank that stood for it."""
    num_ranks: int
    peaks: tuple[PhasePeak, ...] = ()
    """In the order of time; initialisation first."""
    reserved: tuple[Reserved, ...] = ()
    capped: tuple[Capped, ...] = ()
    timeline: tuple[TimelinePoint, ...] = ()
    modules: tuple[ModuleBytes, ...] = ()
    """The largest, at the peak of training."""
    how: str = ""
    """`all 32 layers`, `5 of 80 layers, the middle one repeated; 6 gave the same`."""
    notes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    """Those of the notes without which the peak is misread: they stand under the first table."""
    num_events: int = 0
    cpu_seconds: float = 0.0
    max_rss_bytes: int = 0
    torch_version: str = ""

    @property
    def peak(self) -> PhasePeak:
        """The fullest moment of all."""
        return max(self.peaks, key=lambda peak: peak.num_bytes)

    @property
    def second(self) -> PhasePeak | None:
        """The highest phase of another kind."""
        others = [peak for peak in self.peaks if peak.phase is not self.peak.phase]
        return max(others, key=lambda peak: peak.num_bytes, default=None)

    @property
    def reserved_bytes(self) -> int | None:
        """Without expandable segments, which is torch's default."""
        return next((each.peak_bytes for each in self.reserved if not each.expandable_segments), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStates:
    """Parameters of a user's own module, counted, and what goes with them, by formula. No activations: a floor, never
    the need."""

    num_params: int
    num_trainable: int
    by_category: dict[Category, int]
    """Bytes on one rank."""
    how: str

    @property
    def num_bytes(self) -> int:
        """All categories."""
        return sum(self.by_category.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationFailure:
    """Why a kind of rank could not be simulated, in one line; with the op where one was at fault."""

    role: str
    rank: int
    reason: str
    op: str | None = None
    module: str | None = None
    advice: str = ""
    """What would let it run, in one sentence; empty where nothing more is known."""
    states: ModelStates | None = None
    """Model states only, where a user's own module could be built and not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """Whether the simulation of a tiny model equals what the real allocator counted for it on this torch."""

    simulated_bytes: int | None
    measured_bytes: int | None
    reason: str = ""
    """Why there is no comparison."""

    @property
    def agrees(self) -> bool | None:
        """None: not compared."""
        if self.simulated_bytes is None or self.measured_bytes is None:
            return None
        return abs(self.simulated_bytes - self.measured_bytes) <= MAX_DIFFERENCE * self.measured_bytes


# The simulation runs the same code, so only what a kernel allocates inside one op may differ.
MAX_DIFFERENCE = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """All kinds of ranks of one job."""

    roles: tuple[RoleSimulation, ...] = ()
    failures: tuple[SimulationFailure, ...] = ()
    self_check: SelfCheck | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def worst(self) -> RoleSimulation | None:
        """The kind of rank that needs most; None when nothing could be simulated."""
        return max(self.roles, key=lambda role: role.reserved_bytes or role.peak.num_bytes, default=None)
