"""What the user asked a run to measure, checked and in one value. Torch-free."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum

from distdoctor.errors import UsageError
from distdoctor.nccl_bench.definitions import BARRIER, NAMES, canonical_name
from distdoctor.nccl_bench.facts.rows import Style
from distdoctor.nccl_bench.mesh import MeshShape
from distdoctor.nccl_bench.shapes import natural_places
from distdoctor.units import MIB

DEFAULT_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")

# Limits of a default run. The steps of a run take well under a second. Our own choices.
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_TIME_LIMIT_S = 80.0

MATRIX_BYTES = {"nccl": 64 * MIB, "gloo": 2 * MIB}
"""Default size of a point-to-point message, by backend."""


class Placement(str, Enum):
    """Whether a collective's output takes the place of its input."""

    AUTO = "auto"
    """As torch programs call it: out of place where there is the choice."""
    OUT = "out"
    IN = "in"
    BOTH = "both"


class MatrixChoice(str, Enum):
    """The point-to-point matrix."""

    AUTO = "auto"
    """All ranks when they are few, one for each host and rail when they are many."""
    ALL = "all"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """A measuring run."""

    collectives: tuple[str, ...] = DEFAULT_COLLECTIVES
    sizes: tuple[int, ...] | None = None
    """Bytes, ascending; None: the backend's default."""
    dtype: str = "float32"
    op: str = "sum"
    placement: Placement = Placement.AUTO
    styles: tuple[Style, ...] = (Style.STREAMING,)
    """Of the sweep; the cells that tell who arrives late are isolated always."""
    repeats: int = 3
    iters: int | None = None
    """None: as many as the time allows, up to what percentiles need."""
    mesh: MeshShape | None = None
    matrix: MatrixChoice = MatrixChoice.AUTO
    matrix_bytes: int | None = None
    backend: str | None = None
    """None: NCCL where GPUs are, Gloo elsewhere."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    while_computing: bool = False
    """Also while the device multiplies matrices."""
    only_job: bool = False
    """No stages of hosts and rails before the whole job."""
    share_gpus: bool = False
    nccl_log: bool = True

    def places_of(self, collective: str) -> tuple[bool, ...]:
        """Which of out of place (False) and in place (True) are measured; torch's only form where it has one."""
        natural = natural_places(collective)
        match self.placement:
            case Placement.AUTO:
                return natural[:1]
            case Placement.BOTH:
                return natural
            case Placement.OUT | Placement.IN:
                wanted = self.placement is Placement.IN
                return (wanted,) if wanted in natural else natural


def parse_collectives(text: str) -> tuple[str, ...]:
    """Names of "all_reduce,alltoall" in the order given, or all of "all". Raises UsageError with the nearest name."""
    if text.strip().lower() == "all":
        return (*NAMES, BARRIER)
    names: list[str] = []
    for word in text.split(","):
        if not word.strip():
            continue
        name = canonical_name(word)
        if name is None:
            near = difflib.get_close_matches(word.strip().lower(), (*NAMES, BARRIER), n=1)
            raise UsageError(
                f"--collectives: `{word.strip()[:40]}` is not known",
                hint=f"did you mean {near[0]}?" if near else f"known: {', '.join(NAMES)}, barrier, all",
            )
        if name not in names:
            names.append(name)
    if not names:
        raise UsageError("--collectives names none", hint=f"known: {', '.join(NAMES)}, barrier, all")
    return tuple(names)
