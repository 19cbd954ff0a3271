"""What one rank of a pipeline stage holds of the model before data parallelism shards it further."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.formulas.pipeline import layers_of_stages, rank_of_stage
from distdoctor.oom.job import Job
from distdoctor.oom.parameters import (
    ParameterGroup,
    Split,
    embedding_groups,
    layer_groups,
    output_groups,
    prediction_groups,
)
from distdoctor.oom.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is gathered and freed at once: the embedding, one layer, the output. Elements on one rank of tp and ep."""

    dense: float
    expert: float = 0.0

    @property
    def numel(self) -> float:
        """Both kinds."""
        return self.dense + self.expert


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """One pipeline rank's slice, cut by tp and ep. Elements."""

    stage: int
    virtual_stages: tuple[range, ...]
    """Layers of each chunk that this rank holds."""
    has_embedding: bool
    has_output: bool
    embedding: Unit
    output: Unit
    layers: tuple[Unit, ...]
    """One for each layer of this rank."""
    expert_layers: tuple[bool, ...]
    prediction: Unit
    knows_units: bool = True
    """False: how the parameters are divided into layers is not known."""

    @property
    def dense(self) -> float:
        """Elements that all data-parallel ranks hold alike."""
        return (
            self.embedding.dense
            + self.output.dense
            + self.prediction.dense
            + sum(unit.dense for unit in self.layers)
        )

    @property
    def expert(self) -> float:
        """Elements of experts, which only the ranks of an expert's own group hold alike."""
        return self.prediction.expert + sum(unit.expert for unit in self.layers)

    @property
    def numel(self) -> float:
        """All elements of the slice."""
        return self.dense + self.expert

    @property
    def largest_layer(self) -> Unit:
        """The largest layer; nothing where layers are not known."""
        if not self.knows_units:
            return Unit(dense=0)
        return max(self.layers, key=lambda unit: unit.numel, default=Unit(dense=0))

    @property
    def largest_unit(self) -> Unit:
        """The largest thing that is gathered at once."""
        return max((self.embedding, self.output, self.largest_layer), key=lambda unit: unit.numel)


def local_models(job: Job, chunks: list[range] | None = None) -> tuple[LocalModel, ...]:
    """One slice for each pipeline rank. `chunks`: layers of each virtual stage; None: spread evenly."""
    if job.shape is None:
        share = job.num_params / (job.mesh.tp * job.mesh.pp)
        return tuple(_shapeless(stage, share, job.mesh.pp) for stage in range(job.mesh.pp))
    if chunks is None:
        chunks = layers_of_stages(job.shape.num_layers, job.mesh.pp * job.virtual_stages)
    last = len(chunks) - 1
    slices = []
    for rank in range(job.mesh.pp):
        mine = [
            (number, chunk)
            for number, chunk in enumerate(chunks)
            if rank_of_stage(number, job.mesh.pp, job.schedule) == rank
        ]
        slices.append(
            _slice(
                job.shape,
                job,
                rank,
                tuple(chunk for _, chunk in mine),
                has_embedding=any(number == 0 for number, _ in mine),
                has_output=any(number == last for number, _ in mine),
            )
        )
    return tuple(slices)


def unit_of(groups: tuple[ParameterGroup, ...], job: Job) -> Unit:
    """Elements of `groups` on one rank."""
    mesh, etp = job.mesh, job.expert_width_ranks
    return Unit(
        dense=sum(group.local_numel(tp=mesh.tp) for group in groups if not group.is_expert),
        expert=sum(group.local_numel(tp=mesh.tp, ep=mesh.ep, etp=etp) for group in groups if group.is_expert),
    )


def all_groups(shape: ModelShape) -> tuple[tuple[ParameterGroup, int], ...]:
    """Every group of the model and how often it occurs."""
    num_expert = sum(shape.has_experts(layer) for layer in range(shape.num_layers))
    num_dense = shape.num_layers - num_expert
    counted = [(group, 1) for group in embedding_groups(shape)]
    if num_dense:
        counted += [(group, num_dense) for group in layer_groups(shape, with_experts=False)]
    if num_expert:
        counted += [(group, num_expert) for group in layer_groups(shape, with_experts=True)]
    counted += [(group, shape.num_mtp_layers) for group in prediction_groups(shape) if shape.num_mtp_layers]
    counted += [(group, 1) for group in output_groups(shape)]
    merged: dict[tuple[str, Split, bool], tuple[ParameterGroup, int]] = {}
    totals: dict[tuple[str, Split, bool], int] = {}
    for group, count in counted:
        key = (group.name, group.split, group.is_expert)
        totals[key] = totals.get(key, 0) + group.numel * count
        merged.setdefault(key, (group, count))
    return tuple((group, totals[key]) for key, (group, _) in merged.items())


def _slice(
    shape: ModelShape,
    job: Job,
    stage: int,
    chunks: tuple[range, ...],
    *,
    has_embedding: bool,
    has_output: bool,
) -> LocalModel:
    by_kind = {
        kind: unit_of(layer_groups(shape, with_experts=kind), job)
        for kind in {shape.has_experts(layer) for chunk in chunks for layer in chunk}
    }
    kinds = tuple(shape.has_experts(layer) for chunk in chunks for layer in chunk)
    nothing = Unit(dense=0.0)
    # A tied output on another stage than its embedding is a copy of its own.
    copies = shape.ties_embeddings and has_output and not has_embedding
    prediction = nothing
    if has_output and shape.num_mtp_layers:
        one = unit_of(prediction_groups(shape), job)
        prediction = Unit(dense=one.dense * shape.num_mtp_layers, expert=one.expert * shape.num_mtp_layers)
    return LocalModel(
        stage=stage,
        virtual_stages=chunks,
        has_embedding=has_embedding,
        has_output=has_output,
        embedding=unit_of(embedding_groups(shape), job) if has_embedding else nothing,
        output=unit_of(output_groups(shape, holds_tied_copy=copies), job) if has_output else nothing,
        layers=tuple(by_kind[kind] for kind in kinds),
        expert_layers=kinds,
        prediction=prediction,
    )


def _shapeless(stage: int, numel: float, num_stages: int) -> LocalModel:
    """A slice of a model of which only the number of parameters is known."""
    return LocalModel(
        stage=stage,
        virtual_stages=(),
        has_embedding=stage == 0,
        has_output=stage == num_stages - 1,
        embedding=Unit(dense=0.0),
        output=Unit(dense=0.0),
        layers=(Unit(dense=numel),),
        expert_layers=(False,),
        prediction=Unit(dense=0.0),
        knows_units=False,
    )
