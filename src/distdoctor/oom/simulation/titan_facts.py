"""TorchTitan's model simulated, and ours for the same job beside it."""

from __future__ import annotations

from distdoctor.oom.catalog.gpus import Cluster
from distdoctor.oom.facts.simulated import RoleSimulation
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.oom.simulation.run import simulated_facts
from distdoctor.oom.simulation.torchtitan import TitanModel, titan_settings
from distdoctor.report.model import Column, Scalar, Table
from distdoctor.units import GIB


def titan_facts(
    model: TitanModel,
    said: Settings,
    cluster: Cluster | None,
    *,
    timeout_s: float,
    all_stages: bool = False,
    fold: bool = True,
    expandable_segments: bool = False,
) -> tuple[SimulationFacts, Table | None]:
    """The simulation, and the table beside it; None where one of the two could not be simulated. Raises UsageError."""
    settings = titan_settings(model, said)
    theirs = simulated_facts(
        settings,
        cluster,
        timeout_s=timeout_s,
        all_stages=all_stages,
        fold=fold,
        expandable_segments=expandable_segments,
        torchtitan=model,
    )
    if not theirs.simulation.roles:
        return theirs, None
    ours = simulated_facts(
        settings,
        cluster,
        timeout_s=timeout_s,
        all_stages=all_stages,
        fold=fold,
        expandable_segments=expandable_segments,
        checks_itself=False,
    )
    return theirs, beside(theirs, ours)


def beside(theirs: SimulationFacts, ours: SimulationFacts) -> Table | None:
    """Peaks of each kind of rank, allocated and reserved; None where none was simulated both ways."""
    own = {role.rank: role for role in ours.simulation.roles}
    pairs = [(role, own[role.rank]) for role in theirs.simulation.roles if role.rank in own]
    rows = [_row(theirs, role, ours, other) for role, other in pairs]
    if not rows:
        return None
    return Table(
        name="oom-torchtitan",
        title="TorchTitan's model beside ours, peaks in GiB",
        columns=(
            Column(name="rank"),
            *(
                Column(name=name, align="right")
                for name in (
                    "allocated",
                    "ours",
                    "ours differs",
                    "reserved",
                    "ours reserved",
                    "ours differs ",
                )
            ),
        ),
        rows=tuple(rows),
        note="the same job by both programs, eager, under the same tracker",
    )


def _row(
    theirs: SimulationFacts, role: RoleSimulation, ours: SimulationFacts, other: RoleSimulation
) -> tuple[Scalar, ...]:
    allocated = (role.peak.num_bytes, other.peak.num_bytes)
    reserved = (theirs.reserved_bytes(role), ours.reserved_bytes(other))
    return (role.role, *_pair(*allocated), *_pair(*reserved))


def _pair(theirs: int, ours: int) -> tuple[Scalar, ...]:
    return round(theirs / GIB, 1), round(ours / GIB, 1), f"{100 * (ours / theirs - 1):+.1f} %"
