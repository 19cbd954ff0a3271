"""One GPU, or a model that is only cut by tp, pp or cp: every state of its slice is whole on every rank."""

from __future__ import annotations

from distdoctor.oom.adapters import adapter_share
from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel, Precision
from distdoctor.oom.strategies.base import WHOLE, States, Strategy, amount, per_parameter, state_amounts


def states(local: LocalModel, job: Job) -> States:
    """All states, whole."""
    per = per_parameter(job)

    def whole(category: Category, bytes_each: float) -> tuple[Amount, ...]:
        return state_amounts(category, bytes_each, local, WHOLE)

    return States(
        resident=whole(Category.PARAMETERS, per.parameter) + whole(Category.OPTIMIZER, per.master),
        from_first_step=whole(Category.OPTIMIZER, per.moments),
        gradients=whole(Category.GRADIENTS, per.gradient),
        at_loss=autocast_copies(local, job),
        goes_with_backward=autocast_copies(local, job),
        at_step=whole(Category.TEMPORARIES, per.step_temporary),
    )


def autocast_copies(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """16-bit copies of fp32 weights: autocast makes one for each matrix, and the backward pass needs it again
    and frees it (torch 2.13, eight layers: 1.76 B a parameter at the loss, 1.01 at half of the backward pass, none when
    the last gradient is there).
    Frozen weights under adapters are kept in 16 bit or less; only the adapters are cast."""
    if job.precision is not Precision.MIXED:
        return ()
    share = adapter_share(job)
    weights = local.numel - local.embedding.numel if share is None else local.numel * share
    return (amount(Category.TEMPORARIES, 2, weights, what="weights cast by autocast"),)


STRATEGY = Strategy(kind=DataParallel.NONE, title="one copy, nothing sharded", page="single", states=states)
