"""One collective that stays below its expectation, and what else the run knows that may explain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distdoctor.nccl_bench.analysis.curves import Curve
from distdoctor.nccl_bench.analysis.expected import Expectation
from distdoctor.nccl_bench.analysis.machine import Machine
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """What the hypotheses look at."""

    facts: BenchFacts
    curve: Curve
    row: Row
    """The row that was judged: the best of those at or above the plateau's size."""
    expectation: Expectation
    machine: Machine
    num_hosts: int
    has_cliff: bool = False
    siblings: Mapping[str, float] = field(default_factory=dict)
    """Other collectives of the same group, measured busbw over the low end of their expectation."""

    @property
    def measured_gbps(self) -> float:
        """busbw of the judged row, GB/s."""
        return self.row.busbw_gbps or 0.0

    @property
    def ratio(self) -> float:
        """Measured over the low end of the expectation; below 1."""
        return self.measured_gbps / self.expectation.low_gbps

    def setting(self, *names: str) -> str | None:
        """ "NCCL_P2P_DISABLE=1" for the first of `names` that the run set, from its environment or NCCL's log."""
        log = self.facts.nccl_log
        logged = {each.name: each.value for each in log.overrides} if log is not None else {}
        known = {**logged, **dict(self.facts.overrides)}
        return next((f"{name}={known[name]}" for name in names if name in known), None)
