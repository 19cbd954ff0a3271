"""What every command returns and the only thing that renderers see.

Values here are data: who built them is not known, how they look is not decided. Text is stored as it was
found; `report.seal` masks secrets and control characters before anything is shown or written.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from msgspec import Struct

SCHEMA_VERSION = 1

Scalar = str | int | float | bool | None


class Severity(str, Enum):
    """How bad: `critical` stops a job or makes it wrong or very slow, `warning` will hurt, `info` is to know."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Confidence(str, Enum):
    """How sure: `high` act, `medium` check first with the command below, `low` a lead."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Status(str, Enum):
    """The verdict in one word."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


class Fault(str, Enum):
    """Whose it is."""

    USER_CODE = "user code"
    DATA = "data"
    CONFIG = "config"
    HOST = "host"
    GPU = "gpu"
    NETWORK = "network"
    SCHEDULER = "scheduler"
    SOFTWARE = "software"
    UNKNOWN = "unknown"


class Team(str, Enum):
    """Who acts. Next actions are grouped by it so that each block can be pasted alone."""

    JOB_OWNER = "job owner"
    NETWORK = "network"
    HARDWARE = "hardware"
    PLATFORM = "platform"


class SkipCause(str, Enum):
    """Why something was not looked at. Skips are folded by it."""

    NEEDS_ROOT = "need root or the host"
    IN_CONTAINER = "hidden by the container"
    TOOL_MISSING = "need a tool that is not installed"
    TIMED_OUT = "did not answer in time"
    NOT_ASKED = "not asked for"
    NOT_IN_EVIDENCE = "not in the evidence given"
    UNSUPPORTED = "not reported by this hardware or driver"
    ABSENT = "file or interface not there"
    FAILED = "could not be read"
    NOISY = "too noisy to judge"


class CheckState(str, Enum):
    """How a check ended. `not_applicable`: the thing is known to be absent; `skipped`: it may exist unseen."""

    FOUND = "found"
    PASSED = "passed"
    NOT_APPLICABLE = "not applicable"
    SKIPPED = "skipped"


