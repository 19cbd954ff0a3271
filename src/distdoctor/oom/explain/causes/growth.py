"""Memory that grew from step to step until the card was full."""

from __future__ import annotations

from distdoctor.oom.explain.causes.kinds import Cause, Verdict
from distdoctor.oom.explain.numbers import Account
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, Hints, MemoryKind, MemoryTrend, OomEvent, Phase
from distdoctor.report.model import Confidence

# Phases with a need of their own: growth over the steps before them did not make it.
_OWN_NEED = frozenset((Phase.INITIALISATION, Phase.EVALUATION, Phase.GENERATION, Phase.SAVING))

# Of the growth of a pool or a peak, this much must show in the live tensors of the message too. Our own threshold.
_SHOWN_SHARE = 0.8


def grown(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """Steady growth over many steps, without which the request would have fitted."""
    del hints
    trend = event.memory_trend
    if trend is None or not trend.is_steady or event.phase in _OWN_NEED:
        return None
    if event.family not in CACHING_ALLOCATORS:
        return None
    growth = trend.last_bytes - trend.first_bytes
    if trend.has_unit and account.shortfall is not None and growth < account.shortfall:
        return None
    why = f"{trend.kind.value} rose steadily {trend_words(trend)}"
    live = event.allocated_bytes
    if trend.kind is MemoryKind.ALLOCATED:
        return Cause.LEAK, Confidence.MEDIUM, why
    if trend.has_unit and live is not None and live >= trend.first_bytes + _SHOWN_SHARE * growth:
        # A pool never holds less than what is allocated in it: so much was not allocated at first.
        return (
            Cause.LEAK,
            Confidence.MEDIUM,
            f"{why}, and the live tensors at the end exceed what was held at first",
        )
    return Cause.LEAK, Confidence.LOW, why, Cause.CAPACITY


def trend_words(trend: MemoryTrend) -> str:
    """ "from 41.2 to 66.8 GiB over 12 readings, steps 100 to 1,200"."""
    text = f"by {trend.last_bytes / trend.first_bytes - 1:+.0%}"
    if trend.has_unit:
        text = f"from {trend.first_bytes / (1 << 30):.1f} to {trend.last_bytes / (1 << 30):.1f} GiB"
    text += f" over {trend.num_readings} readings"
    if trend.first_step is not None and trend.last_step is not None:
        text += f", steps {trend.first_step:,} to {trend.last_step:,}"
    return text
