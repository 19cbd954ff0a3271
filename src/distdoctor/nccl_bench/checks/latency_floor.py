"""How long does the smallest message take, and is that what such a fabric needs?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.analysis.curves import Curve, curves_of, source_of
from distdoctor.nccl_bench.analysis.expectation import is_cpu_only, tcp_plugin
from distdoctor.nccl_bench.analysis.machine import machine_of, num_hosts_of, shares_gpus
from distdoctor.nccl_bench.analysis.statistics import median
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed, not_seen
from distdoctor.nccl_bench.definitions import BARRIER
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import GroupKind, Row, Style
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import KIB, format_bytes

# Up to this size a message costs latency, not bandwidth, on every fabric that is named here.
SMALL_BYTES = 64 * KIB

# Collectives whose time at small sizes hardly grows with the number of ranks; the others pass every rank in turn.
FLAT = frozenset({"all_reduce", "broadcast", "reduce", "sendrecv", BARRIER})
MAX_RANKS_IN_TURN = 64
# Beyond this many hosts nothing is published for the fabrics that are judged more strictly.
MAX_HOSTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What a fabric was published to need for its smallest message, and what we call far above."""

    fabric: str
    published: str
    limit_us: float
    source: str


# Published floors of all_reduce; the limits are our own: several times the published value, with room for the
# overhead of a framework's own launch.
FLOORS = {
    "nvlink": Floor(
        fabric="GPUs of one host over NVLink",
        published="13 to 34 µs",
        limit_us=300,
        source="stas00/ml-engineering network/README.md (H200), microsoft/superbenchmark tests/data (A100)",
    ),
    "rdma": Floor(
        fabric="hosts over InfiniBand or RoCE",
        published="42 to 54 µs",
        limit_us=400,
        source="published nccl-tests tables of two hosts",
    ),
    "efa": Floor(
        fabric="hosts over EFA",
        published="65 to 175 µs",
        limit_us=900,
        source="aws-samples/awsome-distributed-training, aws-samples/aws-efa-eks",
    ),
    "tcpxo": Floor(
        fabric="hosts over GPUDirect-TCPXO",
        published="84 to 123 µs",
        limit_us=900,
        source="GoogleCloudPlatform/cluster-toolkit",
    ),
    "tcpx": Floor(
        fabric="hosts over GPUDirect-TCPX",
        published="about 950 µs",
        limit_us=3000,
        source="GoogleCloudPlatform/cluster-toolkit, examples/gke-a3-highgpu",
    ),
    "any": Floor(
        fabric="GPUs over anything but GPUDirect-TCPX",
        published="13 to 260 µs, plain TCP included",
        limit_us=1000,
        source="published nccl-tests tables, NVLink to TCP",
    ),
}


def check_latency_floor(facts: BenchFacts) -> Sequence[Outcome]:
    """The whole job's or table's smallest messages; isolated iterations where there are any."""
    if is_cpu_only(facts):
        return [NotApplicable(detail="Gloo and CPUs: no published expectation")]
    curves = [
        curve
        for curve in _preferred(facts)
        if curve.group.kind in (GroupKind.JOB, GroupKind.TABLE) and (curve.num_ranks or 2) > 1
    ]
    outcomes = [outcome for curve in curves if (outcome := _judge(facts, curve)) is not None]
    found = [outcome for outcome in outcomes if isinstance(outcome, Found)]
    if found:
        return found[:1]
    if outcomes:
        return outcomes
    return [
        not_seen(
            facts,
            f"no size up to {format_bytes(SMALL_BYTES)}",
            how="measure small messages too: `--min-bytes 1K`",
        )
    ]


def _preferred(facts: BenchFacts) -> tuple[Curve, ...]:
    isolated = curves_of(facts.rows, style=Style.ISOLATED)
    return isolated if any(_small(curve) for curve in isolated) else curves_of(facts.rows)


