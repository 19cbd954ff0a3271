"""Ranks, steps and times of day as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import numpy as np

from distdoctor.report.model import GpuRef
from distdoctor.report.names import short_host
from distdoctor.straggler.analysed import Judged
from distdoctor.straggler.analysis.ranks.judgement import Pattern, Suspect
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.facts.places import Place
from distdoctor.units import fold_ints

TIME_NAMES = {
    Basis.SECTIONS: "Own work",
    Basis.STEP_LESS_WAIT: "Own work",
    Basis.WAIT_ONLY: "Lateness",
    Basis.WALL_ONLY: "Step time",
}
"""What the time of a rank is called that is set against its peers'."""


def place_words(place: Place) -> str:
    """ "rank 3 (host-b, GPU 3)"."""
    inside = []
    if place.host is not None:
        inside.append(short_host(place.host))
    if place.gpu is not None and place.gpu.index is not None:
        inside.append(f"GPU {place.gpu.index}")
    elif place.local_rank is not None and place.host is not None:
        inside.append(f"local rank {place.local_rank}")
    return f"rank {place.rank}" + (f" ({', '.join(inside)})" if inside else "")


def ranks_words(ranks: Sequence[int], *, max_characters: int = 60) -> str:
    """ "rank 3", "ranks 8-15"; a long list is cut and counted."""
    text = fold_ints(list(ranks))
    if len(text) > max_characters:
        text = f"{text[:max_characters].rsplit(',', 1)[0]},… ({len(ranks)} in all)"
    return f"rank{'s' if len(ranks) != 1 else ''} {text}"


def percent(share: float) -> str:
    """ "20 %", "3.4 %"; below a tenth of a per cent "0.05 %"."""
    value = 100 * share
    return (
        f"{value:.0f} %" if abs(value) >= 10 else f"{value:.1f} %" if abs(value) >= 0.1 else f"{value:.2g} %"
    )


def ms(value: float) -> str:
    """ "412 ms", "3.4 ms", "2.1 s"."""
    if abs(value) >= 10_000:
        return f"{value / 1e3:.1f} s"
    return (
        f"{value:.0f} ms"
        if abs(value) >= 100
        else f"{value:.1f} ms"
        if abs(value) >= 1
        else f"{value:.2g} ms"
    )


def utc_of(judged: Judged, column: int) -> str | None:
    """When a step began, ISO 8601 in UTC to the second; None where it is not known."""
    started = judged.judgement.started_s
    if started is None or not 0 <= column < len(started) or not np.isfinite(started[column]):
        return None
    return utc_text(float(started[column]))


def utc_text(seconds: float) -> str | None:
    """Seconds since 1970 as ISO 8601; None where no calendar has them."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return None


def when(judged: Judged, suspect: Suspect) -> str:
    """ "in all 190 steps", "since step 1,200 (2026-11-30T12:20:11Z)", "now and then, every 10 steps"."""
    steps, unit = judged.judgement.steps, judged.unit
    first, last = suspect.stretch.start, suspect.stretch.end - 1
    match suspect.pattern:
        case Pattern.PERSISTENT:
            return f"in all {judged.units}"
        case Pattern.SINCE:
            at = utc_of(judged, first)
            return f"since {unit} {int(steps[first]):,}" + (f" ({at})" if at else "")
        case Pattern.UNTIL:
            return f"up to {unit} {int(steps[last]):,}"
        case Pattern.STRETCH:
            return f"from {unit} {int(steps[first]):,} to {int(steps[last]):,}"
        case Pattern.INTERMITTENT:
            times = f"{suspect.num_bursts} times in {judged.units}"
            return f"{times}, every {suspect.rhythm.period} {unit}s" if suspect.rhythm is not None else times


def gpu_of(place: Place) -> tuple[GpuRef, ...]:
    """The GPU with its host, where it is known."""
    if place.gpu is None:
        return ()
    return (
        GpuRef(
            host=place.gpu.host or place.host,
            index=place.gpu.index,
            pci=place.gpu.pci,
            uuid=place.gpu.uuid,
            model=place.gpu.model,
        ),
    )
