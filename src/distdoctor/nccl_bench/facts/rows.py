"""One row: a collective at one size in one group, as measured or as a table says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Style(str, Enum):
    """How iterations follow one another."""

    STREAMING = "streaming"
    """Back to back, as nccl-tests does: throughput; hides skew."""
    ISOLATED = "isolated"
    """A barrier before each: latency, jitter and who arrives late."""


class GroupKind(str, Enum):
    """Why these ranks form a group."""

    JOB = "job"
    """All ranks."""
    HOST = "host"
    """The ranks of one host."""
    RAIL = "rail"
    """Local rank k of every host: the ranks that share a network rail."""
    MESH = "mesh"
    """One group along one dimension of a device mesh."""
    TABLE = "table"
    """Whatever ranks a table of another tool is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks that communicate with one another."""

    kind: GroupKind
    label: str
    """As people read it: "job", "host node-a", "rail 3", "mesh tp #0"."""
    ranks: tuple[int, ...]
    """Global ranks; empty for a table that does not list them."""
    set_label: str = ""
    """Groups that belong together: "hosts", "rails", "mesh tp"; equal to the label where there is one only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongData:
    """Elements of a result that are not what they must be."""

    ranks: tuple[int, ...]
    """Ranks that hold wrong elements; empty when the source does not say (nccl-tests sums over ranks)."""
    elements: int
    """0: some, not counted (old tables print the largest error instead)."""
    example: str = ""
    """ "element 17 is 9, must be 8 (rank 2)"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Times of one collective at one size; all times in microseconds, all bandwidths in GB/s of 10^9 bytes."""

    collective: str
    """Canonical name (definitions.py)."""
    group: Group
    num_ranks: int | None
    """None when a table does not tell."""
    size_bytes: int
    """By nccl-tests' definition of size for this collective."""
    dtype: str = "float32"
    op: str | None = None
    """"sum", "avg" …; None for collectives that reduce nothing."""
    in_place: bool | None = None
    """None where the distinction does not exist or is not known."""
    style: Style = Style.STREAMING
    concurrent: bool = False
    """All groups of the set ran at once."""
    iters: int | None = None
    """Iterations of one repeat."""
    time_us: float = 0.0
    """Measured: median over the repeats of each repeat's median over iterations of the slowest rank's time.
    Table: the time column."""
    repeats_us: tuple[float, ...] = ()
    """One such time for each repeat; empty when there was one only."""
    min_us: float | None = None
    max_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    mean_us: float | None = None
    """Over all iterations and ranks: what nccl-tests prints by default."""
    fastest_rank_us: float | None = None
    """Median over iterations of the fastest rank's time: the transfer without waiting for the late."""
    algbw_gbps: float | None = None
    busbw_gbps: float | None = None
    """None for one rank: there is no bus."""
    wrong: WrongData | None = None
    """None: nothing wrong was seen; see `validated`."""
    validated: bool = False
    """The data were compared with what they must be."""
    algorithm: str | None = None
    """"Ring", "Tree", "NVLS" …, from NCCL's own log."""
    protocol: str | None = None
    channels: int | None = None
    source_line: int | None = None
    """1-based line of the file that it was read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMeasured:
    """A row that was asked for and is not there, and why."""

    what: str
    """"all_reduce max on complex64"."""
    why: str
    """torch's own words where it refused."""
    refused: bool = True
    """The backend cannot do it; otherwise there was no time, no memory, or a fault came first."""