def _small(curve: Curve) -> tuple[Row, ...]:
    return tuple(row for row in curve.rows if row.size_bytes <= SMALL_BYTES)


def _judge(facts: BenchFacts, curve: Curve) -> Outcome | None:
    rows = _small(curve)
    ranks = curve.num_ranks
    if not rows or (curve.collective not in FLAT and (ranks is None or ranks > MAX_RANKS_IN_TURN)):
        return None
    # The median over the small sizes, each by its fastest repeat: one slow row is no floor.
    floor_us = median([min(row.repeats_us, default=row.time_us) for row in rows])
    floor = _floor_of(facts, curve)
    if floor_us <= floor.limit_us:
        return Passed(
            detail=f"{curve.label}: {floor_us:.4g} µs up to {format_bytes(SMALL_BYTES)}, limit {floor.limit_us:g} µs"
        )
    return _found(facts, curve, rows[0], floor_us, floor)


def _floor_of(facts: BenchFacts, curve: Curve) -> Floor:
    plugin = tcp_plugin(facts)
    if plugin is not None:
        return FLOORS[plugin]
    hosts = num_hosts_of(facts, curve.group, curve.num_ranks)
    machine = machine_of(facts, curve.group)
    if hosts is None or hosts > MAX_HOSTS or shares_gpus(facts):
        return FLOORS["any"]
    if hosts == 1:
        return FLOORS["nvlink" if machine.kind is not None and machine.kind.is_baseboard else "any"]
    kind = machine.nics[0].kind if machine.nics else None
    if kind in ("infiniband", "roce"):
        return FLOORS["rdma"]
    return FLOORS["efa" if kind == "efa" else "any"]


def _found(facts: BenchFacts, curve: Curve, row: Row, floor_us: float, floor: Floor) -> Found:
    crowded = shares_gpus(facts)
    told_before = crowded and facts.is_live
    return Found(
        key=curve.collective,
        title=f"the smallest messages take {_time(floor_us)}; above {_time(floor.limit_us)} is slow for GPUs",
        severity=Severity.INFO if told_before else Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{curve.label}: median {_time(floor_us)} over the sizes up to {format_bytes(SMALL_BYTES)}",
                value=round(floor_us, 1),
                unit="µs",
                expected=f"{floor.fabric}: {floor.published}, at most {floor.limit_us:g} µs",
                expected_source=f"{floor.source}; the limit is our own",
                source=source_of(facts.label, row),
            ),
            *(
                [Evidence(text="several ranks are on one GPU, where they take turns", source=facts.label)]
                if crowded
                else []
            ),
            *_logged(facts),
        ),
        explanation=(
            "The time of a message of a few bytes is pure waiting: for the network, for another process, or for a "
            "GPU. A job with many small collectives pays it each time. "
            + (
                "Here ranks share a GPU, and each waits for its turn on it; the numbers say nothing about a fabric."
                if crowded
                else "Ranks of one host that talk over sockets because NCCL takes them for different hosts "
                "(NCCL_HOSTID, containers with host names of their own), plain TCP between hosts, and processes that "
                "wait for a CPU look like this."
            )
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="See what carries the data between the ranks, and how many hosts NCCL sees",
                command="NCCL_DEBUG=INFO … 2>&1 | grep -E ' via |nNodes|Using network'",
            ),
        ),
        cause_class="network:latency",
        fault=Fault.CONFIG if crowded else Fault.UNKNOWN,
    )


def _logged(facts: BenchFacts) -> list[Evidence]:
    log = facts.nccl_log
    if log is None or log.network is None:
        return []
    return [Evidence(text=f"NCCL's log: `Using network {log.network}`", source=log.place_of("network"))]


def _time(time_us: float) -> str:
    return f"{time_us / 1e3:.1f} ms" if time_us >= 1000 else f"{time_us:.0f} µs"


CHECK = BenchCheck(id="bench-latency-floor", title="time of the smallest messages", run=check_latency_floor)
