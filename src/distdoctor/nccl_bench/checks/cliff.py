"""Does bandwidth fall where messages grow?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.curves import Curve, curves_of, source_of
from distdoctor.nccl_bench.analysis.expectation import is_cpu_only
from distdoctor.nccl_bench.analysis.fit import Cliff, find_cliffs, fit_curve
from distdoctor.nccl_bench.analysis.noise import is_noisy, run_disagrees
from distdoctor.nccl_bench.checks.base import (
    BenchCheck,
    Found,
    NotApplicable,
    NotSeen,
    Outcome,
    Passed,
    not_seen,
)
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import Row
from distdoctor.report.checking import Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team
from distdoctor.units import MIB, format_bytes

# Below this size algorithms and protocols change hands, and a step down costs little. Our own threshold.
MATTERS_FROM_BYTES = MIB

# A dip by a third among messages as large as gradient buckets costs every step that uses them: users of aws-ofi-nccl lost 41 % at 64 MiB (its issue 65). Our own thresholds; healthy published tables have none.
BIG_DIP_BYTES = 32 * MIB
BIG_DIP_DROP = 1 / 3

MAX_NAMED = 6


def check_cliff(facts: BenchFacts) -> Sequence[Outcome]:
    """Falls that stay and wide dips of large messages are warnings; other dips, and small sizes, are to know."""
    curves = [curve for curve in curves_of(facts.rows) if (curve.num_ranks or 2) > 1]
    shapes = [curve for curve in curves if len(curve.fastest) > 1]
    if not shapes:
        return [not_seen(facts, "fewer than two sizes of one collective")]
    if is_cpu_only(facts):
        return [NotApplicable(detail="Gloo and CPUs: bandwidth falls where buffers outgrow the cache")]
    steady: list[tuple[Curve, Cliff]] = []
    noisy: list[str] = []
    for curve in shapes:
        for cliff in find_cliffs(curve.points):
            why = _noise(facts, curve, cliff)
            if why is None:
                steady.append((curve, cliff))
            else:
                noisy.append(f"{curve.label} at {format_bytes(cliff.after_bytes)}: {why}")
    outcomes: list[Outcome] = []
    cliffs = [each for each in steady if _is_serious(each[1])]
    dips = [each for each in steady if not _is_serious(each[1])]
    if cliffs:
        outcomes.append(_cliff(facts, cliffs))
    if dips:
        outcomes.append(_dip(facts, dips))
    if noisy:
        unread = Unread(cause=SkipCause.NOISY, reason=noisy[0], how="repeat on idle hosts, with --repeats 5")
        outcomes.append(NotSeen(unread=unread))
    return outcomes or [Passed(detail="; ".join(_shape(curve) for curve in shapes[:MAX_NAMED]))]


# What the best repeat behind a fall may keep of the bandwidth before it and the fall still counts: where only this
# cell is unsteady, and where the whole run is. Our own thresholds.
KEPT, KEPT_IN_NOISE = 0.8, 0.5


def _is_serious(cliff: Cliff) -> bool:
    return not cliff.recovers and cliff.after_bytes >= MATTERS_FROM_BYTES


def _is_big(dip: Cliff) -> bool:
    return dip.after_bytes >= BIG_DIP_BYTES and dip.drop >= BIG_DIP_DROP


def _row_at(curve: Curve, size_bytes: int) -> Row:
    return next(row for row in curve.fastest if row.size_bytes == size_bytes)


def _noise(facts: BenchFacts, curve: Curve, cliff: Cliff) -> str | None:
    """Why the fall may be chance: its far end is not steady, unless even its best repeat has fallen."""
    after = _row_at(curve, cliff.after_bytes)
    why = is_noisy(facts, after)
    if why is None or not after.repeats_us:
        return why
    best_gbps = cliff.after_gbps * after.time_us / min(after.repeats_us)
    kept = KEPT_IN_NOISE if run_disagrees(facts) else KEPT
    return why if best_gbps > kept * cliff.before_gbps else None


def _shape(curve: Curve) -> str:
    fit = fit_curve(curve.points)
    if fit is None or fit.plateau_reached:
        return f"{curve.label}: no fall"
    return f"{curve.label}: still rising at {format_bytes(curve.rows[-1].size_bytes)}, so its top is a lower bound"


def _evidence(facts: BenchFacts, curve: Curve, cliff: Cliff) -> Evidence:
    before, after = _row_at(curve, cliff.before_bytes), _row_at(curve, cliff.after_bytes)
    return Evidence(
        text=(
            f"{curve.label}: bus bandwidth {_gbps(before, cliff.before_gbps)} GB/s at "
            f"{format_bytes(cliff.before_bytes)}, {_gbps(after, cliff.after_gbps)} GB/s at "
            f"{format_bytes(cliff.after_bytes)}: {cliff.drop:.0%} less"
        ),
        value=round(100 * cliff.drop, 1),
        unit="%",
        expected="no fall by more than 20 % to the next larger size",
        expected_source="our own threshold; no healthy published table has one",
        source=source_of(facts.label, after),
    )


def _gbps(row: Row, otherwise: float) -> str:
    return f"{row.busbw_gbps if row.busbw_gbps is not None else otherwise:.3g}"


def _cliff(facts: BenchFacts, cliffs: list[tuple[Curve, Cliff]]) -> Found:
    curve, worst = max(cliffs, key=lambda each: each[1].drop)
    repeated = bool(_row_at(curve, worst.after_bytes).repeats_us) and not run_disagrees(facts)
    return Found(
        key=curve.collective,
        title=f"{curve.collective}: {worst.drop:.0%} less bandwidth above {format_bytes(worst.before_bytes)}",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH if repeated else Confidence.MEDIUM,
        evidence=tuple(_evidence(facts, *each) for each in cliffs[:MAX_NAMED]),
        explanation=(
            "Larger messages should be as fast or faster. Where bandwidth falls and stays low, something overflows: a "
            "switch that drops packets because flow control (PFC or ECN) is not set up on every hop, buffers of a "
            "virtual or overcommitted network, or a change of NCCL's protocol at this size. The same sizes between "
            "fewer hosts tell which: a fabric that drops is well with two hosts and falls with three."
            + ("" if repeated else " There is one measurement only; run it again before acting.")
        ),
        actions=(
            Action(
                team=Team.NETWORK,
                text="Count lost and resent packets before and after a run at the larger size",
                command="grep . /sys/class/infiniband/*/ports/*/hw_counters/{out_of_sequence,packet_seq_err,local_ack_timeout_err,rnr_nak_retry_err}",
            ),
            Action(
                team=Team.JOB_OWNER,
                text="Repeat the large sizes with one protocol; equal numbers clear NCCL of the change",
                command="NCCL_PROTO=Simple …",
            ),
        ),
        cause_class="network:cliff",
        fault=Fault.UNKNOWN,
    )


def _dip(facts: BenchFacts, dips: list[tuple[Curve, Cliff]]) -> Found:
    big = [dip for _, dip in dips if _is_big(dip)]
    curve, worst = max(dips, key=lambda each: (_is_big(each[1]), each[1].drop))
    return Found(
        key=f"dip:{curve.collective}",
        title=f"{curve.collective}: {worst.drop:.0%} less bandwidth at {format_bytes(worst.after_bytes)}, not beyond"
        if big
        else f"{curve.collective} is slower at {format_bytes(worst.after_bytes)} than at smaller sizes",
        severity=Severity.WARNING if big else Severity.INFO,
        # One size of one run may be chance, though both of its halves show it.
        confidence=Confidence.LOW if big and all(dip.sizes_below < 2 for dip in big) else Confidence.MEDIUM,
        evidence=tuple(_evidence(facts, *each) for each in dips[:MAX_NAMED]),
        explanation=(
            "Bandwidth falls and comes back at larger sizes, or falls among small messages. That is where NCCL "
            "changes its algorithm or protocol, or where a buffer of the network's overflows; it costs something only "
            "if the job uses just these sizes."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="See what NCCL chooses around this size",
                command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING … 2>&1 | grep -E 'Algo|proto'",
            ),
        ),
        cause_class="network:dip",
    )


CHECK = BenchCheck(id="bench-cliff", title="bandwidth over message size", run=check_cliff)
