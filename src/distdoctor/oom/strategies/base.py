"""What a data-parallel strategy says about one rank: which bytes it holds from when to when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distdoctor.oom.adapters import adapter_share, frozen_parameter_bytes
from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.states import (
    cast_gradient_bytes,
    foreach_temporary_bytes,
    gradient_bytes,
    master_bytes,
    moment_bytes,
    parameter_bytes,
)
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel, OptimizerLoop

if TYPE_CHECKING:
    from distdoctor.oom.activations import Activations


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes of one rank by when they are there. Every amount is in one of the tuples only."""

    resident: tuple[Amount, ...]
    """From initialisation to the end."""
    from_first_backward: tuple[Amount, ...] = ()
    """Allocated in the first backward pass and kept: buckets."""
    from_first_step: tuple[Amount, ...] = ()
    """Allocated in the first optimizer step and kept: moments."""
    gradients: tuple[Amount, ...] = ()
    """Grow through a backward pass; kept from one micro-batch to the next, freed after the step."""
    gradients_come_last: bool = False
    """They appear after the last micro-batch only."""
    waiting_gradients: tuple[Amount, ...] = ()
    """Those of earlier micro-batches, where they are kept otherwise than in the end."""
    at_initialisation: tuple[Amount, ...] = ()
    at_loss: tuple[Amount, ...] = ()
    at_backward: tuple[Amount, ...] = ()
    at_gradients_done: tuple[Amount, ...] = ()
    """At the end of a backward pass, beside `at_backward`."""
    goes_with_backward: tuple[Amount, ...] = ()
    """There when the backward pass begins, freed layer by layer through it."""
    at_step: tuple[Amount, ...] = ()
    step_frees_gradients: bool = False
    """`gradients` are gone when the step begins; what it keeps of them is in `at_step`."""
    host_bytes: float = 0.0
    host_how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One data-parallel strategy."""

    kind: DataParallel
    title: str
    page: str
    """Its page below docs/strategies."""
    states: Callable[[LocalModel, Job], States]
    shards_parameters: bool = False
    shards_gradients: bool = False
    shards_optimizer: bool = False
    over: str = "dp"
    """Over which dimensions of the mesh it shards, in words."""
    # A framework with a model of its own says these as well.
    prepare: Callable[[Job], Job] | None = None
    """What the framework changes about a job: padding of the vocabulary."""
    chunks: Callable[[Job], list[range]] | None = None
    """How it splits layers over virtual stages."""
    activations: Callable[[LocalModel, Job], Activations] | None = None
    """What its layers keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerParameter:
    """Bytes for one parameter, averaged over trainable and frozen ones."""

    parameter: float
    gradient: float
    master: float
    moments: float
    step_temporary: float
    """What the optimizer's loop takes while it steps."""
    cast_gradient: float
    """The gradient in fp32, while fp32 master copies are stepped with 16-bit gradients."""


def per_parameter(job: Job) -> PerParameter:
    """Bytes of each state for one parameter of this job."""
    hidden = job.shape.hidden_size if job.shape is not None else None
    share = adapter_share(job)
    kept = parameter_bytes(job.precision)
    temporary = (
        foreach_temporary_bytes(job.optimizer, job.precision)
        if job.optimizer_loop is OptimizerLoop.FOREACH
        else 0.0
    )
    return PerParameter(
        parameter=kept if share is None else frozen_parameter_bytes(job) + share * kept,
        gradient=gradient_bytes(job.precision, in_fp32=job.grads_in_fp32) * (1 if share is None else share),
        master=master_bytes(job.precision) * (1 if share is None else share),
        moments=moment_bytes(job.optimizer, job.precision, hidden_size=hidden)
        * (1 if share is None else share),
        step_temporary=temporary * (1 if share is None else share),
        cast_gradient=cast_gradient_bytes(job.precision, in_fp32=job.grads_in_fp32)
        * (1 if share is None else share),
    )


def amount(category: Category, per: float, numel: float, *, over: float = 1, what: str) -> Amount:
    """`per` bytes for each of `numel` elements, shared by `over` ranks."""
    shared = f" / {over:g} ranks" if over > 1 else ""
    return Amount(
        category=category, num_bytes=per * numel / over, how=f"{per:.3g} B x {numel:.3g} {what}{shared}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Over how many ranks a state is shared; experts have a group of their own."""

    dense: float
    expert: float

    def of(self, local: LocalModel) -> float:
        """Elements of the slice that one rank keeps."""
        return local.dense / self.dense + local.expert / self.expert


WHOLE = Shares(dense=1, expert=1)


def data_shares(job: Job) -> Shares:
    """The ranks that data parallelism shards over."""
    return Shares(dense=job.mesh.shard_ranks, expert=job.expert_shard_ranks)


def state_amounts(
    category: Category, per: float, local: LocalModel, shares: Shares, *, what: str = "parameters"
) -> tuple[Amount, ...]:
    """`per` bytes for each parameter of the slice: those that every rank has, and experts."""
    each = (
        amount(category, per, local.dense, over=shares.dense, what=what),
        amount(category, per, local.expert, over=shares.expert, what=f"{what} of experts"),
    )
    return tuple(one for one in each if one.num_bytes)


def whole_before_sharding(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """The whole slice on each GPU for a moment, where a model is built before it is sharded: the classic failure
    inside `FSDP(model)`, and of ZeRO-3 without zero.Init."""
    if job.said.meta_init is not False:
        return ()
    per = per_parameter(job).parameter
    return (amount(Category.PARAMETERS, per, local.numel, what="parameters, whole before they are sharded"),)
