"""Everything that one run, table or log says about a network: what the checks judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from distdoctor.nccl_bench.facts.lateness import ArrivalsOfGroup
from distdoctor.nccl_bench.facts.matrix import Matrix
from distdoctor.nccl_bench.facts.nccl_log import NcclLog
from distdoctor.nccl_bench.facts.places import HostHardware, Versions
from distdoctor.nccl_bench.facts.rows import NotMeasured, Row
from distdoctor.ranks.lost import Stopped
from distdoctor.ranks.places import Place


class Origin(str, Enum):
    """Where the facts come from."""

    MEASURED = "measured"
    TABLE = "table"
    LOG = "log"
    REPORT = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Whether other work disturbed one host while it measured; differences over the run."""

    host: str
    load_1min: float | None = None
    num_cpus: int | None = None
    involuntary_switches_per_s: float | None = None
    """Of the measuring ranks, the highest."""
    cpu_pressure_pct: float | None = None
    """PSI: share of the time in which some task waited for a CPU (some avg10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """What comes before the first row; seconds, the slowest rank's."""

    import_torch_s: float | None = None
    process_group_s: float | None = None
    first_collective_s: float | None = None
    communicators_s: float | None = None
    """All further groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNotes:
    """What a table of nccl-tests says beside its rows."""

    tool: str | None = None
    """"nccl-tests 2.18.0", "rccl-tests"."""
    ended: bool = True
    """The table has its footer, or its source shows that it is an excerpt with rows only."""
    cut: str | None = None
    """Why the table looks cut off: "no footer after the last row"."""
    cut_is_likely: bool = True
    """False: only the shape of the rows speaks for it."""
    out_of_bounds: int | None = None
    out_of_bounds_ok: bool | None = None
    average_busbw_gbps: float | None = None
    validated: bool | None = None
    errors: tuple[str, ...] = ()
    """Lines that tell of a failure: "Test CUDA failure …", "Test failure common.cu:1189"."""
    error_lines: tuple[int, ...] = ()
    """1-based line of each of `errors`."""
    excerpt: bool = False
    """Rows were left out by whoever pasted it (`...`), or neither header nor footer is there."""
    skipped_rows: int = 0
    """Rows of size 0."""
    each_alone: bool = False
    """Several tables with one rank each: every process ran alone (MPI support was not compiled in)."""
    processes: int | None = None
    """How many processes printed a table of their own, side by side; None when that is not seen."""
    collective_known: bool = True
    """False: `Row.collective` is the likeliest of those that print such rows; `collective_from` says so."""
    collective_from: str = ""
    """What names the collective: "banner", "command line", "file name", "shape of the rows" …"""
    planned_max_bytes: int | None = None
    """The largest size that was asked for (maxBytes, or -e), where it is known."""
    unfinished_bytes: int | None = None
    """Size of a row that was begun and not finished."""
    left_out_rows: int = 0
    """Rows beyond the reader's cap."""
    last_line: int | None = None
    """1-based line of the last row, or of the last line of the table's head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFacts:
    """One run, or one file. Empty and None mean that the source does not hold it."""

    origin: Origin
    label: str
    """"this run", or the file's name."""
    backend: str | None = None
    """"nccl", "gloo", "rccl"."""
    num_ranks: int | None = None
    num_hosts: int | None = None
    places: tuple[Place, ...] = ()
    """By rank."""
    hardware: tuple[HostHardware, ...] = ()
    versions: Versions = field(default_factory=Versions)
    rows: tuple[Row, ...] = ()
    computing_rows: tuple[Row, ...] = ()
    """The same while the devices multiplied matrices: no measure of the network alone."""
    not_measured: tuple[NotMeasured, ...] = ()
    arrivals: tuple[ArrivalsOfGroup, ...] = ()
    matrix: Matrix | None = None
    nccl_log: NcclLog | None = None
    set_up: SetUp | None = None
    stopped: Stopped | None = None
    contention: tuple[Contention, ...] = ()
    table: TableNotes | None = None
    baseline: BenchFacts | None = None
    """What the rows are compared with."""
    overrides: tuple[tuple[str, str], ...] = ()
    """NCCL_… variables of the run, name and value, where they are known."""
    shares_gpus: bool = False
    """Several ranks on one GPU, or another job beside: numbers say nothing about the fabric."""

    @property
    def is_live(self) -> bool:
        """Measured now, not read from a file."""
        return self.origin is Origin.MEASURED

    def host_of(self, rank: int) -> str | None:
        """Host of a rank, or None when it is not known."""
        return next((place.host for place in self.places if place.rank == rank), None)

    def place_of(self, rank: int) -> Place | None:
        """Place of a rank, or None when it is not known."""
        return next((place for place in self.places if place.rank == rank), None)