class GpuRef(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU, named so that somebody can find it: NVML index, PCI address, UUID, model."""

    host: str | None = None
    index: int | None = None
    pci: str | None = None
    uuid: str | None = None
    model: str | None = None


class Scope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whom a finding is about. Empty means the whole subject."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    gpus: tuple[GpuRef, ...] = ()
    links: tuple[str, ...] = ()
    """NIC ports, NVLinks, interfaces: `host-a mlx5_3/1`, `host-a gpu 3 nvlink 5`."""


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One observed thing: what, how much, what it was measured against, and where it was read."""

    text: str
    """The sentence people read; it holds the number with its unit."""
    value: Scalar = None
    unit: str | None = None
    expected: str | None = None
    expected_source: str | None = None
    source: str | None = None
    """File, call or line that it was read from."""


class Action(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The next thing to do, for one team."""

    team: Team
    text: str
    command: str | None = None
    """Ready to paste; shell-quoted by whoever builds it."""


class Ignored(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a finding does not count: a site rule or --ignore."""

    by: str
    reason: str | None = None
    expires: str | None = None


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong or worth knowing."""

    id: str
    """Id of the check, never reused; its page is docs/checks/<id>.md."""
    severity: Severity
    confidence: Confidence
    title: str
    """At most 80 characters, readable by somebody who has never seen NCCL."""
    fingerprint: str
    """Equal for the same fault on another host or in another run: id plus what distinguishes it, never a host."""
    evidence: tuple[Evidence, ...] = ()
    explanation: str = ""
    actions: tuple[Action, ...] = ()
    scope: Scope = Scope()
    cause_class: str | None = None
    """`class:detail` of the documented vocabulary (docs/report.md)."""
    fault: Fault = Fault.UNKNOWN
    ignored: Ignored | None = None


class Skipped(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A check that could not be done, why, and how to get it done."""

    id: str
    what: str
    cause: SkipCause
    reason: str
    how: str | None = None
    hosts: tuple[str, ...] = ()
    essential: bool = False


class CheckResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line per check, so that a report says how much was seen."""

    id: str
    title: str
    state: CheckState
    detail: str = ""
    hosts: tuple[str, ...] = ()


class RuledOut(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cause that was looked for and excluded by evidence."""

    what: str
    why: str


class MissingEvidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Evidence that would decide, why it is not here, how to get it."""

    what: str
    why: str
    how: str | None = None


class Verdict(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer, in one line and in one paragraph."""

    status: Status
    title: str
    """At most 80 characters."""
    summary: str
    confidence: Confidence = Confidence.HIGH
    cause_class: str | None = None
    fault: Fault = Fault.UNKNOWN


class Culprit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who caused it, as precisely as known."""

    role: Literal["culprit", "victim"] = "culprit"
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    """Folded victims."""
    host: str | None = None
    pod: str | None = None
    local_rank: int | None = None
    gpu: GpuRef | None = None
    nic_port: str | None = None
    why: str = ""


class Since(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When it began, as exactly as known."""

    utc: str | None = None
    source_zone: str | None = None
    step: int | None = None
    exactness: str | None = None


class Impact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What it costs."""

    gpus_held: int | None = None
    slowdown_pct: float | None = None
    gpu_hours: float | None = None
    gpu_hours_per_day: float | None = None
    """Of each day that the job goes on like this."""
    basis: Literal["measured", "estimated"] = "estimated"


class Drain(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Should this host leave the pool?"""

    host: str
    answer: Literal["yes", "no", "not enough evidence"]
    why: str
    command: str | None = None


class Fact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One observed value, folded over the hosts (and ranks) that share it.

    `value is None` means not measured; `why` then says why.
    """

    key: str
    """Dotted, stable: `torch.version`, `gpu.3.power_limit_w`, `net.eth0.mtu`."""
    value: Scalar = None
    unit: str | None = None
    source: str | None = None
    why: str | None = None
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()


class Column(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table column; `align` is right for numbers."""

    name: str
    unit: str | None = None
    align: Literal["left", "right"] = "left"


class Table(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something people look at as rows."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    note: str | None = None
    place: Literal["first", "body", "data"] = "body"
    """`first`: right below the verdict; `body`: with the other tables; `data`: for programs, in the JSON only."""


class Series(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something people look at as a picture; every series is also shown as a table.

    `kind`: `bars` (one y per label), `lines` (several named ys over x), `heat` (a matrix), `stacked` (bars made of
    named parts), `areas` (named parts on top of one another over x, which grows; its table has a row a span).
    """

    name: str
    title: str
    kind: Literal["bars", "lines", "heat", "stacked", "areas"]
    x_label: str = ""
    y_label: str = ""
    x: tuple[Scalar, ...] = ()
    names: tuple[str, ...] = ()
    values: tuple[tuple[float | None, ...], ...] = ()
    """One tuple per name (lines, bars; stacked and areas: the parts) or per row (heat)."""
    hot: tuple[int, ...] = ()
    """Indexes into x (bars, stacked) or rows (heat) that are accused."""
    limit: float | None = None
    """Of stacked and areas: what the parts together should not exceed, in the unit of `y_label`; what is beyond it
    stands out as `hot` ones do."""
    limit_label: str = ""
    """The caption of `limit`, with its number and unit: `H100 80GB: 79.1 GiB`."""
    marks: tuple[tuple[int, str], ...] = ()
    """Of areas: where a span begins, as an index into x, and what it is called: `step 1: forward`. What stands before
    the colon is drawn once over neighbours that share it."""


class InputFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file given as evidence."""

    path: str
    kind: str
    bytes: int | None = None
    sha256: str | None = None
    """Of the whole file, up to 64 MiB."""
    read: bool = True
    why_not: str | None = None


class TimelineEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the story; `utc` is ISO 8601, or None when only the order is known."""

    utc: str | None = None
    text: str
    source: str | None = None


class Subject(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the report is about, as far as known."""

    hosts: tuple[str, ...] = ()
    world_size: int | None = None
    scheduler: str | None = None
    job_id: str | None = None
    job_name: str | None = None
    image: str | None = None
    restart_count: int | None = None
    gpu_models: tuple[str, ...] = ()
    num_gpus: int | None = None
    nic_models: tuple[str, ...] = ()
    torch: str | None = None
    nccl: str | None = None
    cuda: str | None = None
    driver: str | None = None
    missing_ranks: tuple[int, ...] = ()
    missing_hosts: tuple[str, ...] = ()


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who wrote the report."""

    name: str
    version: str
    command: str
    """`env`, `checkup`, `compare` …"""
    argv: tuple[str, ...] = ()


class Redaction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was replaced: always secrets; hosts, users and addresses too when `pseudonyms`."""

    secrets_masked: int = 0
    pseudonyms: bool = False
    key_id: str | None = None
    """First 8 hex digits of the key's hash: equal keys give equal pseudonyms."""


class Report(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one kind of report."""

    tool: Tool
    verdict: Verdict
    subject: Subject = Subject()
    schema_version: int = SCHEMA_VERSION
    started_utc: str = ""
    duration_s: float | None = None
    culprits: tuple[Culprit, ...] = ()
    since: Since | None = None
    impact: Impact | None = None
    drain: tuple[Drain, ...] = ()
    timeline: tuple[TimelineEvent, ...] = ()
    findings: tuple[Finding, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    missing_evidence: tuple[MissingEvidence, ...] = ()
    facts: tuple[Fact, ...] = ()
    tables: tuple[Table, ...] = ()
    series: tuple[Series, ...] = ()
    inputs: tuple[InputFile, ...] = ()
    timings: dict[str, float] = {}
    """Seconds of the tool itself, by step."""
    redaction: Redaction = Redaction()
