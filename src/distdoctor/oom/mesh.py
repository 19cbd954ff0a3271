"""Degrees of parallelism as one mesh, and whether a model can be cut that way.

Dimensions and their order are TorchTitan's: pp, dp_replicate, dp_shard, cp, tp, outermost first. Experts borrow
ranks: expert parallelism spans dp_shard x cp x tp, so what is left of those ranks shards each expert's states.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from distdoctor.errors import UsageError
from distdoctor.oom.settings import Settings
from distdoctor.oom.shape import ModelShape

MAX_RANKS = 1_000_000
_DIMENSION = re.compile(r"([A-Za-z_]\w{0,31})\s*=\s*(-?\d{1,9})")
_ALIASES = {
    "dp": "dp_shard",
    "fsdp": "dp_shard",
    "shard": "dp_shard",
    "replicate": "dp_replicate",
    "ddp": "dp_replicate",
}
NAMES = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Sizes of the groups. `ep` and `etp` (tensor parallelism inside an expert) do not multiply the ranks."""

    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    etp: int = 1

    @property
    def num_ranks(self) -> int:
        """Ranks of the job."""
        return self.pp * self.dp_replicate * self.dp_shard * self.cp * self.tp

    @property
    def dp(self) -> int:
        """Ranks that see different sequences: replicas and shards."""
        return self.dp_replicate * self.dp_shard

    @property
    def shard_ranks(self) -> int:
        """Ranks that share the states of what is not an expert: FSDP shards over dp_shard x cp."""
        return self.dp_shard * self.cp

    def words(self) -> str:
        """`pp=2,dp_shard=4,tp=2`: the dimensions above 1."""
        said = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) > 1
        ]
        return ",".join(said) or "one rank"


def parse_mesh_option(text: str) -> dict[str, int]:
    """Degrees of `pp=2,dp_shard=4,tp=2`; `dp`, `fsdp` and `ddp` are understood. Raises UsageError."""
    degrees: dict[str, int] = {}
    for word in text.split(","):
        match = _DIMENSION.fullmatch(word.strip())
        if match is None:
            raise UsageError(
                f"--mesh: `{word.strip()[:40]}` is no dimension", hint="write --mesh pp=2,dp_shard=4,tp=2"
            )
        name = _ALIASES.get(match[1].lower(), match[1].lower())
        if name not in NAMES:
            raise UsageError(f"--mesh: `{match[1]}` is no known dimension", hint=f"known: {', '.join(NAMES)}")
        if name in degrees:
            raise UsageError(f"--mesh names `{name}` twice")
        size = int(match[2])
        if size < 1 and not (size == -1 and name == "dp_shard"):
            raise UsageError(f"--mesh: {name}={size} is no number of ranks", hint="sizes are 1 or more")
        degrees[name] = size
    return degrees


def build_mesh(settings: Settings) -> Mesh:
    """The mesh of what was said; `dp_shard` takes what is left of the ranks unless it was given.

    Raises UsageError when the degrees do not multiply to the ranks.
    """
    world = settings.world_size
    if world is not None and not 1 <= world <= MAX_RANKS:
        raise UsageError(f"{world} is no number of GPUs that a job has", hint=f"1 to {MAX_RANKS:,}")
    given = {name: getattr(settings, name) or 1 for name in NAMES if name != "dp_shard"}
    for name, size in given.items():
        if size < 1:
            raise UsageError(f"{name} is {size}; sizes of groups are 1 or more")
    mesh = Mesh(dp_shard=_shard_ranks(settings, world, given), **given)
    if world is not None and mesh.num_ranks != world:
        raise UsageError(
            f"the mesh {mesh.words()} has {mesh.num_ranks} ranks, but the job has {world} GPUs",
            hint="pp x dp_replicate x dp_shard x cp x tp must be the number of GPUs (ep does not multiply it)",
        )
    if mesh.num_ranks > MAX_RANKS:
        raise UsageError(f"the mesh {mesh.words()} has {mesh.num_ranks:,} ranks", hint=f"up to {MAX_RANKS:,}")
    return mesh


def _shard_ranks(settings: Settings, world: int | None, given: dict[str, int]) -> int:
    """dp_shard as it was given, or what is left of the ranks."""
    if settings.dp_shard is not None and settings.dp_shard != -1:
        if settings.dp_shard < 1:
            raise UsageError(f"dp_shard is {settings.dp_shard}; it is 1 or more, or -1 for what is left")
        return settings.dp_shard
    if world is None:
        return 1
    others = given["pp"] * given["dp_replicate"] * given["cp"] * given["tp"]
    if world % others:
        product = _product(given)
        total = f" = {others}" if " x " in product else ""
        raise UsageError(f"{product}{total} does not divide {world} GPUs", hint="change --gpus or --mesh")
    return world // others


def check_mesh(mesh: Mesh, shape: ModelShape, *, virtual_stages: int = 1, sharded: bool = True) -> None:
    """Raises UsageError when this model cannot be cut along this mesh."""
    if shape.num_heads % mesh.tp:
        raise UsageError(
            f"tp={mesh.tp} does not divide the model's {shape.num_heads} attention heads",
            hint=f"tensor parallelism splits heads: {_divisors(shape.num_heads)}",
        )
    stages = mesh.pp * virtual_stages
    if stages > shape.num_layers:
        raise UsageError(
            f"{stages} pipeline stages, but the model has {shape.num_layers} layers",
            hint="lower pp or the number of virtual stages",
        )
    if mesh.ep == 1 and mesh.etp == 1:
        return
    if shape.moe is None:
        raise UsageError(f"ep={mesh.ep}, but this model has no experts", hint="leave ep out")
    if shape.moe.num_experts % mesh.ep:
        raise UsageError(
            f"ep={mesh.ep} does not divide the model's {shape.moe.num_experts} experts",
            hint=_divisors(shape.moe.num_experts),
        )
    borrowed = (mesh.dp_shard if sharded else mesh.dp) * mesh.cp * mesh.tp
    if borrowed % (mesh.ep * mesh.etp):
        raise UsageError(
            f"ep={mesh.ep} x etp={mesh.etp} does not divide dp x cp x tp = {borrowed}",
            hint="experts are spread over ranks of the data-, context- and tensor-parallel groups",
        )


def _product(degrees: dict[str, int]) -> str:
    return (
        " x ".join(
            f"{name} {size}"
            for name, size in degrees.items()
            if size > 1 and name in ("pp", "dp_replicate", "cp", "tp")
        )
        or "1"
    )


def _divisors(number: int) -> str:
    return "possible: " + ", ".join(
        str(each) for each in range(1, min(number, 512) + 1) if number % each == 0
    )
