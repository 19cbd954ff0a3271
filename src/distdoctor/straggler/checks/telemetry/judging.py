"""How bad is what is odd of one GPU, how sure is it, and what of it is told first?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from distdoctor.report.model import Confidence, Severity
from distdoctor.straggler.analysis.peer_median import row_medians
from distdoctor.straggler.analysis.telemetry.gpu_panel import Panel
from distdoctor.straggler.analysis.telemetry.oddity import Oddity, Sign
from distdoctor.straggler.analysis.telemetry.throttle_reasons import BY_HARDWARE, REASON_SHARE
from distdoctor.straggler.facts.telemetry import Metric

# Xids that the application causes (NVIDIA's Xid catalogue: 13, 31, 43, 45, 68, 69): no fault of the GPU by themselves.
APPLICATION_XIDS = frozenset((13, 31, 43, 45, 68, 69))

# Of one limit to another: less is rounding.
_LIMIT_SHARE = 0.98

# A clock below this share of the peers' is a warning, above it a lead: clocks of healthy GPUs differ by some per cent,
# and among many one stands out. Our own threshold.
FIRM_CLOCK = 0.85

FRACTIONS = frozenset((Metric.SM_ACTIVE, Metric.TENSOR_ACTIVE))


def judge(oddities: Sequence[Oddity], panel: Panel) -> tuple[Severity, Confidence]:
    """How bad and how sure, from all that is odd of one GPU.

    High only where hardware itself reports that it is held back. What rests on a comparison with peers is weaker by
    a degree where the evidence does not tell which GPUs are one job.
    """
    by_hardware = [each for each in oddities if each.sign is Sign.THROTTLED and each.reason in BY_HARDWARE]
    if by_hardware and not any(lasts(each) for each in by_hardware):
        return Severity.WARNING, Confidence.MEDIUM
    if by_hardware:
        alone = panel.belongs.sum() < 2 or not panel.load_known
        return Severity.WARNING, Confidence.MEDIUM if alone else Confidence.HIGH
    if any(each.sign in (Sign.THROTTLED, Sign.ROW_REMAP) for each in oddities):
        return Severity.WARNING, Confidence.MEDIUM
    if any(each.sign is Sign.XID and int(each.value) not in APPLICATION_XIDS for each in oddities):
        return Severity.WARNING, Confidence.MEDIUM
    if _compared_is_firm(oddities, panel):
        return Severity.WARNING, Confidence.MEDIUM if panel.job is not None else Confidence.LOW
    return Severity.INFO, Confidence.LOW


def lasts(oddity: Oddity) -> bool:
    """Whether a throttle reason lasts, other than now and then."""
    return oddity.share is None or oddity.share >= REASON_SHARE


def _compared_is_firm(oddities: Sequence[Oddity], panel: Panel) -> bool:
    signs = {each.sign for each in oddities}
    less = {each.metric for each in oddities if each.sign is Sign.WORKS_LESS}
    if Sign.HELD_BY_HEAT in signs or any(
        each.sign is Sign.LINK_ERRORS and each.metric is Metric.NVLINK_ERRORS for each in oddities
    ):
        return True
    # A GPU that does little for want of work may clock low; one that is active and slow is held.
    low = any(each.sign is Sign.LOW_CLOCK and each.value < FIRM_CLOCK * each.peers for each in oddities)
    if low and not less & FRACTIONS:
        return True
    if Sign.POWER_CAPPED in signs and lower_limit(panel, oddities[0].row) is not None:
        return True
    return _works_more(oddities)


def _works_more(oddities: Sequence[Oddity]) -> bool:
    """Activity and power agree."""
    more = {each.metric for each in oddities if each.sign is Sign.WORKS_MORE}
    return bool(more & FRACTIONS) and Metric.POWER in more


def strongest_first(oddities: Sequence[Oddity], panel: Panel) -> list[Oddity]:
    """What is told first of a GPU: the sign that makes it as bad as it is; of equal ones the order of `Sign`.

    Whoever works while the others wait clocks lower than they do and may reach its power cap: these follow from it.
    """
    works_more = _works_more(oddities)
    follows = {Sign.LOW_CLOCK} if works_more else set()
    if works_more and lower_limit(panel, oddities[0].row) is None:
        follows.add(Sign.POWER_CAPPED)

    def strength(oddity: Oddity) -> tuple[bool, int, int]:
        same = [each for each in oddities if each.sign is oddity.sign and each.reason == oddity.reason]
        with_it = [each for each in oddities if each.sign in _JUDGED_WITH.get(oddity.sign, ())]
        severity, confidence = judge([*same, *with_it], panel)
        return oddity.sign in follows, severity is not Severity.WARNING, -_SURE.index(confidence)

    return sorted(oddities, key=strength)


# A cap or a boost is a cause of a low clock, and a low clock is weighed by what the GPU does.
_JUDGED_WITH = {
    Sign.POWER_CAPPED: (Sign.LOW_CLOCK, Sign.WORKS_LESS),
    Sign.SYNC_BOOST: (Sign.LOW_CLOCK, Sign.WORKS_LESS),
    Sign.LOW_CLOCK: (Sign.WORKS_LESS,),
}
_SURE = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)


def lower_limit(panel: Panel, row: int) -> tuple[float, float] | None:
    """The GPU's power limit and its peers', in W, where it is lower."""
    table = panel.values.get(Metric.POWER_LIMIT)
    if table is None:
        return None
    limits = row_medians(table)
    own = float(limits[row])
    others = sorted(
        float(limit) for other, limit in enumerate(limits) if other != row and not math.isnan(limit)
    )
    peers = others[len(others) // 2] if others else float("nan")
    return (own, peers) if own < _LIMIT_SHARE * peers else None
