"""A bandwidth that no way between GPUs gives, so that it can be named without knowing the hardware."""

from __future__ import annotations

from collections.abc import Iterable

from distdoctor.nccl_bench.analysis.curves import Curve, source_of
from distdoctor.nccl_bench.analysis.machine import shares_gpus
from distdoctor.nccl_bench.catalog.gpus import PCIE_X16_GBPS
from distdoctor.nccl_bench.checks.base import Found
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import MIB, format_bytes

# A tenth of the slowest way that GPUs of today have between them, 16 lanes of PCIe 3. Our own threshold: NCCL over
# 10 Gbit/s Ethernet gave 0.95 GB/s, through host memory across sockets 1.4, over one old 100 Gbit/s port 10.
ABSURD_GBPS = 0.1 * PCIE_X16_GBPS[3]

# Any fabric but one of many racks is well on its way here.
ABSURD_FROM_BYTES = 256 * MIB

# Collectives whose busbw is the load of the busiest link, whatever the number of ranks.
COMPARABLE = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})


def absurd(facts: BenchFacts, curves: Iterable[Curve]) -> Found | None:
    """The finding for the fastest of `curves` when even that is absurdly slow; None otherwise, and for CPUs.

    nccl-tests and rccl-tests run on GPUs only, so that a table needs no list of devices for this.
    """
    if facts.origin is not Origin.TABLE and not any(place.gpu_model for place in facts.places):
        return None
    if shares_gpus(facts):
        return None
    rows = [
        (row.busbw_gbps, row, curve)
        for curve in curves
        if curve.collective in COMPARABLE
        for row in curve.rows
        if row.size_bytes >= ABSURD_FROM_BYTES and row.busbw_gbps is not None
    ]
    if not rows:
        return None
    busbw, row, curve = max(rows, key=lambda each: each[0])
    if busbw >= ABSURD_GBPS:
        return None
    return Found(
        key=f"absurd:{curve.collective}",
        title=f"{curve.collective} reaches {busbw:.3g} GB/s: no direct way between GPUs is that slow",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{curve.label}: bus bandwidth {busbw:.3g} GB/s at {format_bytes(row.size_bytes)}, the best of all large sizes",
                value=round(busbw, 3),
                unit="GB/s",
                expected=f"above {ABSURD_GBPS:.2g} GB/s on any GPUs",
                expected_source="a tenth of PCIe 3.0 x16, our own threshold",
                source=source_of(facts.label, row),
            ),
        ),
        explanation=(
            "What hardware this was is not in the evidence, but two GPUs of one host exchange ten times as much over "
            "the oldest PCIe in use. Numbers like this come from data that goes through host memory across CPU "
            "sockets (peer-to-peer switched off or not possible), or over Ethernet of 10 Gbit/s. On such Ethernet it "
            "is normal."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="See what NCCL uses between the GPUs, and which settings it was given",
                command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,P2P,NET … 2>&1 | grep -E ' via |Using network|set by environment'",
            ),
            Action(
                team=Team.PLATFORM,
                text="See whether GPUs reach one another, and over what",
                command="nvidia-smi topo -m; nvidia-smi topo -p2p r",
            ),
        ),
        cause_class="gpu:below_expected",
        fault=Fault.UNKNOWN,
    )
