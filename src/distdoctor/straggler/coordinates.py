"""Where ranks are in the mesh, and on which host, as the command line says it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distdoctor.errors import UsageError
from distdoctor.straggler.facts.collectives import CollectiveTimings
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Reading
from distdoctor.straggler.facts.steps import StepTimings

# Other names that people and frameworks give to dimensions. "model" is none of them: with some it is tensor parallel,
# with others pipeline.
_OTHER_NAMES = {
    "stage": "pp", "pipe": "pp", "pipeline": "pp", "pp_stage": "pp", "pipeline_stage": "pp", "pipeline_parallel": "pp",
    "tensor": "tp", "tensor_parallel": "tp", "context": "cp", "context_parallel": "cp", "seq": "sp", "sequence": "sp",
    "sequence_parallel": "sp", "expert": "ep", "experts": "ep", "expert_parallel": "ep", "data": "dp", "batch": "dp",
    "data_parallel": "dp", "replicate": "dp_replicate", "replica": "dp_replicate", "shard": "dp_shard",
}  # fmt: skip

# Dimensions that frameworks have; another name is a slip, and would make every rank one of its own kind.
KNOWN_DIMENSIONS = (
    "pp", "dp", "tp", "cp", "ep", "etp", "sp", "dsp", "vpp", "dp_replicate", "dp_shard", "fsdp", "ddp", "hsdp", "model",
    *_OTHER_NAMES,
)  # fmt: skip

_DIMENSION = re.compile(r"([A-Za-z_]\w{0,31})\s*=\s*(\d{1,7})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the command line says of ranks."""

    mesh: tuple[tuple[str, int], ...] = ()
    """Dimensions, outermost first, as a DeviceMesh is built: ("pp", 4), ("dp", 8), ("tp", 2)."""
    gpus_per_host: int | None = None
    num_gpus: int | None = None
    """That the job holds: it may have more ranks than are in the evidence."""


def dimension_of(name: str) -> str | None:
    """The dimension that somebody calls `name`, "pp" of "stage"; None when it is no name of one."""
    lower = name.lower()
    return _OTHER_NAMES.get(lower, lower) if lower in KNOWN_DIMENSIONS else None


def parse_mesh(text: str) -> tuple[tuple[str, int], ...]:
    """ "pp=4,dp=8,tp=2": dimensions, outermost first. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    matches = [_DIMENSION.fullmatch(part) for part in parts]
    if not all(matches):
        raise UsageError(
            f"--mesh `{text}` is no mesh", hint="write the dimensions, outermost first: pp=4,dp=8,tp=2"
        )
    told = [(match[1].lower(), int(match[2])) for match in matches if match is not None]
    mesh = tuple((dimension_of(name) or name, size) for name, size in told)
    if len({name for name, _ in mesh}) != len(mesh) or any(size < 1 for _, size in mesh):
        raise UsageError(f"--mesh `{text}`: each dimension once, of 1 and more")
    unknown = [name for name, _ in mesh if name not in KNOWN_DIMENSIONS]
    if unknown:
        raise UsageError(
            f"--mesh `{text}`: `{unknown[0]}` is no dimension that is known",
            hint=f"known: {', '.join(KNOWN_DIMENSIONS)}",
        )
    return mesh


def num_ranks_of(mesh: Sequence[tuple[str, int]]) -> int:
    """Ranks of the job."""
    product = 1
    for _, size in mesh:
        product *= size
    return product


def with_layout(reading: Reading, layout: Layout) -> Reading:
    """`reading` with coordinates of `--mesh`, which wins over the evidence, and hosts where the evidence names none.

    Raises UsageError when there are more ranks than the mesh has.
    """
    if not layout.mesh and layout.gpus_per_host is None:
        return reading
    return replace(
        reading,
        steps=tuple(_placed(each, layout) for each in reading.steps),
        collectives=tuple(_placed_collectives(each, layout) for each in reading.collectives),
    )


def _placed(timings: StepTimings, layout: Layout) -> StepTimings:
    if layout.mesh:
        _check_size(timings, layout)
    world = num_ranks_of(layout.mesh) if layout.mesh else timings.world_size
    return replace(timings, places=_places(timings.places, layout), world_size=timings.world_size or world)


def _check_size(timings: StepTimings, layout: Layout) -> None:
    """A mesh of another job would compare ranks that do different work, and accuse the heavier ones."""
    size = num_ranks_of(layout.mesh)
    known = timings.world_size or max(timings.ranks) + 1
    if size <= known or size == layout.num_gpus:
        return
    raise UsageError(
        f"--mesh has {size} ranks, and the evidence is of {known}",
        hint=f"give the mesh of this job, dimensions that multiply to {known}; if the job has {size} ranks and not all "
        f"are here, say so: `--gpus {size}`",
    )


def _placed_collectives(timings: CollectiveTimings, layout: Layout) -> CollectiveTimings:
    return replace(timings, places=_places(timings.places, layout))


def _places(places: Sequence[Place], layout: Layout) -> tuple[Place, ...]:
    if layout.mesh:
        size = num_ranks_of(layout.mesh)
        beyond = [place.rank for place in places if place.rank >= size]
        if beyond:
            raise UsageError(
                f"--mesh has {size} ranks, and there is a rank {max(beyond)} in the evidence",
                hint="give every dimension, also data parallel",
            )
    return tuple(_place(place, layout) for place in places)


def _place(place: Place, layout: Layout) -> Place:
    coords = dict(place.coords)
    if layout.mesh:
        rest = place.rank
        for name, size in reversed(layout.mesh):
            coords[name] = rest % size
            rest //= size
    host, local_rank = place.host, place.local_rank
    if layout.gpus_per_host is not None and host is None:
        host = f"host {place.rank // layout.gpus_per_host}"
        local_rank = place.rank % layout.gpus_per_host if local_rank is None else local_rank
    return replace(place, coords=coords, host=host, local_rank=local_rank)
