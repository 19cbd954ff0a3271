"""A search with what it started from: the job, the card, a failure that happened, the files that configure the job."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.catalog.gpus import Cluster
from distdoctor.oom.facts.launch import LaunchConfig
from distdoctor.oom.failed import Failure
from distdoctor.oom.job import Job
from distdoctor.oom.search.card import Measured
from distdoctor.oom.search.limits import Limit, Limited
from distdoctor.oom.search.proposal import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFacts:
    """What the checks and tables of `oom fit` see."""

    cluster: Cluster | None
    """None: neither an option nor a message tells the card."""
    job: Job | None = None
    """As it was said; None: only its failure is known."""
    outcome: Outcome | None = None
    """None: the job's settings are not known, only its failure."""
    failure: Failure | None = None
    measured: Measured | None = None
    limited: Limited | None = None
    """What `--find-limit` asked for; None: for what makes the job fit."""
    limits: tuple[Limit, ...] = ()
    """What was asked for; of a job that fits, how large it could be made."""
    configs: tuple[LaunchConfig, ...] = ()
    doubts: tuple[str, ...] = ()
    was_simulated: bool = False
    """Whether proposals were given to a simulation."""
