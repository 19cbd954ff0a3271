"""From settings to everything that a simulation's report needs: the estimate beside it, and the room on the GPU."""

from __future__ import annotations

from importlib.util import find_spec

from distdoctor.errors import UsageError
from distdoctor.oom.catalog.gpus import Cluster
from distdoctor.oom.estimate import estimate
from distdoctor.oom.job import resolve
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.children import simulate
from distdoctor.oom.simulation.facts import SimulationFacts, capacities_of
from distdoctor.oom.simulation.torchtitan import TitanModel

TIMEOUT_S = 300.0
"""For each kind of rank; a large pipeline takes 20 s. Our own choice."""


def has_torch() -> bool:
    """Whether this interpreter could import torch; it is not imported."""
    return find_spec("torch") is not None


def simulated_facts(
    settings: Settings,
    cluster: Cluster | None,
    *,
    timeout_s: float = TIMEOUT_S,
    all_stages: bool = False,
    fold: bool = True,
    expandable_segments: bool = False,
    checks_itself: bool = True,
    torchtitan: TitanModel | None = None,
) -> SimulationFacts:
    """Simulates in children, with TorchTitan's code where its model is named. Raises UsageError for settings that cannot
    be, and for a model of which only the number of parameters is known."""
    job = resolve(settings)
    if job.shape is None:
        raise UsageError(
            "a simulation needs the model's shape, not its number of parameters alone",
            hint="give --model NAME or config.json, or --layers, --hidden, --heads and --vocab; or `oom estimate`",
        )
    estimated = estimate(job)
    outside = (
        sum(each.low_bytes for each in estimated.outside),
        sum(each.high_bytes for each in estimated.outside),
    )
    return SimulationFacts(
        simulation=simulate(
            job,
            settings,
            timeout_s=timeout_s,
            capacities_bytes=capacities_of(cluster, outside) if cluster is not None else (),
            all_stages=all_stages,
            fold=fold,
            checks_itself=checks_itself,
            torchtitan=torchtitan,
        ),
        title=estimated.title,
        model=job.model.name if torchtitan is None else str(torchtitan),
        job=job,
        estimate=estimated,
        cluster=cluster,
        expandable_segments=expandable_segments,
    )
