"""Why the driver says that a clock is low: which reasons last on few GPUs, on many, or now and then on one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.telemetry.gpu_panel import OneGpu, Panel
from distdoctor.straggler.analysis.telemetry.job_time import MIN_GPUS
from distdoctor.straggler.analysis.telemetry.oddity import ODD_SHARE, CommonReason, Oddity, Sign
from distdoctor.straggler.facts.telemetry import Metric

# nvml.h, clocks event reasons. Those that are settings (idle 0x1, application clocks 0x2, display 0x100) are left out.
REASONS: Mapping[str, int] = {
    "HW power brake": 0x80,
    "HW thermal slowdown": 0x40,
    "HW slowdown": 0x8,
    "SW thermal slowdown": 0x20,
    "SW power cap": 0x4,
    "sync boost": 0x10,
}
BY_HARDWARE = frozenset(("HW power brake", "HW thermal slowdown", "HW slowdown"))
# nvml.h: set with each of the two others as well.
GENERAL = "HW slowdown"
# Faults whatever the GPU does; the others come and go with its work.
FAULTS = BY_HARDWARE | {"SW thermal slowdown"}

# A reason lasts when it is there in this share of the samples under load, and in so many of them. Our own thresholds.
REASON_SHARE = 0.25
REASON_SAMPLES = 10
# Hardware that holds back one GPU and none of its peers tells something much sooner. Our own thresholds.
RARE_SHARE = 0.05
RARE_PEERS = 0.01
# It is odd on at most this share of the GPUs: on more it is how they all run.
REASON_ODD_SHARE = 0.5


def odd_reasons(panel: Panel, from_s: float | None) -> tuple[list[Oddity], list[CommonReason]]:
    """Reasons that last on few GPUs, and those that last on many."""
    shares: dict[str, dict[int, float]] = {name: {} for name in REASONS}
    counts: dict[str, dict[int, int]] = {name: {} for name in REASONS}
    lasting: dict[str, set[int]] = {name: set() for name in REASONS}
    for row, one in enumerate(panel.gpus):
        masks = _masks(panel, one, from_s)
        if not len(masks) or panel.idle[row]:
            continue
        for name, bit in REASONS.items():
            # What is no fault by itself is told of GPUs that work.
            if name not in FAULTS and not (panel.belongs[row] and panel.load_known):
                continue
            count = int(np.sum((masks & bit) != 0))
            shares[name][row], counts[name][row] = count / len(masks), count
            if count >= REASON_SAMPLES and count >= REASON_SHARE * len(masks):
                lasting[name].add(row)
    found, common = [], []
    for name, rows in lasting.items():
        told = shares[name]
        if len(rows) > REASON_ODD_SHARE * len(told) and len(told) > 1:
            common.append(CommonReason(reason=name, num_gpus=len(rows), of=len(told)))
            continue
        rare = _rare(told, counts[name]) if name in BY_HARDWARE else set()
        found += [_reason(name, row, told) for row in sorted(rows | rare)]
    specific = {each.reason for each in common if each.reason in BY_HARDWARE} - {GENERAL}
    return found, [each for each in common if each.reason != GENERAL or not specific]


def _rare(shares: Mapping[int, float], counts: Mapping[int, int]) -> set[int]:
    """GPUs that have a reason now and then which nearly none of the others has."""
    rows = {row for row, share in shares.items() if share >= RARE_SHARE and counts[row] >= REASON_SAMPLES}
    others = [share for row, share in shares.items() if row not in rows]
    is_odd = len(shares) >= MIN_GPUS and len(rows) <= ODD_SHARE * len(shares)
    return rows if is_odd and np.median(others) <= RARE_PEERS else set()


def reasons_that_differ(panel: Panel, from_s: float | None) -> dict[str, tuple[float, float]]:
    """Reasons that some GPUs under load have more often than others: the least and the largest share of samples."""
    shares: dict[str, list[float]] = {name: [] for name in REASONS}
    for row in np.flatnonzero(panel.belongs):
        masks = _masks(panel, panel.gpus[row], from_s)
        if len(masks):
            for name, bit in REASONS.items():
                shares[name].append(float(np.mean((masks & bit) != 0)))
    return {
        name: (min(told), max(told))
        for name, told in shares.items()
        if told and max(told) - min(told) >= RARE_SHARE
    }


def _reason(name: str, row: int, shares: Mapping[int, float]) -> Oddity:
    others = [share for other, share in shares.items() if other != row]
    return Oddity(
        sign=_sign_of(name),
        row=row,
        value=shares[row],
        peers=float(np.median(others)) if others else float("nan"),
        metric=Metric.THROTTLE_REASONS,
        share=shares[row],
        reason=name,
    )


def _sign_of(reason: str) -> Sign:
    if reason == "SW power cap":
        return Sign.POWER_CAPPED
    return Sign.SYNC_BOOST if reason == "sync boost" else Sign.THROTTLED


def _masks(panel: Panel, one: OneGpu, from_s: float | None) -> NDArray[np.int64]:
    series = one.samples.get(Metric.THROTTLE_REASONS, (np.empty(0), np.empty(0)))
    return panel.while_active(*series, from_s)[1].astype(np.int64)
