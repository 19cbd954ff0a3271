"""The share of a step in which a pipeline rank waits."""

from __future__ import annotations

from distdoctor.oom.job import Job
from distdoctor.oom.settings import Schedule


def bubble_share(job: Job) -> float:
    """(p-1) / (m v + p-1) of the step's time: p stages, m micro-batches, v virtual stages (arXiv 2104.04473, section
    2.2, where it is given over the ideal time). ZB-H1 leaves a third of 1F1B's bubble when forward, backward and weight
    gradients take equally long (arXiv 2401.10241), ZB-V none with
    2 p micro-batches or more; with fewer the one of 1F1B is given, which bounds it."""
    stages = job.mesh.pp
    if stages == 1:
        return 0.0
    work = float(job.num_micro_batches * (job.virtual_stages if job.schedule is Schedule.INTERLEAVED else 1))
    waiting = float(stages - 1)
    if job.schedule is Schedule.ZERO_BUBBLE:
        waiting /= 3
    if job.schedule is Schedule.ZBV:
        waiting = 0.0 if job.num_micro_batches >= 2 * stages else waiting
    return waiting / (work + waiting)
