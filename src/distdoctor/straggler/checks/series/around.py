"""Somebody noticed it at a time of day: does the series change there?"""

from __future__ import annotations

import numpy as np

from distdoctor.straggler.analysis.series.regimes import SeriesShape
from distdoctor.straggler.analysis.series.running import Values
from distdoctor.straggler.checks.series.words import Told, change_words, clock_words, step_words, value_words

# People round, and notice late. Our own choice.
NEAR_S = 30 * 60

# Values on each side of the time that are compared when no change is near it.
SIDE = 200
MIN_SIDE = 4


def nearest_change(shape: SeriesShape, told: Told) -> int | None:
    """Index of the change of level closest to the time asked about, if one lies within half an hour."""
    if told.around_s is None or shape.utc_s is None:
        return None
    near = [
        (abs(float(shape.utc_s[change.index]) - told.around_s), change.index)
        for change in shape.changes
        if not np.isnan(shape.utc_s[change.index])
    ]
    return min(near)[1] if near and min(near)[0] <= NEAR_S else None


def around_words(shape: SeriesShape, told: Told) -> str | None:
    """One sentence about the time asked about; None when none was."""
    if told.around_s is None:
        return None
    asked = clock_words(told.around_s, zone_known=True)
    if shape.utc_s is None or np.isnan(shape.utc_s).all():
        return f"the log tells no times of day, so {asked} cannot be found in it"
    known = np.flatnonzero(~np.isnan(shape.utc_s))
    first, last = float(shape.utc_s[known[0]]), float(shape.utc_s[known[-1]])
    clock = "" if told.zone_known else "; the log's clock has no zone and is taken as UTC"
    if not first - NEAR_S <= told.around_s <= last + NEAR_S:
        covers = f"{clock_words(first, zone_known=told.zone_known)} to {clock_words(last, zone_known=told.zone_known)}"
        return f"{asked} lies outside the log, which covers {covers}{clock}"
    nearest = nearest_change(shape, told)
    if nearest is not None:
        off = (float(shape.utc_s[nearest]) - told.around_s) / 60
        side = (
            "at that minute" if abs(off) < 1 else f"{abs(off):.0f} min {'after' if off > 0 else 'before'} it"
        )
        return f"nearest to {asked}: a change at {step_words(shape, nearest)}, {side}{clock}"
    sides = _sides(shape, shape.utc_s, told, told.around_s)
    return f"no change of speed within half an hour of {asked}{sides}{clock}"


def _sides(shape: SeriesShape, utc_s: Values, told: Told, around_s: float) -> str:
    judged = np.arange(len(shape.times)) >= shape.num_warm_up
    before = np.flatnonzero(judged & (utc_s < around_s))[-SIDE:]
    after = np.flatnonzero(judged & (utc_s >= around_s))[:SIDE]
    if min(len(before), len(after)) < MIN_SIDE:
        return ""
    was, now = float(np.median(shape.times[before])), float(np.median(shape.times[after]))
    return (
        f": {value_words(was, told)} before, {value_words(now, told)} after ({change_words(now / was, told)})"
    )
