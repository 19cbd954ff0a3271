"""An estimate with what it is held against: a GPU, other strategies, DeepSpeed's own formula."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.catalog.gpus import Cluster
from distdoctor.oom.facts.estimate import Estimate
from distdoctor.oom.failed import Failure
from distdoctor.oom.fit import Fit, fit_of
from distdoctor.oom.formulas.deepspeed_estimator import DeepSpeedRow
from distdoctor.oom.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The same job under another strategy; `why_not` where it cannot be."""

    label: str
    page: str
    estimate: Estimate | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateFacts:
    """What the checks and tables of an estimate see."""

    job: Job
    estimate: Estimate
    cluster: Cluster | None = None
    variants: tuple[Variant, ...] = ()
    deepspeed: tuple[DeepSpeedRow, ...] = ()
    failure: Failure | None = None
    doubts: tuple[str, ...] = ()
    """What the launch configurations leave open or say in a way that cannot be used, and nothing else settles."""

    @property
    def fit(self) -> Fit | None:
        """None: no GPU type was given."""
        return fit_of(self.estimate, self.cluster.type) if self.cluster is not None else None
