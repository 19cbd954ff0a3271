"""Where a rank is in the mesh, by the process groups that it is in.

torch's DeviceMesh describes its groups as "mesh_tp", Megatron-LM as "TENSOR_MODEL_PARALLEL_GROUP". A mesh may have
dimensions that no description tells: a group of all ranks is the default group, which keeps its own description. So
coordinates count only where the groups that are told span the whole job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations

from distdoctor.straggler.analysis.peers import DATA_DIMENSIONS
from distdoctor.straggler.coordinates import dimension_of
from distdoctor.straggler.readers.kineto.header import ProcessGroup

_MEGATRON_DIMENSIONS = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "DATA_PARALLEL_GROUP": "dp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
}

# Several dimensions as one, as frameworks flatten them: "mesh_dp_shard_cp", "mesh_dp_shard_mod_ep", "mesh_loss".
_FLATTENED = re.compile(r"(?:e?fsdp|e?dp|d?sp|cp|tp|e?tp|ep|pp|shard|replicate|mod|in|loss|batch|_)+")

# No job has more; of more than this nothing is told. Our own bound, since all sets of dimensions are tried.
_MAX_DIMENSIONS = 10

# A dimension that is a name of somebody's own.
_MAX_NAME_CHARACTERS = 32

Ranks = Sequence[int]


def coordinates(rank: int, groups: Sequence[ProcessGroup], world_size: int | None) -> dict[str, int]:
    """Parallel coordinates: the position of a rank in its group of each dimension; empty unless they span the job.

    A dimension of an unknown name is kept under it: work may differ along it.
    """
    known: dict[str, Ranks] = {}
    strange: dict[str, Ranks] = {}
    for group in groups:
        if group.ranks is None or rank not in group.ranks:
            continue
        what = group.what or ""
        dimension = _known(what)
        if dimension is not None:
            known.setdefault(dimension, group.ranks)
        elif what.lower().startswith("mesh_") and len(group.ranks) > 1:
            name = what.lower().removeprefix("mesh_")[:_MAX_NAME_CHARACTERS]
            if not _FLATTENED.fullmatch(name):
                strange.setdefault(name, group.ranks)
    if "dp_shard" in known or "dp_replicate" in known:
        known.pop("dp", None)  # flattened from these
    dimensions = known if _spans(known, world_size) else {**known, **strange}
    if not _spans(dimensions, world_size) or (strange and dimensions.keys() <= DATA_DIMENSIONS):
        # An unknown dimension beside data parallel ones may be one along which work differs.
        return {}
    return {name: ranks.index(rank) for name, ranks in dimensions.items()}


def _known(what: str) -> str | None:
    if what.lower().startswith("mesh_"):
        return dimension_of(what.lower().removeprefix("mesh_"))
    return _MEGATRON_DIMENSIONS.get(what.upper())


def _spans(dimensions: Mapping[str, Ranks], world_size: int | None) -> bool:
    """Whether some of these groups, which have but one rank in common, multiply to the whole job."""
    several = [frozenset(ranks) for ranks in dimensions.values() if len(ranks) > 1]
    if world_size is None or len(several) > _MAX_DIMENSIONS:
        return False
    apart = {
        pair for pair in combinations(range(len(several)), 2) if len(several[pair[0]] & several[pair[1]]) == 1
    }
    for num in range(len(several) + 1):
        for chosen in combinations(range(len(several)), num):
            product = 1
            for index in chosen:
                product *= len(several[index])
            if product == world_size and all(pair in apart for pair in combinations(chosen, 2)):
                return True
    return False
