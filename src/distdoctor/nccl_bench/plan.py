"""What a run measures, in which order: every host inside itself, rails, the whole job, mesh dimensions.

Pure: from places and options to stages. Cheap stages that can name a fault come first, so that it is told early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from distdoctor.nccl_bench.definitions import BARRIER
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Style
from distdoctor.nccl_bench.groups import hosts_of, rails_of
from distdoctor.nccl_bench.mesh import MeshShape, mesh_groups
from distdoctor.nccl_bench.options import BenchOptions
from distdoctor.ranks.places import Place
from distdoctor.units import KIB, MIB, format_bytes

# Who arrives late is seen where the transfer itself takes no time; twice, so that one disturbed loop decides nothing.
# Our own choice.
ARRIVAL_SIZES = (KIB, 4 * KIB)

# One large message tells a group's bandwidth; Gloo's socket loop saturates far earlier than a GPU fabric. Our own choice.
GROUP_BYTES = {"nccl": 256 * MIB, "gloo": 4 * MIB}

# Rails one by one up to this many; beyond it together only. Our own bound: each takes a second.
MAX_RAILS_ALONE = 16

# Shares of the time, by stage; the matrix takes what is left. Our own choice.
SHARE_HOSTS, SHARE_RAILS, SHARE_JOB, SHARE_MESH, SHARE_COMPUTING = 0.1, 0.15, 0.55, 0.3, 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One collective at one size."""

    collective: str
    size_bytes: int
    in_place: bool
    style: Style

    @property
    def title(self) -> str:
        """ "all_reduce 1 MiB"."""
        size = "" if self.collective == BARRIER else f" {format_bytes(self.size_bytes)}"
        return f"{self.collective}{size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Cells that are measured in the same groups. The groups of one turn run at once."""

    name: str
    title: str
    turns: tuple[tuple[Group, ...], ...]
    cells: tuple[Cell, ...]
    share: float
    """Of the time that is left when the stage begins."""
    computing: bool = False
    """The device multiplies matrices meanwhile."""


def make_plan(
    places: Sequence[Place], options: BenchOptions, backend: str, *, supported: Sequence[str]
) -> tuple[Stage, ...]:
    """The stages of a run, in order; `supported`: the collectives that the backend does with these types."""
    everybody = Group(kind=GroupKind.JOB, label="job", ranks=tuple(range(len(places))), set_label="job")
    stages: list[Stage] = []
    options = replace(options, collectives=tuple(name for name in options.collectives if name in supported))
    if not options.only_job and "all_reduce" in supported:
        stages += _before_the_job(places, options, backend)
    stages.append(
        Stage(
            name="job",
            title=f"all {len(places)} ranks" if len(places) > 1 else "1 rank",
            turns=((everybody,),),
            cells=(*_arrival_cells(supported), *_swept_cells(options, backend)),
            share=SHARE_JOB,
        )
    )
    if options.while_computing and len(places) > 1:
        stages.append(_while_computing(everybody, options, backend))
    if options.mesh is not None:
        stages += _along_the_mesh(options.mesh, options, backend)
    return tuple(stages)


def _while_computing(everybody: Group, options: BenchOptions, backend: str) -> Stage:
    """The largest message of each collective, once more."""
    largest = (options.sizes or default_sizes(backend))[-1]
    return Stage(
        name="computing",
        title="while the device computes",
        turns=((everybody,),),
        cells=tuple(_cell(name, largest, options) for name in options.collectives if name != BARRIER),
        share=SHARE_COMPUTING,
        computing=True,
    )


def default_sizes(backend: str) -> tuple[int, ...]:
    """Sizes of a sweep that was not told any: from pure latency to the plateau.

    1 KiB to 1 GiB by 4 on GPUs, where one host needs 256 MiB to 1 GiB for 90 % of its plateau; to 16 MiB over
    Gloo, whose loops through sockets saturate by 4 MiB.
    """
    largest = 1024 * MIB if backend == "nccl" else 16 * MIB
    sizes = [KIB]
    while sizes[-1] * 4 <= largest:
        sizes.append(sizes[-1] * 4)
    return tuple(sizes)


def _before_the_job(places: Sequence[Place], options: BenchOptions, backend: str) -> list[Stage]:
    hosts = hosts_of(places)
    if len(hosts) < 2:
        return []
    size = GROUP_BYTES.get(backend, GROUP_BYTES["gloo"])
    cells = (_cell("all_reduce", size, options),)
    stages = []
    inside = tuple(group for group in hosts if len(group.ranks) > 1)
    if inside:
        title = "every host inside itself, all at once"
        stages.append(Stage(name="hosts", title=title, turns=(inside,), cells=cells, share=SHARE_HOSTS))
    rails = tuple(group for group in rails_of(places) if len(group.ranks) > 1)
    # One rank a host: its rail is the whole job.
    if len(rails) > 1:
        if len(rails) <= MAX_RAILS_ALONE:
            alone = tuple((rail,) for rail in rails)
            stages.append(
                Stage(name="rails", title="rails, each alone", turns=alone, cells=cells, share=SHARE_RAILS)
            )
        stages.append(
            Stage(name="rails", title="rails, all at once", turns=(rails,), cells=cells, share=SHARE_RAILS)
        )
    return stages


def _along_the_mesh(mesh: MeshShape, options: BenchOptions, backend: str) -> list[Stage]:
    cells = _swept_cells(options, backend)
    stages = []
    for dimension, name in enumerate(mesh.names):
        groups = mesh_groups(mesh, dimension)
        if len(groups[0].ranks) < 2:
            continue
        alone = tuple((group,) for group in groups[:MAX_RAILS_ALONE])
        title = f"mesh dimension {name}"
        stages.append(
            Stage(
                name=f"mesh {name}", title=f"{title}, each alone", turns=alone, cells=cells, share=SHARE_MESH
            )
        )
        if len(groups) > 1:
            stages.append(
                Stage(
                    name=f"mesh {name}",
                    title=f"{title}, all at once",
                    turns=(groups,),
                    cells=cells,
                    share=SHARE_MESH,
                )
            )
    return stages


def _arrival_cells(supported: Sequence[str]) -> tuple[Cell, ...]:
    return tuple(
        Cell(collective=name, size_bytes=size, in_place=True, style=Style.ISOLATED)
        for name, size in ((BARRIER, 0), *(("all_reduce", size) for size in ARRIVAL_SIZES))
        if name in supported
    )


def _swept_cells(options: BenchOptions, backend: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(collective=name, size_bytes=size, in_place=in_place, style=style)
        for name in options.collectives
        if name != BARRIER
        for in_place in options.places_of(name)
        for style in options.styles
        for size in options.sizes or default_sizes(backend)
    )


def _cell(collective: str, size_bytes: int, options: BenchOptions) -> Cell:
    return Cell(
        collective=collective,
        size_bytes=size_bytes,
        in_place=options.places_of(collective)[0],
        style=Style.STREAMING,
    )
