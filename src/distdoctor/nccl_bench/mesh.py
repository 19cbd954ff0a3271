"""Groups along the dimensions of a device mesh, from `dp=2,tp=4`; the last dimension varies fastest, as in torch."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from distdoctor.errors import UsageError
from distdoctor.nccl_bench.facts.rows import Group, GroupKind

_DIMENSION = re.compile(r"([A-Za-z_]\w{0,31})\s*=\s*(\d{1,7})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshShape:
    """Names and sizes of the dimensions, outermost first."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def num_ranks(self) -> int:
        """Ranks in the mesh."""
        return math.prod(self.sizes)


def parse_mesh(text: str) -> MeshShape:
    """The mesh of `dp=2,tp=4`. Raises UsageError."""
    names: list[str] = []
    sizes: list[int] = []
    for word in text.split(","):
        match = _DIMENSION.fullmatch(word.strip())
        if match is None or int(match[2]) < 1:
            raise UsageError(f"--mesh: `{word.strip()[:40]}` is no dimension", hint="write --mesh dp=2,tp=4")
        if match[1] in names:
            raise UsageError(f"--mesh names `{match[1]}` twice")
        names.append(match[1])
        sizes.append(int(match[2]))
    return MeshShape(names=tuple(names), sizes=tuple(sizes))


def check_mesh(mesh: MeshShape, world_size: int) -> None:
    """Raises UsageError when the mesh does not multiply to the world size."""
    if mesh.num_ranks != world_size:
        product = " x ".join(str(size) for size in mesh.sizes)
        raise UsageError(
            f"--mesh has {product} = {mesh.num_ranks} ranks, but the job has {world_size}",
            hint="the sizes of the dimensions must multiply to the number of ranks",
        )


def mesh_groups(mesh: MeshShape, dimension: int) -> tuple[Group, ...]:
    """The groups along one dimension (index), ranks in row-major order."""
    inner = math.prod(mesh.sizes[dimension + 1 :])
    size = mesh.sizes[dimension]
    name = mesh.names[dimension]
    firsts = [rank for rank in range(mesh.num_ranks) if rank // inner % size == 0]
    return tuple(
        Group(
            kind=GroupKind.MESH,
            label=f"mesh {name} #{number}" if len(firsts) > 1 else f"mesh {name}",
            ranks=tuple(first + step * inner for step in range(size)),
            set_label=f"mesh {name}",
        )
        for number, first in enumerate(firsts)
    )
