"""Which parameters are sharded over what, in words: for people who read DTensor's placements for the first time."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Placement
from distdoctor.oom.job import Job
from distdoctor.oom.local import all_groups
from distdoctor.oom.parameters import ParameterGroup, Split
from distdoctor.oom.strategies.base import Strategy

_CUT = {
    Split.COLUMNS: "columns",
    Split.ROWS: "rows",
    Split.VOCABULARY: "vocabulary",
    Split.REPLICATED: "",
}
# Of a weight stored as (out, in); an embedding is (words, hidden).
_SHARD = {Split.COLUMNS: "Shard(0)", Split.ROWS: "Shard(1)", Split.VOCABULARY: "Shard(0)"}
# Of stacked experts, (experts, out, in).
_SHARD_OF_EXPERTS = {Split.COLUMNS: "Shard(1)", Split.ROWS: "Shard(2)"}


def placements_of(job: Job, strategy: Strategy) -> tuple[Placement, ...]:
    """One line for each group of parameters."""
    if job.shape is None:
        whole = ParameterGroup(name="all parameters", numel=job.num_params)
        return (_placement(whole, job.num_params, job, strategy),)
    return tuple(_placement(group, total, job, strategy) for group, total in all_groups(job.shape))


def _placement(group: ParameterGroup, total: float, job: Job, strategy: Strategy) -> Placement:
    model_axes = _model_axes(group, job)

    def words(shards: bool) -> str:
        axes = [*model_axes, *(_data_axes(group, job) if shards else [])]
        return " x ".join(axes) or "whole"

    return Placement(
        group=group.name,
        numel=total,
        parameters=words(strategy.shards_parameters),
        gradients=words(strategy.shards_gradients),
        optimizer=words(strategy.shards_optimizer),
        dtensor=_dtensor(group, job, strategy),
    )


def _model_axes(group: ParameterGroup, job: Job) -> list[str]:
    """Dimensions that cut the model itself."""
    mesh, axes = job.mesh, []
    if mesh.pp > 1:
        axes.append(f"pp {mesh.pp} (layers)")
    if group.is_expert:
        if mesh.ep > 1:
            axes.append(f"ep {mesh.ep} (experts)")
        if job.expert_width_ranks > 1 and group.split is not Split.REPLICATED:
            name = "etp" if mesh.etp > 1 else "tp"
            axes.append(f"{name} {job.expert_width_ranks} ({_CUT[group.split]})")
    elif mesh.tp > 1 and group.split is not Split.REPLICATED:
        axes.append(f"tp {mesh.tp} ({_CUT[group.split]})")
    return axes


def _data_axes(group: ParameterGroup, job: Job) -> list[str]:
    """Dimensions over which data parallelism shards."""
    if group.is_expert and job.mesh.ep * job.mesh.etp > 1:
        size = job.expert_shard_ranks
        return [f"shards of an expert {size}"] if size > 1 else []
    axes = []
    if job.mesh.dp_shard > 1:
        axes.append(f"dp_shard {job.mesh.dp_shard}")
    if job.mesh.cp > 1:
        axes.append(f"cp {job.mesh.cp}")
    return axes


def _dtensor(group: ParameterGroup, job: Job, strategy: Strategy) -> str:
    mesh, parts = job.mesh, []
    if mesh.dp_replicate > 1:
        parts.append("Replicate on dp_replicate")
    if mesh.shard_ranks > 1:
        name = "dp_shard x cp" if mesh.cp > 1 else "dp_shard"
        parts.append(f"{'Shard(0)' if strategy.shards_parameters else 'Replicate'} on {name}")
    if group.is_expert:
        if mesh.ep > 1:
            parts.append("Shard(0) on ep")
        elif mesh.etp == 1 and job.expert_width_ranks > 1:
            parts.append(f"{_SHARD_OF_EXPERTS.get(group.split, 'Replicate')} on tp")
    elif mesh.tp > 1:
        parts.append(f"{_SHARD.get(group.split, 'Replicate')} on tp")
    return ", ".join(parts) or "not distributed"
