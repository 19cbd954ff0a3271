"""A simulation with what it is held against: the estimate of the same job, and a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.catalog.gpus import Cluster
from distdoctor.oom.facts.estimate import Estimate, Range
from distdoctor.oom.facts.simulated import Capped, RoleSimulation, Simulation
from distdoctor.oom.fit import Fit, Fits
from distdoctor.oom.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationFacts:
    """What checks and tables of a simulation see. A user's own module has no job and no estimate."""

    simulation: Simulation
    title: str
    """`FSDP2 on dp_shard=8`."""
    model: str
    job: Job | None = None
    estimate: Estimate | None = None
    cluster: Cluster | None = None
    expandable_segments: bool = False
    """Of the two replays the one that counts."""
    outside: tuple[Range, ...] = ()
    """Where there is no estimate: what torch's allocator does not count."""
    fit_options: str | None = None
    """The job as `oom fit` is asked for it; None where that cannot search it."""

    @property
    def outside_bytes(self) -> tuple[float, float]:
        """(least, most) on the GPU that torch's allocator does not count: context, NCCL."""
        outside = self.estimate.outside if self.estimate is not None else self.outside
        return sum(each.low_bytes for each in outside), sum(each.high_bytes for each in outside)

    def reserved_bytes(self, role: RoleSimulation) -> int:
        """What the allocator would hold for one kind of rank."""
        found = [each for each in role.reserved if each.expandable_segments is self.expandable_segments]
        return found[0].peak_bytes if found else role.peak.num_bytes

    def capped(self, role: RoleSimulation) -> tuple[Capped, ...]:
        """The replays of one kind of rank within the GPU, least room first."""
        return tuple(each for each in role.capped if each.expandable_segments is self.expandable_segments)

    @property
    def retries(self) -> int:
        """How often the allocator would give cached memory back to the driver in two steps."""
        return max(
            (each.num_retries for role in self.simulation.roles for each in self.capped(role)), default=0
        )

    @property
    def failing(self) -> tuple[RoleSimulation, Capped] | None:
        """The kind of rank that runs out of memory even with most room, and where; None: none does."""
        found = [(role, each[-1]) for role in self.simulation.roles if (each := self.capped(role))]
        failed = [(role, capped) for role, capped in found if capped.failed_at is not None]
        return max(failed, key=lambda each: each[0].peak.num_bytes, default=None)

    @property
    def fit(self) -> Fit | None:
        """None without a GPU, and where not every kind of rank was simulated: the missing one may be the worst."""
        if self.cluster is None or not self.simulation.roles or self.simulation.failures:
            return None
        reserved = max(self.reserved_bytes(role) for role in self.simulation.roles)
        low, high = (reserved + each for each in self.outside_bytes)
        capacity = float(self.cluster.type.total_bytes)
        answer = Fits.YES if high <= capacity else Fits.TIGHT
        if self.failing is not None:
            answer = Fits.NO
        return Fit(answer=answer, need_low=low, need_high=high, capacity=capacity)


def capacities_of(cluster: Cluster, outside_bytes: tuple[float, float]) -> tuple[int, int]:
    """(least, most) that torch's allocator can have on this GPU."""
    low, high = outside_bytes
    return int(cluster.type.total_bytes - high), int(cluster.type.total_bytes - low)
