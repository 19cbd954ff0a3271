"""DistributedDataParallel: every rank holds everything; gradients travel in buckets during the backward pass."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.buffers import ddp_bucket_bytes
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel
from distdoctor.oom.strategies import single
from distdoctor.oom.strategies.base import States, Strategy


def states(local: LocalModel, job: Job) -> States:
    """The states of one copy, and the buckets, which are there from the constructor on (measured with torch 2.13:
    1.00 x the parameters). With gradient_as_bucket_view the gradients live in them; those of micro-batches before the
    last one do not, for `no_sync` passes the buckets by and `zero_grad` has dropped the views."""
    base = single.states(local, job)
    as_view = bool(job.said.gradient_as_bucket_view)
    if as_view:
        apart = base.gradients if job.num_micro_batches > 1 else ()
        return replace(
            base,
            resident=base.resident + base.gradients,
            gradients=(),
            at_loss=base.at_loss + apart,
            goes_with_backward=base.goes_with_backward + apart,
        )
    gradient_total = sum(each.num_bytes for each in base.gradients)
    bucket = Amount(
        category=Category.COMMUNICATION,
        num_bytes=ddp_bucket_bytes(gradient_total, as_view=False),
        how="DDP's buckets: a second copy of the gradients (gradient_as_bucket_view=False)",
    )
    return replace(base, resident=(*base.resident, bucket))


STRATEGY = Strategy(kind=DataParallel.DDP, title="DDP", page="ddp", states=states)
